//! Connects to a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::upgrade::{self, Upgraded};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::Error;
use dnsweir_config::tls;

/// How long connecting may take, with TLS.
const CONNECT: Duration = Duration::from_secs(10);

/// The most addresses of a host that are tried.
const MOST: usize = 8;

/// How to connect with TLS, and the name that the certificate must have.
type Tls = (Arc<ClientConfig>, ServerName<'static>);

/// A server: where it listens, and how its certificate is verified.
#[derive(Debug, Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    /// The `Host` header.
    authority: HeaderValue,
    tls: Option<Tls>,
    way: Way,
}

/// The way to a server.
#[derive(Debug, Clone)]
pub enum Way {
    /// The system's resolver finds it.
    Resolver,
    /// It is at one of these addresses.
    Addresses(Vec<SocketAddr>),
    /// An HTTP proxy at one of these addresses leads to it, for these credentials (`Proxy-Authorization`).
    Proxy(Vec<SocketAddr>, Option<HeaderValue>),
}

impl Endpoint {
    /// The server of a URL with the scheme `http` or `https`. `named` replaces the URL's host in the certificate.
    ///
    /// # Errors
    /// What is wrong with the URL or the name, phrased to follow it.
    pub fn new(url: &Uri, trust: &tls::Trust, named: Option<&str>) -> Result<Endpoint, String> {
        let (Some(authority), Some(host)) = (url.authority(), url.host()) else {
            return Err("is not a URL with a host".into());
        };
        // An IPv6 address is in brackets (RFC 3986 section 3.2.2).
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (port, tls) = match url.scheme_str() {
            Some("http") => (80, None),
            Some("https") => {
                let named = named.unwrap_or(&host);
                let name = tls::server_name(named).ok_or_else(|| format!("has no valid host: {named:?}"))?;
                let config = tls::Client::new(trust, &[b"http/1.1"]).config();
                (443, Some((config.map_err(|error| error.to_string())?, name)))
            }
            _ => return Err("begins with neither http:// nor https://".into()),
        };
        let authority = authority.as_str();
        // Not what precedes an `@` (RFC 9110 section 4.2.4).
        let authority = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
        Ok(Endpoint {
            host,
            port: url.port_u16().unwrap_or(port),
            authority: HeaderValue::from_str(authority).map_err(|error| error.to_string())?,
            tls,
            way: Way::Resolver,
        })
    }

    /// The same server, reached in another way.
    #[must_use]
    pub fn by(self, way: Way) -> Endpoint {
        Endpoint { way, ..self }
    }

    /// Names the server in a request whose URI is a path.
    pub(crate) fn address(&self, request: &mut Request<Full<Bytes>>) -> Result<(), Error> {
        request.headers_mut().insert(HOST, self.authority.clone());
        if let (None, Way::Proxy(_, authorization)) = (&self.tls, &self.way) {
            // RFC 9112 section 3.2.2.
            let url = Uri::try_from(format!("http://{}{}", self.name(), request.uri()));
            *request.uri_mut() = url.map_err(|error| self.unreachable(io::Error::other(error)))?;
            authorize(request, authorization.as_ref());
        }
        Ok(())
    }

    /// Connects, and drives the connection for as long as it is in use.
    pub(crate) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        // Boxed, since every request's future would contain it, TLS and all: also one that has long been connected, such
        // as that of a watch, of which there may be hundreds.
        match timeout(CONNECT, Box::pin(self.connect_patiently())).await {
            Ok(connected) => connected,
            Err(_) => Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        }
    }

    async fn connect_patiently(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let connected = match &self.way {
            Way::Resolver => match lookup_host((&*self.host, self.port)).await {
                Ok(found) => connect_to_one(&found.take(MOST).collect::<Vec<_>>()).await,
                Err(error) => Err(error),
            },
            Way::Addresses(addresses) | Way::Proxy(addresses, _) => connect_to_one(addresses).await,
        };
        let stream = connected.map_err(|error| self.unreachable(error))?;
        // Requests are small, and their sender waits for the answer.
        stream
            .set_nodelay(true)
            .map_err(|error| self.unreachable(error))?;
        match (&self.tls, &self.way) {
            (None, _) => converse(stream).await,
            (Some(tls), Way::Proxy(_, authorization)) => {
                let tunnel = self.tunnel(stream, authorization.as_ref()).await?;
                self.secure(tls, tunnel).await
            }
            (Some(tls), _) => self.secure(tls, stream).await,
        }
    }

    async fn secure(
        &self,
        (config, name): &Tls,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<SendRequest<Full<Bytes>>, Error> {
        let connector = TlsConnector::from(Arc::clone(config));
        let secured = connector.connect(name.clone(), stream).await;
        converse(secured.map_err(|error| self.unreachable(error))?).await
    }

    /// Asks the proxy on the other side for a connection to the server (RFC 9110 section 9.3.6).
    async fn tunnel(
        &self,
        stream: TcpStream,
        authorization: Option<&HeaderValue>,
    ) -> Result<TokioIo<Upgraded>, Error> {
        let target = match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        };
        let request = Request::connect(&*target)
            .header(HOST, &*target)
            .body(Full::default());
        let mut request = request.map_err(|error| self.unreachable(io::Error::other(error)))?;
        authorize(&mut request, authorization);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        let response = sender.send_request(request).await?;
        let status = response.status();
        if !status.is_success() {
            let server = target;
            return Err(Error::Proxy { server, status });
        }
        Ok(TokioIo::new(upgrade::on(response).await?))
    }

    fn name(&self) -> &str {
        self.authority.to_str().unwrap_or_default()
    }

    fn unreachable(&self, source: io::Error) -> Error {
        let server = match self.way {
            Way::Proxy(..) => format!("{} through the proxy", self.name()),
            _ => self.name().to_owned(),
        };
        Error::Connect { server, source }
    }
}

fn authorize(request: &mut Request<Full<Bytes>>, authorization: Option<&HeaderValue>) {
    if let Some(authorization) = authorization {
        request
            .headers_mut()
            .insert(PROXY_AUTHORIZATION, authorization.clone());
    }
}

/// Connects to the first address that accepts. Each has its share of the time.
async fn connect_to_one(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut problem = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let share = CONNECT / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    for address in addresses {
        problem = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
    }
    Err(problem)
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, Error> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the sender and the last body. Its errors are those of requests and bodies.
    tokio::spawn(connection);
    Ok(sender)
}
