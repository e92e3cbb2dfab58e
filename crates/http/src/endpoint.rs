//! Connects to a server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Uri;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderValue;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::Error;
use dnsweir_config::tls;

/// How long connecting may take, with TLS.
const CONNECT: Duration = Duration::from_secs(10);

/// A server: where it listens, and how its certificate is verified.
#[derive(Debug, Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    /// The `Host` header.
    pub(crate) authority: HeaderValue,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Endpoint {
    /// The server of a URL with the scheme `http` or `https`. `named` replaces the URL's host in the certificate.
    ///
    /// # Errors
    /// What is wrong with the URL or the name, phrased to follow it.
    pub fn new(url: &Uri, trust: &tls::Trust, named: Option<&str>) -> Result<Endpoint, String> {
        let (Some(authority), Some(host)) = (url.authority(), url.host()) else {
            return Err("is no URL with a host".into());
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
        })
    }

    /// Connects, and drives the connection for as long as it is in use.
    pub(crate) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let stream = match timeout(CONNECT, TcpStream::connect((&*self.host, self.port))).await {
            Ok(connected) => connected.map_err(|error| self.unreachable(error))?,
            Err(_) => return Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        };
        // Requests are small, and their sender waits for the answer.
        stream
            .set_nodelay(true)
            .map_err(|error| self.unreachable(error))?;
        let Some((config, name)) = &self.tls else {
            return converse(stream).await;
        };
        let connector = TlsConnector::from(Arc::clone(config));
        match timeout(CONNECT, connector.connect(name.clone(), stream)).await {
            Ok(Ok(stream)) => converse(stream).await,
            Ok(Err(error)) => Err(self.unreachable(error)),
            Err(_) => Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        }
    }

    fn unreachable(&self, source: io::Error) -> Error {
        let server = self.authority.to_str().unwrap_or_default().to_owned();
        Error::Connect { server, source }
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, Error> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the sender and the last body. Its errors are those of requests and bodies.
    tokio::spawn(connection);
    Ok(sender)
}
