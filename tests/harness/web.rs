//! A scripted web server on loopback, with or without TLS.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The reply to a request: all of it, including status line and headers.
type Answer = Box<dyn Fn(&str) -> Vec<u8> + Send>;

/// A server. It listens for as long as the process lives.
pub struct WebServer {
    /// Its address.
    pub address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    requests: Arc<Mutex<Vec<String>>>,
}

/// Returns the issuer of all certificates of this process.
fn issuer() -> &'static CertifiedIssuer<'static, KeyPair> {
    static ISSUER: OnceLock<CertifiedIssuer<'static, KeyPair>> = OnceLock::new();
    ISSUER.get_or_init(|| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
    })
}

/// Returns the issuer's certificate in PEM.
pub fn authority() -> String {
    issuer().pem()
}

impl WebServer {
    /// Starts a server whose certificate is for `name`.
    pub fn over_tls(name: &str) -> WebServer {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, issuer()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a configuration");
        let config = Arc::new(config);
        WebServer::start(move |stream, answer, requests| {
            if let Ok(tls) = ServerConnection::new(Arc::clone(&config)) {
                converse(StreamOwned::new(tls, stream), answer, requests);
            }
        })
    }

    /// Starts a server without TLS.
    pub fn plain() -> WebServer {
        WebServer::start(|stream, answer, requests| converse(stream, answer, requests))
    }

    fn start(serve: impl Fn(TcpStream, &Mutex<Answer>, &Mutex<Vec<String>>) + Send + 'static) -> WebServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Box::new(|_| page("404 Not Found", "", ""))));
        let requests = Arc::default();
        let (told, seen) = (Arc::clone(&answer), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &told, &seen);
            }
        });
        WebServer {
            address,
            answer,
            requests,
        }
    }

    /// Sets the function that answers requests; it sees their headers in lower case.
    pub fn answer(&self, answer: impl Fn(&str) -> Vec<u8> + Send + 'static) {
        *self.answer.lock().expect("no panic") = Box::new(answer);
    }

    /// Serves this file from now on, with an entity tag that identifies its version.
    pub fn serve(&self, contents: &str, tag: &str) {
        let (contents, tag) = (contents.to_owned(), tag.to_owned());
        self.answer(move |request| {
            if request.contains(&format!("if-none-match: \"{tag}\"")) {
                page("304 Not Modified", "", "")
            } else {
                page("200 OK", &format!("etag: \"{tag}\"\r\n"), &contents)
            }
        });
    }

    /// Returns all requests so far: their headers, in lower case, and their bodies.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

/// Returns a reply with these headers, each with its line ending.
pub fn page(status: &str, headers: &str, contents: &str) -> Vec<u8> {
    let length = contents.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{contents}")
        .into()
}

/// Serves one request. A client that disconnects is no error.
fn converse(stream: impl Read + Write, answer: &Mutex<Answer>, requests: &Mutex<Vec<String>>) {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        match stream.read_line(&mut request) {
            Ok(1..) => (),
            _ => return,
        }
    }
    let mut request = request.to_lowercase();
    let octets = answer.lock().expect("no panic")(&request);
    let length = request
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("a number"));
    if stream.by_ref().take(length).read_to_string(&mut request).is_err() {
        return;
    }
    requests.lock().expect("no panic").push(request);
    let _ = stream
        .get_mut()
        .write_all(&octets)
        .and_then(|()| stream.get_mut().flush());
}
