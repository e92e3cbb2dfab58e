//! Sends requests to servers, and follows redirects where they may lead.
//!
//! Servers name other servers: by redirects, and registries also by token servers, upload locations and pages. A
//! [`Route`] decides for every connection whether the server may be contacted, by the address that is then connected
//! to. Credentials stay with the server that they are for.

use std::collections::HashMap;

use dnsweir_http::Session;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderValue, LOCATION};
use hyper::{Request, Response, StatusCode, Uri};
use url::{Origin, Position, Url};

mod error;
mod route;
#[cfg(test)]
mod tests;
mod upstreams;

pub use error::Error;
pub use route::{Resolver, Route, basic};
pub use upstreams::{Found, Upstreams, addresses_of};

/// The most redirects that are followed for one request.
const REDIRECTS: usize = 5;

/// The most idle connections.
const IDLE: usize = 8;

/// A response, and the URL that it is from, after redirects.
pub type Answer = (Url, Response<Incoming>);

/// Sends requests one at a time, over connections that it keeps.
#[derive(Debug)]
pub struct Agent {
    route: Route,
    sessions: HashMap<Origin, Session>,
}

impl Agent {
    /// Creates one without connections.
    pub fn new(route: Route) -> Agent {
        Agent {
            route,
            sessions: HashMap::new(),
        }
    }

    /// Sends a request to a URL, when the body of the response before has been read or dropped. Returns the response,
    /// after redirects, whatever its status.
    ///
    /// # Errors
    /// If a server cannot be reached or may not be contacted, or redirects wrongly.
    pub async fn send(&mut self, url: &Url, request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        let (mut url, mut request) = (url.clone(), request);
        for _ in 0..=REDIRECTS {
            let response = self.send_once(&url, request.clone()).await?;
            let Some(location) = redirect(&request, &response) else {
                return Ok((url, response));
            };
            let next = at(&url, location)
                .ok_or_else(|| Error::Refused("it redirects to something that is not a URL".into()))?;
            let is_encrypted = url.scheme() == "https";
            if next.scheme() != url.scheme() && (is_encrypted || self.route.keeps_scheme) {
                return Err(Error::Refused("it redirects to another scheme".into()));
            }
            if next.origin() != url.origin() {
                // RFC 9110 section 15.4.
                request.headers_mut().remove(AUTHORIZATION);
            }
            url = next;
        }
        Err(Error::Refused("too many redirects".into()))
    }

    async fn send_once(
        &mut self,
        url: &Url,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Error> {
        let path = url[Position::BeforePath..Position::AfterQuery].parse::<Uri>();
        *request.uri_mut() =
            path.map_err(|error| Error::Refused(format!("{:?} is not a path: {error}", url.path())))?;
        let mut session = match self.sessions.remove(&url.origin()) {
            Some(session) => session,
            None => Session::new(self.route.endpoint(url).await?),
        };
        let response = session.send(request).await?;
        if self.sessions.len() == IDLE {
            self.sessions.clear();
        }
        self.sessions.insert(url.origin(), session);
        Ok(response)
    }
}

/// Returns where a response redirects this request to, if it does.
fn redirect<'a>(request: &Request<Full<Bytes>>, response: &'a Response<Incoming>) -> Option<&'a HeaderValue> {
    let follows = match response.status() {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        // Other methods would become GET.
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            request.method().is_safe()
        }
        _ => false,
    };
    response.headers().get(LOCATION).filter(|_| follows)
}

/// Resolves a `Location`, which may be relative to the URL of its response (RFC 9110 section 10.2.2).
pub fn at(url: &Url, location: &HeaderValue) -> Option<Url> {
    url.join(str::from_utf8(location.as_bytes()).ok()?).ok()
}
