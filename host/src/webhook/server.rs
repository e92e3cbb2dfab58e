//! HTTPS for the API server, within bounds: nobody who connects can hold much, or for long.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::counters::{Counters, Refusal};
use super::injection::{Injection, Reason};
use super::review;

/// Connections at once. More wait to be accepted until one ends.
const CONNECTIONS: usize = 128;

/// Requests at once whose bodies are read. More wait, within their time.
const REQUESTS: usize = 16;

/// Octets of a body: etcd takes objects of 1.5 MiB, and the API server requests of 3 MiB.
const BODY: usize = 3 << 20;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long a request's head may take, and how long a connection may be silent before it. The API server asks again over a new one.
const HEAD: Duration = Duration::from_secs(10);

/// Octets of a head.
const HEAD_OCTETS: usize = 16 << 10;

/// How long a request may take from its head on. The API server waits for `timeoutSeconds`, which is less.
const REQUEST: Duration = Duration::from_secs(5);

/// How long a connection lasts before it ends after the request that it is at.
const LASTING: Duration = Duration::from_secs(300);

/// How long the request that it is at may take then, and what is to be written of its answer.
const ENDING: Duration = Duration::from_secs(5);

/// The one path.
const PATH: &str = "/inject";

/// What is served.
pub struct Webhook {
    /// What becomes of pods.
    pub injection: Injection,
    /// Whether it is only said.
    pub dry_run: bool,
    /// What is counted.
    pub counters: Counters,
    requests: Semaphore,
}

/// What refuses a request: the reason, the status, and what to tell the client.
type Refused = (Refusal, StatusCode, String);

impl Webhook {
    /// One that changes pods like this, or only says so.
    pub fn new(injection: Injection, dry_run: bool) -> Webhook {
        Webhook {
            injection,
            dry_run,
            counters: Counters::default(),
            requests: Semaphore::new(REQUESTS),
        }
    }

    /// Takes connections until `stop` is true and all have ended. The certificate is the one that there is when one begins.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        identity: watch::Receiver<Option<Arc<ServerConfig>>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = async {
                // It is never closed.
                let place = Arc::clone(&room).acquire_owned().await.ok()?;
                Some((place, listener.accept().await))
            };
            let (place, accepted) = tokio::select! {
                Some(accepted) = accepted => accepted,
                () = told_to_stop(&mut stop) => break,
            };
            let config = identity.borrow().clone();
            match (accepted, config) {
                (Ok((stream, _)), Some(config)) => {
                    let (this, stop) = (Arc::clone(&self), stop.clone());
                    tokio::spawn(async move {
                        this.counters.connections.fetch_add(1, Relaxed);
                        this.converse(stream, config, stop).await;
                        this.counters.connections.fetch_sub(1, Relaxed);
                        drop(place);
                    });
                }
                // Nobody is to connect yet: we are not ready.
                (Ok(_), None) => {}
                (Err(error), _) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        let all = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
        let _ = timeout(ENDING, room.acquire_many(all)).await;
    }

    /// Serves the requests of a connection, one after the other.
    async fn converse(&self, stream: TcpStream, config: Arc<ServerConfig>, mut stop: watch::Receiver<bool>) {
        let handshake = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream));
        let shaken = handshake
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = match shaken {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a client's TLS handshake failed");
                self.counters.failed_handshakes.fetch_add(1, Relaxed);
                return;
            }
        };
        let service = service_fn(|request| async { Ok::<_, Infallible>(self.reply(request).await) });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(HEAD_OCTETS);
        // A client that breaks off is no concern of ours.
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = &mut connection => return,
            () = sleep(LASTING) => {}
            () = told_to_stop(&mut stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(ENDING, connection).await;
    }

    async fn reply(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let begun = Instant::now();
        let answer = match timeout(REQUEST, self.answer(request)).await {
            Ok(answer) => answer,
            Err(_) => Err((
                Refusal::TimedOut,
                StatusCode::SERVICE_UNAVAILABLE,
                format!("this took longer than {REQUEST:?}"),
            )),
        };
        match answer {
            Ok(review) => {
                let microseconds = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                let add = |counter: &std::sync::atomic::AtomicU64, by| {
                    counter.fetch_add(by, Relaxed);
                };
                self.counters.durations.observe(microseconds, add);
                response(StatusCode::OK, "application/json", review)
            }
            Err((refusal, status, problem)) => {
                tracing::warn!(status = status.as_u16(), "a request was refused: {problem}");
                self.counters.refused[refusal as usize].fetch_add(1, Relaxed);
                let mut refused = response(status, "text/plain; charset=utf-8", problem + "\n");
                // What is left of its body is not read.
                refused
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
                refused
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<String, Refused> {
        if request.uri().path() != PATH {
            let problem = format!("there is {PATH} only");
            return Err((Refusal::Path, StatusCode::NOT_FOUND, problem));
        }
        if request.method() != Method::POST {
            let problem = "use POST".to_owned();
            return Err((Refusal::Path, StatusCode::METHOD_NOT_ALLOWED, problem));
        }
        let too_large = || {
            let problem = format!("a review has at most {BODY} octets");
            (Refusal::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, problem)
        };
        if request.body().size_hint().lower() > BODY as u64 {
            return Err(too_large());
        }
        let malformed = |problem| (Refusal::Malformed, StatusCode::BAD_REQUEST, problem);
        // It is never closed.
        let _one = self.requests.acquire().await;
        let body = Limited::new(request.into_body(), BODY).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_large(),
            false => malformed(format!("the body cannot be read: {error}")),
        })?;
        let request = review::Request::read(&body.to_bytes()).map_err(malformed)?;
        Ok(self.decide(&request))
    }

    /// What the API server is told about a pod, and the log and the counters with it.
    fn decide(&self, request: &review::Request) -> String {
        let namespace = request.namespace();
        let pod = request.created_pod();
        let name = pod.map_or("", |pod| pod.name());
        let decided = pod.map_or(Err(Reason::NotCreated), |pod| {
            self.injection.change(pod, namespace)
        });
        let counters = &self.counters;
        match decided {
            Ok(change) => {
                counters.changed.fetch_add(1, Relaxed);
                if self.dry_run {
                    tracing::info!(namespace, pod = name, patch = %change.patch, "dry run: would change a pod");
                    return request.answer(None);
                }
                tracing::debug!(namespace, pod = name, patch = %change.patch, "changed a pod");
                request.answer(Some(&change))
            }
            Err(reason) => {
                counters.unchanged[reason as usize].fetch_add(1, Relaxed);
                tracing::debug!(
                    namespace,
                    pod = name,
                    reason = reason.as_str(),
                    "left a pod as it is"
                );
                request.answer(None)
            }
        }
    }
}

/// Resolves when it is time to end.
async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    // Whoever could say so may be gone, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
