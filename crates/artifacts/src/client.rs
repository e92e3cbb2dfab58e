//! A client of one repository, as far as modules need it:
//! <https://github.com/opencontainers/distribution-spec/blob/main/spec.md>.
//!
//! Every answer has a bound, and must go on. The caller limits the time of all together.

use std::time::Duration;

use bytes::Bytes;
use dnsweir_http::Chunks;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;
use tokio::time::timeout;
use url::Url;

use super::challenge::Challenge;
use super::error::{Error, Refusal};
use crate::agent::{self, Agent, Answer, Resolver, Route};
use crate::artifact::{self, Descriptor, LARGEST_MANIFEST, MANIFEST, checked};
use crate::config::spell_size;
use crate::job::{Host, Way};
use crate::registry::Credentials;
use crate::tls::{Authorities, Trust};

/// How long a host may be silent, and how long it may take to answer each part of a request of this many bytes.
const SILENCE: Duration = Duration::from_secs(30);
const PART: u32 = 4 << 20;

/// The largest list of referrers, token, and refusal that are read, in bytes.
const LARGEST_INDEX: usize = 4 << 20;
const LARGEST_TOKEN: usize = 64 << 10;
const LARGEST_REFUSAL: usize = 64 << 10;

/// The media type of a list of manifests.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Docker Hub's name in references, and that of its registry.
const DOCKER_HUB: [&str; 2] = ["docker.io", "index.docker.io"];

/// A client of a repository at a host.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    /// The URL of the repository, with a slash at its end.
    repository: Url,
    /// What a token must allow.
    scope: String,
    credentials: Option<Credentials>,
    authorization: Option<HeaderValue>,
    /// Whether that is a token, which expires.
    is_token: bool,
}

/// A list of manifests.
#[derive(Deserialize)]
struct Index {
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Returns the URL of a host.
///
/// # Errors
/// When its name is none.
pub fn url(host: &Host) -> Result<Url, String> {
    let scheme = if host.plain { "http" } else { "https" };
    let [hub, registry] = DOCKER_HUB;
    let name = if host.name == hub { registry } else { &*host.name };
    Url::parse(&format!("{scheme}://{name}/v2/")).map_err(|error| format!("it is not a host: {error}"))
}

/// Returns the way to hosts of which only those in `written` may have private addresses, or the servers that they
/// lead to. `None`: all may.
fn route(way: &Way, written: Option<Vec<String>>) -> Result<Route, String> {
    let authorities = way.ca.as_ref().map(|pem| {
        let read = Authorities::from_pem(pem.as_bytes());
        read.map_err(|problem| format!("the file of authorities (`ca`) {problem}"))
    });
    let proxy = way.proxy.as_deref().map(Url::parse);
    Ok(Route {
        resolver: Resolver::System,
        address: None,
        // A proxy decides itself.
        written: written.filter(|_| way.proxy.is_none()),
        proxy: proxy
            .transpose()
            .map_err(|error| format!("the proxy is not a URL: {error}"))?,
        trust: Trust {
            authorities: authorities.transpose()?,
            ..Trust::default()
        },
        keeps_scheme: false,
    })
}

/// Returns the header that presents credentials.
fn header(credentials: &Credentials) -> Option<HeaderValue> {
    agent::basic(&credentials.user, &credentials.password)
}

impl Client {
    /// Begins to ask a host for these actions on a repository: "pull" or "pull,push". Only hosts in `written` may have
    /// private addresses; `None`: all may.
    ///
    /// # Errors
    /// When it cannot be reached, or grants nothing for the credentials.
    pub async fn begin(
        host: &Host,
        way: &Way,
        repository: &str,
        actions: &str,
        written: Option<Vec<String>>,
    ) -> Result<Client, Error> {
        let url = url(host)?.join(&format!("{repository}/"));
        let mut client = Client {
            agent: Agent::new(route(way, written)?),
            repository: url.map_err(|error| format!("it is not a repository: {error}"))?,
            scope: format!("repository:{repository}:{actions}"),
            credentials: host.credentials.clone(),
            authorization: None,
            is_token: false,
        };
        let url = client.url("/v2/")?;
        let request = request(Method::GET, (ACCEPT, "*/*"), Bytes::new());
        let answer = client.send_once(&url, request).await?;
        client.authorize(answer).await?;
        Ok(client)
    }

    /// Returns the URL of something in the repository.
    pub fn url(&self, path: &str) -> Result<Url, Error> {
        let url = self.repository.join(path);
        url.map_err(|error| format!("{path:?} is not a path: {error}").into())
    }

    /// Returns the digest of the manifest with this tag.
    ///
    /// # Errors
    /// When there is none, or it is refused.
    pub async fn digest(&mut self, tag: &str) -> Result<String, Error> {
        let url = self.url(&format!("manifests/{tag}"))?;
        let request = request(Method::HEAD, (ACCEPT, MANIFEST), Bytes::new());
        let (head, _) = self.send(&url, request).await?.1.into_parts();
        let digest = head.headers.get("docker-content-digest");
        match digest.and_then(|digest| digest.to_str().ok()) {
            Some(digest) if head.status.is_success() => Ok(digest.to_owned()),
            // The header is optional, and a refused HEAD has no text.
            _ => Ok(artifact::digest(&self.manifest(tag).await?)),
        }
    }

    /// Returns the manifest with this tag or digest.
    ///
    /// # Errors
    /// When there is none, or it is refused or too large.
    pub async fn manifest(&mut self, reference: &str) -> Result<Bytes, Error> {
        let url = self.url(&format!("manifests/{reference}"))?;
        let request = request(Method::GET, (ACCEPT, MANIFEST), Bytes::new());
        let (_, response) = self.ask(&url, request).await?;
        let manifest = collect(response.into_body(), LARGEST_MANIFEST, "its manifest").await?;
        if reference.contains(':') {
            is_of(reference, &manifest)?;
        }
        Ok(manifest)
    }

    /// Downloads a part of an artifact, and checks its size and digest.
    ///
    /// # Errors
    /// When there is none, it is refused, or is another.
    pub async fn blob(&mut self, digest: &str, size: usize) -> Result<Bytes, Error> {
        let url = self.url(&format!("blobs/{}", checked(digest)?))?;
        let request = request(Method::GET, (ACCEPT, "*/*"), Bytes::new());
        let (_, response) = self.ask(&url, request).await?;
        let octets = collect(response.into_body(), size, digest).await?;
        is_of(digest, &octets)?;
        Ok(octets)
    }

    /// Returns a list of manifests, and the URL of its next page.
    ///
    /// # Errors
    /// When there is none, or it is refused or too large.
    pub async fn index(&mut self, url: &Url) -> Result<(Vec<Descriptor>, Option<Url>), Error> {
        let request = request(Method::GET, (ACCEPT, INDEX), Bytes::new());
        let (at, response) = self.ask(url, request).await?;
        let next = next_page(&at, response.headers());
        let index = collect(response.into_body(), LARGEST_INDEX, "a list").await?;
        let index: Index =
            serde_json::from_slice(&index).map_err(|error| format!("a list is not valid: {error}"))?;
        Ok((index.manifests.unwrap_or_default(), next))
    }

    /// Uploads a part of an artifact, unless the repository has it.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn upload(&mut self, octets: Bytes) -> Result<(), Error> {
        let digest = artifact::digest(&octets);
        let url = self.url(&format!("blobs/{digest}"))?;
        let known = request(Method::HEAD, (ACCEPT, "*/*"), Bytes::new());
        if self.send(&url, known).await?.1.status() == StatusCode::OK {
            return Ok(());
        }
        // Some registries insist on the length.
        let begin = request(Method::POST, (CONTENT_LENGTH, "0"), Bytes::new());
        let (at, begun) = self.ask(&self.url("blobs/uploads/")?, begin).await?;
        let (head, _) = begun.into_parts();
        let location = head.headers.get(LOCATION);
        let mut url = location
            .and_then(|location| agent::at(&at, location))
            .ok_or_else(|| "it names no place to upload to".to_owned())?;
        url.query_pairs_mut().append_pair("digest", &digest);
        let whole = request(Method::PUT, (CONTENT_TYPE, "application/octet-stream"), octets);
        self.ask(&url, whole).await?;
        Ok(())
    }

    /// Stores a manifest under a tag.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn store(&mut self, tag: &str, manifest: Bytes) -> Result<(), Error> {
        let url = self.url(&format!("manifests/{tag}"))?;
        self.ask(&url, request(Method::PUT, (CONTENT_TYPE, MANIFEST), manifest))
            .await?;
        Ok(())
    }

    /// Sends a request that must succeed.
    async fn ask(&mut self, url: &Url, request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        let answer = self.send(url, request).await?;
        succeeded(url, answer).await
    }

    /// Sends a request, once more if its token has expired, or if the registry wants to know who asks only here.
    async fn send(&mut self, url: &Url, request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        let answer = self.send_once(url, request.clone()).await?;
        let is_refused = self.authorization.is_some() && !self.is_token;
        if answer.1.status() != StatusCode::UNAUTHORIZED || is_refused {
            return Ok(answer);
        }
        self.authorize(answer).await?;
        self.send_once(url, request).await
    }

    /// Sends a request, with the credentials only if it goes to the registry.
    async fn send_once(&mut self, url: &Url, mut request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        if let Some(authorization) = &self.authorization
            && url.origin() == self.repository.origin()
        {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let length = request.body().size_hint().upper().unwrap_or_default();
        let parts = u32::try_from(length / u64::from(PART)).unwrap_or(u32::MAX);
        let time = SILENCE.saturating_mul(parts.saturating_add(1));
        match timeout(time, self.agent.send(url, request)).await {
            Ok(answer) => answer.map_err(Error::Server),
            Err(_) => Err(Error::Silent(time)),
        }
    }

    /// Finds out from an answer how the registry wants to know who asks, and gets a token if it wants one.
    async fn authorize(&mut self, (at, response): Answer) -> Result<(), Error> {
        (self.authorization, self.is_token) = (None, false);
        let (head, _) = response.into_parts();
        // Another server, to which the registry redirected, does not decide where its credentials go.
        if at.origin() != self.repository.origin() {
            return Ok(());
        }
        let challenges = head.headers.get_all(WWW_AUTHENTICATE).iter();
        let challenges = challenges.filter_map(|header| header.to_str().ok());
        let challenges: Vec<Challenge> = challenges.flat_map(Challenge::read).collect();
        let of = |scheme: &str| challenges.iter().find(|one| one.scheme == scheme);
        let token_server = of("bearer").and_then(|bearer| Some((bearer, bearer.parameter("realm")?)));
        if let Some((bearer, realm)) = token_server {
            let token = self.token(realm, bearer.parameter("service")).await?;
            (self.authorization, self.is_token) = (Some(token), true);
        } else if of("basic").is_some() {
            self.authorization = self.credentials.as_ref().and_then(header);
        }
        Ok(())
    }

    /// Gets a token: <https://distribution.github.io/distribution/spec/auth/token/>.
    async fn token(&mut self, realm: &str, service: Option<&str>) -> Result<HeaderValue, Error> {
        let mut url = Url::parse(realm)
            .map_err(|error| format!("it has a token server {realm:?} that is not a URL: {error}"))?;
        if url.scheme() != "https" && self.repository.scheme() == "https" {
            return Err(format!("its token server {realm:?} is not asked over https").into());
        }
        url.query_pairs_mut()
            .append_pair("scope", &self.scope)
            .extend_pairs(service.map(|service| ("service", service)));
        let mut request = request(Method::GET, (ACCEPT, "application/json"), Bytes::new());
        if let Some(credentials) = self.credentials.as_ref().and_then(header) {
            request.headers_mut().insert(AUTHORIZATION, credentials);
        }
        let answer = self.send_once(&url, request).await?;
        let (_, response) = succeeded(&url, answer).await?;
        let token = collect(response.into_body(), LARGEST_TOKEN, "a token").await?;
        // Not the parser's message: it may quote the token.
        let token = serde_json::from_slice(&token).ok();
        let token = token.and_then(|Token { token, access_token }| {
            let token = token.filter(|token| !token.is_empty()).or(access_token)?;
            HeaderValue::try_from(format!("Bearer {token}")).ok()
        });
        let mut token = token.ok_or_else(|| "its token server sent no token".to_owned())?;
        token.set_sensitive(true);
        Ok(token)
    }
}

fn request(method: Method, (name, value): (HeaderName, &'static str), body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    request
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
    request
}

/// Returns an answer that is a success; otherwise the error in it. The URL is the one first asked: that of a redirect may
/// contain a password.
async fn succeeded(url: &Url, (at, response): Answer) -> Result<Answer, Error> {
    let status = response.status();
    if status.is_success() {
        return Ok((at, response));
    }
    // The status alone says something, too.
    let said = collect(response.into_body(), LARGEST_REFUSAL, "a refusal").await;
    Err(Refusal::new(url, status, &said.unwrap_or_default()).into())
}

/// Reads a body of at most `most` bytes, of what is called `what`.
async fn collect(body: Incoming, most: usize, what: &str) -> Result<Bytes, Error> {
    // All at once: growing would take more memory than this process may have.
    let mut octets = Vec::with_capacity(most);
    let mut chunks = Chunks::new(body, most);
    loop {
        match timeout(SILENCE, chunks.next()).await {
            Ok(Ok(Some(chunk))) => octets.extend_from_slice(&chunk),
            Ok(Ok(None)) => return Ok(octets.into()),
            Ok(Err(dnsweir_http::Error::TooLarge(most))) => {
                let most = spell_size(most);
                return Err(format!("{what} has more than {most}").into());
            }
            Ok(Err(error)) => return Err(agent::Error::from(error).into()),
            Err(_) => return Err(Error::Silent(SILENCE)),
        }
    }
}

fn is_of(digest: &str, octets: &[u8]) -> Result<(), Error> {
    let actual = artifact::digest(octets);
    match actual == digest {
        true => Ok(()),
        false => Err(format!("it sent something with the digest {actual} for {digest}").into()),
    }
}

/// Returns the target of a `Link` to the next page (RFC 8288 section 3).
fn next_page(at: &Url, headers: &HeaderMap) -> Option<Url> {
    let links = headers.get_all(LINK).iter();
    let links = links.filter_map(|header| header.to_str().ok());
    let mut links = links
        .flat_map(|header| header.split('<').skip(1))
        .filter_map(|link| link.split_once('>'));
    let is_next = |parameter: &str| {
        let (name, value) = parameter.split_once('=').unwrap_or_default();
        let mut values = value.trim_matches(['"', ',', ' ']).split(' ');
        name.trim().eq_ignore_ascii_case("rel") && values.any(|value| value == "next")
    };
    let (target, _) = links.find(|(_, parameters)| parameters.split(';').any(is_next))?;
    at.join(target).ok()
}

#[cfg(test)]
pub(super) mod tests;
