//! HTTPS for the API server, with limits on the memory and time that any client can use.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use dnsweir_run::admin::{Connected, Guest};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::counters::{Counters, Refusal};
use super::injection::{Injection, Reason};
use super::review;

/// The most connections at once. One more replaces the oldest of the client with the most connections.
const CONNECTIONS: usize = 128;

/// Memory in bytes for all incomplete bodies. More data replaces that of the client that uses the most.
const BODIES: usize = 32 << 20;

/// Size limit of a body in bytes: etcd accepts objects of 1.5 MiB, and the API server requests of 3 MiB.
const BODY: usize = 3 << 20;

/// Timeout of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Timeout of a request's head, including the idle time before it. API servers close idle connections after
/// 90 s. If we were first, a review could be on its way, which is not sent again.
const HEAD: Duration = Duration::from_secs(120);
const _: () = assert!(HEAD.as_secs() > 90);

/// Size limit of a head, in bytes.
const HEAD_OCTETS: usize = 16 << 10;

/// Timeout of a request after its head. The API server's `timeoutSeconds` is less.
const REQUEST: Duration = Duration::from_secs(5);

/// Age from which on a connection ends with its next reply.
const LASTING: Duration = Duration::from_secs(300);

/// Timeout for the rest of a reply, and for requests that are in progress when the server stops.
const ENDING: Duration = Duration::from_secs(5);

/// The one path.
const PATH: &str = "/inject";

/// The state of the server.
pub struct Webhook {
    /// The settings for pods.
    pub injection: Injection,
    /// Whether to log changes instead of making them.
    pub dry_run: bool,
    /// The metrics.
    pub counters: Counters,
    connected: Connected,
}

/// A refused request: the reason, the status, and the message for the client.
type Refused = (Refusal, StatusCode, String);

impl Webhook {
    /// Makes a webhook; with `dry_run`, it only logs changes.
    pub fn new(injection: Injection, dry_run: bool) -> Webhook {
        Webhook {
            injection,
            dry_run,
            counters: Counters::default(),
            connected: Connected::new(CONNECTIONS, BODIES),
        }
    }

    /// The number of connections closed to make room.
    pub fn dismissed(&self) -> u64 {
        self.connected.dismissed()
    }

    /// Accepts connections until `stop` is true and all have ended. Each uses the certificate current at its
    /// start.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        identity: watch::Receiver<Option<Arc<ServerConfig>>>,
        mut stop: watch::Receiver<bool>,
    ) {
        // Open as long as any connection is.
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
                // Without a certificate, we are not ready, and no client should connect.
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

    /// Shakes hands with a client, and serves it.
    async fn converse(
        &self,
        stream: TcpStream,
        config: Arc<ServerConfig>,
        guest: &Guest,
        stop: watch::Receiver<bool>,
    ) {
        let handshake = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream));
        let shaken = handshake
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match shaken {
            Ok(stream) => self.talk(stream, guest, stop, LASTING).await,
            Err(error) => {
                tracing::debug!(%error, "a client's TLS handshake failed");
                self.counters.failed_handshakes.fetch_add(1, Relaxed);
            }
        }
    }

    /// Serves the requests of a connection in sequence. The first reply after `lasting` is the last.
    async fn talk(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        guest: &Guest,
        mut stop: watch::Receiver<bool>,
        lasting: Duration,
    ) {
        let begun = Instant::now();
        let service = service_fn(|request| async move {
            let mut reply = self.reply(request, guest).await;
            if begun.elapsed() >= lasting {
                close_after(&mut reply);
            }
            Ok::<_, Infallible>(reply)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(HEAD_OCTETS);
        // Clients that disconnect are not our problem.
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = &mut connection => return,
            // Its last reply was not read.
            () = sleep(lasting + HEAD + REQUEST + ENDING) => {}
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
                // The rest of its body is not read.
                close_after(&mut refused);
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

    /// Reads a body within its size limit and the shared memory.
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

    /// Decides about a pod, logs and counts the decision, and returns the reply.
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

/// Counts a connection until it is dropped, which may happen anywhere.
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

/// Resolves when the server must stop.
async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    // A dropped sender also means stop.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Ends a connection after a reply, and tells the client, which will not send another request over it.
fn close_after(reply: &mut Response<Full<Bytes>>) {
    reply
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const REVIEW: &str = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "namespace": "team", "operation": "CREATE", "object": {"metadata": {}, "spec": {}},
        "resource": {"group": "", "version": "v1", "resource": "pods"}}}"#;

    /// The first reply over a connection that may last this long.
    async fn first_reply(lasting: Duration) -> String {
        let injection = Injection {
            resolvers: None,
            options: Vec::new(),
            opt_out: ("opt-out".into(), "yes".into()),
            included: Vec::new(),
        };
        let webhook = Arc::new(Webhook::new(injection, false));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let (_stop, stopped) = watch::channel(false);
        let this = Arc::clone(&webhook);
        webhook.connected.serve(stream, |stream, guest| async move {
            this.talk(stream, &guest, stopped, lasting).await;
        });
        let length = REVIEW.len();
        let request = format!("POST {PATH} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{REVIEW}");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        while !reply.contains("\"allowed\":true") {
            let mut octets = [0; 1024];
            let count = client.read(&mut octets).await.unwrap();
            assert_ne!(count, 0, "{reply}");
            reply += std::str::from_utf8(&octets[..count]).unwrap();
        }
        reply
    }

    /// The client knows that it is the last: when a connection just closes, a review may be on its way.
    #[test]
    fn a_connection_past_its_time_ends_with_a_reply() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for (lasting, is_last) in [(Duration::ZERO, true), (LASTING, false)] {
            let reply = runtime.block_on(first_reply(lasting));
            assert_eq!(reply.contains("connection: close"), is_last, "{reply}");
        }
    }
}
