//! The HTTPS client: one request per location.

use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED,
};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Proxy, Response, StatusCode};
use tokio::time::timeout;

use super::copies::{Copies, Description, in_memory};
use super::fetch_error::FetchError;
use super::upstreams::{NOT_WRITTEN, Resolver, Upstreams, is_inside};
use crate::config::{Data, Location};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// The most redirects that are followed for one request.
const REDIRECTS: usize = 5;

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
        dnsweir_config::tls::install_provider();
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
        match timeout(location.time, self.fetch_patiently(location)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::TooSlow(location.time)),
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
    async fn ask(&self, location: &Location, copy: Option<&Description>) -> Result<Response, FetchError> {
        let mut headers = headers(location)?;
        if let Some(copy) = copy {
            headers.extend(conditions(copy));
        }
        let request = self.connector(location)?.get(location.url.clone());
        Ok(request.headers(headers).send().await?)
    }

    /// Built for each request, to read the current CA certificates from their file.
    fn connector(&self, location: &Location) -> Result<reqwest::Client, FetchError> {
        let written = written_hosts(location);
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT)
            .redirect(redirects(location.url.scheme().to_owned(), written.clone()))
            .user_agent(concat!("dnsweir/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Resolver {
                upstreams: self.upstreams.clone(),
                written,
            });
        if let (Some(address), Some(host)) = (location.address, location.url.host_str()) {
            builder = builder.resolve(host, (address, 0).into());
        }
        if let Some(proxy) = &location.proxy {
            builder = builder.proxy(Proxy::all(proxy.clone())?);
        }
        if let Some(file) = &location.ca {
            builder = builder.tls_certs_only(authorities(file)?);
        }
        Ok(builder.build()?)
    }

    /// Receives the contents, and keeps a copy.
    async fn receive(&self, location: &Location, mut response: Response) -> Result<Arc<Data>, FetchError> {
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
        let largest = location.size as u64;
        if response.content_length().is_some_and(|length| length > largest) {
            return Err(FetchError::TooLarge(location.size));
        }
        let mut kept = match &self.copies {
            Some(copies) => Some(copies.begin(location)?),
            None => None,
        };
        let mut file = match &kept {
            Some(kept) => kept.file.try_clone()?,
            None => in_memory()?,
        };
        let mut octets = 0;
        while let Some(chunk) = response.chunk().await? {
            octets += chunk.len() as u64;
            if octets > largest {
                return Err(FetchError::TooLarge(location.size));
            }
            file.write_all(&chunk)?;
        }
        file.rewind()?;
        let data = Data::read(file, largest)?;
        description.sha256 = data.digest();
        if let (Some(copies), Some(kept)) = (&self.copies, kept.take()) {
            copies.keep(location, kept, &description)?;
        }
        Ok(data)
    }
}

/// Returns the hosts in the configuration: the server's, and the proxy's.
fn written_hosts(location: &Location) -> Vec<String> {
    let urls = [Some(&location.url), location.proxy.as_ref()]
        .into_iter()
        .flatten();
    urls.filter_map(|url| Some(url.host_str()?.to_owned())).collect()
}

/// Limits where a server may redirect: a few times, by the same scheme, and not to an address of a private
/// network, which we may reach but the server cannot: a cloud's metadata service, a kubelet. Names are
/// checked when they are resolved.
fn redirects(scheme: String, written: Vec<String>) -> Policy {
    Policy::custom(move |redirect| {
        let url = redirect.url();
        // An IPv6 address is in brackets (RFC 3986 section 3.2.2).
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let ip = host.parse::<IpAddr>().ok();
        let is_written = || written.iter().any(|host| url.host_str() == Some(host));
        if redirect.previous().len() > REDIRECTS {
            redirect.error("too many redirects")
        } else if url.scheme() != scheme {
            redirect.error("it redirects to another scheme")
        } else if let Some(ip) = ip.filter(|ip| is_inside(*ip) && !is_written()) {
            redirect.error(format!("it redirects to {ip}: {NOT_WRITTEN}"))
        } else {
            redirect.follow()
        }
    })
}

/// Returns the headers of every request. The token is read each time, since it may have been renewed.
fn headers(location: &Location) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::new();
    // Digests are over what is sent.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(file) = &location.token {
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
fn authorities(file: &Path) -> Result<Vec<Certificate>, FetchError> {
    let wrong = |problem: String| FetchError::File {
        file: file.to_owned(),
        problem,
    };
    let text = fs::read(file).map_err(|error: io::Error| wrong(error.to_string()))?;
    let found = Certificate::from_pem_bundle(&text).map_err(|error| wrong(error.to_string()))?;
    match found.is_empty() {
        true => Err(wrong("it has no certificates (PEM)".into())),
        false => Ok(found),
    }
}
