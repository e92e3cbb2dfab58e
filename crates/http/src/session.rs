//! Sends requests over one connection.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, Response};

use super::endpoint::Endpoint;
use super::error::Error;

/// What requests call this program.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("dnsweir/", env!("CARGO_PKG_VERSION")));

/// A connection to a server, made when first needed, for one request at a time.
#[derive(Debug)]
pub struct Session {
    endpoint: Endpoint,
    idle: Option<SendRequest<Full<Bytes>>>,
}

impl Session {
    /// Does not connect yet.
    pub fn new(endpoint: Endpoint) -> Session {
        Session { endpoint, idle: None }
    }

    /// Sends a request whose URI is a path. The body of the answer before it has been read to its end or
    /// dropped.
    ///
    /// # Errors
    /// If there is no connection, or no answer on it.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        let mut request = request;
        self.endpoint.address(&mut request)?;
        request.headers_mut().insert(USER_AGENT, AGENT);
        if let Some(mut sender) = self.idle.take()
            && sender.ready().await.is_ok()
        {
            // A server may close a connection at any time, also while a request is on its way. What changes nothing
            // there is asked again (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1).
            let again = request.method().is_safe().then(|| request.clone());
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.idle = Some(sender);
                    return Ok(response);
                }
                Err(mut failed) => match failed.take_message().or(again) {
                    Some(unanswered) => request = unanswered,
                    None => return Err(failed.into_error().into()),
                },
            }
        }
        let mut sender = self.endpoint.connect().await?;
        let response = sender.send_request(request).await?;
        self.idle = Some(sender);
        Ok(response)
    }
}
