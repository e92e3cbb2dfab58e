//! HTTPS for the API server, within bounds: nobody who connects can hold much, or for long.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::counters::{Counters, Refusal};
use super::injection::{Injection, Reason};
use super::review;
use crate::admin::{Connected, Guest};

/// Connections at once. One more takes the place of the oldest of whoever has most.
const CONNECTIONS: usize = 128;

/// Octets of all bodies that are not whole yet. More take the place of what whoever has sent most has sent.
const BODIES: usize = 32 << 20;

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
    connected: Connected,
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
            connected: Connected::new(CONNECTIONS, BODIES),
        }
    }

    /// Connections that made room for others.
    pub fn dismissed(&self) -> u64 {
        self.connected.dismissed()
    }

    /// Takes connections until `stop` is true and all have ended. The certificate is the one that there is when one begins.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        identity: watch::Receiver<Option<Arc<ServerConfig>>>,
        mut stop: watch::Receiver<bool>,
    ) {
        // Open as long as there is a connection.
        let (open, mut ended) = mpsc::channel::<Infallible>(1);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = told_to_stop(&mut stop) => break,
            };
            let config = identity.borrow().clone();
            match (accepted, config) {
                (Ok((stream, _)), Some(config)) => {
                    let (this, stop, open) = (Arc::clone(&self), stop.clone(), open.clone());
                    self.connected.serve(stream, |stream, guest| async move {
                        let _open = (open, Counted::new(&this.counters));
                        this.converse(stream, config, &guest, stop).await;
                    });
                    yield_now().await;
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
        drop(open);
        let _ = timeout(ENDING, ended.recv()).await;
    }

    /// Serves the requests of a connection, one after the other.
    async fn converse(
        &self,
        stream: TcpStream,
        config: Arc<ServerConfig>,
        guest: &Guest,
        mut stop: watch::Receiver<bool>,
    ) {
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
        let service = service_fn(|request| async { Ok::<_, Infallible>(self.reply(request, guest).await) });
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

    async fn reply(&self, request: Request<Incoming>, guest: &Guest) -> Response<Full<Bytes>> {
        let begun = Instant::now();
        let answer = timeout(REQUEST, self.answer(request, guest)).await;
        guest.release();
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) => Err((
                Refusal::TimedOut,
                StatusCode::SERVICE_UNAVAILABLE,
                format!("this took longer than {REQUEST:?}"),
            )),
        };
        match answer {
            Ok(review) => {
                guest.asks();
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

    async fn answer(&self, request: Request<Incoming>, guest: &Guest) -> Result<String, Refused> {
        if request.uri().path() != PATH {
            let problem = format!("there is {PATH} only");
            return Err((Refusal::Path, StatusCode::NOT_FOUND, problem));
        }
        if request.method() != Method::POST {
            let problem = "use POST".to_owned();
            return Err((Refusal::Path, StatusCode::METHOD_NOT_ALLOWED, problem));
        }
        if request.body().size_hint().lower() > BODY as u64 {
            return Err(too_large());
        }
        let body = self.body(request.into_body(), guest).await?;
        let request = review::Request::read(&body).map_err(malformed)?;
        drop(body);
        Ok(self.decide(&request))
    }

    /// A body that is not too large, as long as there is room for it.
    async fn body(&self, mut body: Incoming, guest: &Guest) -> Result<Vec<u8>, Refused> {
        let mut octets = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| malformed(format!("the body cannot be read: {error}")))?;
            let data = frame.into_data().unwrap_or_default();
            if octets.len() + data.len() > BODY {
                return Err(too_large());
            }
            let before = octets.capacity();
            octets.extend_from_slice(&data);
            if !self.connected.hold(guest, octets.capacity() - before) {
                let problem = "there is no memory for it, because of other requests".to_owned();
                return Err((Refusal::Crowded, StatusCode::SERVICE_UNAVAILABLE, problem));
            }
        }
        Ok(octets)
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

fn malformed(problem: String) -> Refused {
    (Refusal::Malformed, StatusCode::BAD_REQUEST, problem)
}

fn too_large() -> Refused {
    let problem = format!("a review has at most {BODY} bytes");
    (Refusal::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, problem)
}

/// A connection that is counted, until it is dropped: it may be cut off anywhere.
struct Counted<'c>(&'c Counters);

impl<'c> Counted<'c> {
    fn new(counters: &'c Counters) -> Counted<'c> {
        counters.connections.fetch_add(1, Relaxed);
        Counted(counters)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
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
