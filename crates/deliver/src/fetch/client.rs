//! The HTTPS client: one request per location.

use std::fs;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use dnsweir_http::Chunks;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED,
};
use hyper::{Request, Response, StatusCode};
use tokio::time::timeout;

use super::copies::{Copies, Description, in_memory};
use super::fetch_error::FetchError;
use crate::agent::{Agent, Resolver, Route, Upstreams};
use crate::config::{Data, Location};
use crate::tls::{Authorities, Trust};

/// Fetches locations.
#[derive(Debug, Clone)]
pub struct Client {
    upstreams: Upstreams,
    copies: Option<Copies>,
}

impl Client {
    /// Creates a client that resolves hosts through `upstreams` and keeps what it gets in `copies`. Without
    /// copies, everything is sent each time.
    pub fn new(upstreams: Upstreams, copies: Option<Copies>) -> Client {
        Client { upstreams, copies }
    }

    /// Returns the copy kept of the last fetch, however old.
    pub fn last_good(&self, location: &Location) -> Option<Arc<Data>> {
        let copies = self.copies.as_ref()?;
        copies.read(location, &copies.describe(location)?)
    }

    /// Fetches the current contents of a location.
    ///
    /// # Errors
    /// When the server cannot be reached or trusted, or sends something else, too much, or too slowly.
    pub async fn fetch(&self, location: &Location) -> Result<Arc<Data>, FetchError> {
        match timeout(location.access.time, self.fetch_patiently(location)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::TooSlow(location.access.time)),
        }
    }

    async fn fetch_patiently(&self, location: &Location) -> Result<Arc<Data>, FetchError> {
        let copy = self.copies.as_ref().and_then(|copies| copies.describe(location));
        let response = self.ask(location, copy.as_ref()).await?;
        let (StatusCode::NOT_MODIFIED, Some(known)) = (response.status(), &copy) else {
            return self.receive(location, response).await;
        };
        let copies = self.copies.as_ref();
        match copies.and_then(|copies| copies.read(location, known)) {
            Some(data) => Ok(data),
            // The copy is damaged: fetch again without it.
            None => self.receive(location, self.ask(location, None).await?).await,
        }
    }

    /// Requests the contents, unless the copy is still current.
    async fn ask(
        &self,
        location: &Location,
        copy: Option<&Description>,
    ) -> Result<Response<Incoming>, FetchError> {
        let mut request = Request::new(Full::default());
        *request.headers_mut() = headers(location)?;
        if let Some(copy) = copy {
            request.headers_mut().extend(conditions(copy));
        }
        let mut agent = Agent::new(self.route(location)?);
        let (_, response) = agent.send(&location.url, request).await?;
        Ok(response)
    }

    /// Made for each request, to read the current CA certificates from their file.
    fn route(&self, location: &Location) -> Result<Route, FetchError> {
        let host = location.url.host_str().unwrap_or_default();
        let hosts = [Some(&location.url), location.access.proxy.as_ref()];
        let hosts = hosts.into_iter().flatten();
        Ok(Route {
            resolver: Resolver::Upstreams(self.upstreams.clone()),
            address: location.access.address.map(|address| (host.to_owned(), address)),
            written: Some(hosts.filter_map(|url| Some(url.host_str()?.to_owned())).collect()),
            proxy: location.access.proxy.clone(),
            trust: Trust {
                authorities: location.access.ca.as_deref().map(authorities).transpose()?,
                ..Trust::default()
            },
            keeps_scheme: true,
        })
    }

    /// Receives the contents, and keeps a copy.
    async fn receive(
        &self,
        location: &Location,
        response: Response<Incoming>,
    ) -> Result<Arc<Data>, FetchError> {
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let header = |name: HeaderName| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let mut description = Description {
            url: location.url.to_string(),
            etag: header(ETAG),
            last_modified: header(LAST_MODIFIED),
            sha256: String::new(),
        };
        let mut kept = match &self.copies {
            Some(copies) => Some(copies.begin(location)?),
            None => None,
        };
        let mut file = match &kept {
            Some(kept) => kept.file.try_clone()?,
            None => in_memory()?,
        };
        let mut chunks = Chunks::new(response.into_body(), location.access.size);
        while let Some(chunk) = chunks.next().await? {
            file.write_all(&chunk)?;
        }
        file.rewind()?;
        let data = Data::read(file, location.access.size as u64)?;
        description.sha256 = data.digest();
        if let (Some(copies), Some(kept)) = (&self.copies, kept.take()) {
            copies.keep(location, kept, &description)?;
        }
        Ok(data)
    }
}

/// Returns the headers of every request. The token is read each time, since it may have been renewed.
fn headers(location: &Location) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    // Digests are over what is sent.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(file) = &location.access.token {
        let wrong = |problem: String| FetchError::File {
            file: file.clone(),
            problem,
        };
        let token = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let mut value = value.map_err(|_| wrong("this is not a token".into()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Returns the headers that make the request conditional on a change of this copy (RFC 9110 section 13.1).
fn conditions(copy: &Description) -> HeaderMap {
    let named = [
        (IF_NONE_MATCH, &copy.etag),
        (IF_MODIFIED_SINCE, &copy.last_modified),
    ];
    let values = named.into_iter().filter_map(|(name, value)| {
        let value = HeaderValue::from_str(value.as_deref()?).ok()?;
        Some((name, value))
    });
    values.collect()
}

/// Reads the CA certificates in a file.
fn authorities(file: &Path) -> Result<Authorities, FetchError> {
    let wrong = |problem: String| FetchError::File {
        file: file.to_owned(),
        problem,
    };
    let text = fs::read(file).map_err(|error| wrong(error.to_string()))?;
    Authorities::from_pem(&text).map_err(|problem| wrong(format!("it {problem}")))
}
