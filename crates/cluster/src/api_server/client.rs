//! Asks an API server.

use std::sync::Arc;
use std::time::Duration;

use dnsweir_config::tls::Authorities;
use dnsweir_http::{Endpoint, Lines, collect};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::access::Access;
use super::credentials::{Credentials, Lease};
use super::objects::{Event, Status};
use crate::config::Kubeconfig;
use crate::plain_text::with_causes;

/// The most bytes of an answer: a page of a list of the largest objects that an API server stores.
const ANSWER_MAXIMUM: usize = 64 << 20;

/// The most bytes of an event, which has one object.
const EVENT_MAXIMUM: usize = 16 << 20;

/// The most bytes that are read of a refusal.
const REFUSAL_MAXIMUM: usize = 64 << 10;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A client of one API server. Clones have the same credentials.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    server: Server,
    endpoint: Endpoint,
    /// What precedes every path; empty, or beginning with a slash.
    prefix: String,
    credentials: Credentials,
    lease: Option<Lease>,
    namespace: String,
}

/// What tells one API server from that of another cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    url: Uri,
    name: Option<String>,
    authorities: Option<Authorities>,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none over HTTP.
    #[error("{}", with_causes(.0))]
    Http(#[from] dnsweir_http::Error),
    /// It has not come within this time.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// A name in it has characters that no URL has.
    #[error("{0:?} is not a path")]
    Path(String),
    /// There are no credentials to ask with.
    #[error("{0}")]
    Credentials(String),
    /// The API server refuses it.
    #[error("{0}")]
    Refused(#[from] Status),
    /// It has another form.
    #[error("it sent something that is not a Kubernetes {0}")]
    Unread(&'static str),
}

impl Client {
    /// A client for a kubeconfig, or for the pod's service account.
    ///
    /// # Errors
    /// What is missing or wrong, with the file's name.
    pub async fn connect(kubeconfig: Option<&Kubeconfig>) -> Result<Client, String> {
        let access = match kubeconfig {
            None => Access::of_pod().map_err(|problem| format!("there is no service account: {problem}"))?,
            Some(kubeconfig) => {
                let access = Access::of_kubeconfig(kubeconfig).await;
                access.map_err(|problem| format!("{}: {problem}", kubeconfig.path.display()))?
            }
        };
        let server = access.server.clone();
        let endpoint = Endpoint::new(&server, &access.trust, access.server_name.as_deref());
        Ok(Client(Arc::new(Inner {
            endpoint: endpoint.map_err(|problem| format!("the server {server} {problem}"))?,
            prefix: server.path().trim_end_matches('/').to_owned(),
            server: Server {
                url: server,
                name: access.server_name,
                authorities: access.trust.authorities,
            },
            credentials: access.credentials,
            lease: access.lease,
            namespace: access.namespace,
        })))
    }

    pub(super) fn server(&self) -> &Server {
        &self.0.server
    }

    /// Whether another client is needed: the certificate of this one, which a program printed, expires or is
    /// refused.
    pub(super) fn is_spent(&self) -> bool {
        self.0.lease.as_ref().is_some_and(Lease::is_over)
    }

    /// The namespace of the pod, or of the kubeconfig's context.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Begins to ask, over a connection of its own.
    pub fn session(&self) -> Session {
        Session {
            client: self.clone(),
            http: dnsweir_http::Session::new(self.0.endpoint.clone()),
        }
    }
}

/// A connection to an API server, for one request at a time.
pub struct Session {
    client: Client,
    http: dnsweir_http::Session,
}

impl Session {
    /// Gets an object or a list.
    ///
    /// # Errors
    /// If there is no answer, or another one.
    pub async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, Error> {
        let response = self.send(Method::GET, path, None).await?;
        let octets = collect(response.into_body(), ANSWER_MAXIMUM).await?;
        serde_json::from_slice(&octets).map_err(|_| Error::Unread("object"))
    }

    /// Changes an object by a patch of this media type.
    ///
    /// # Errors
    /// If the API server does not confirm it.
    pub async fn patch(&mut self, path: &str, kind: &'static str, patch: &Value) -> Result<(), Error> {
        let body = (HeaderValue::from_static(kind), patch.to_string());
        let response = self.send(Method::PATCH, path, Some(body)).await?;
        collect(response.into_body(), ANSWER_MAXIMUM).await?;
        Ok(())
    }

    /// Begins to watch what a path names.
    pub(super) async fn watch(&mut self, path: &str) -> Result<Watch, Error> {
        let response = self.send(Method::GET, path, None).await?;
        Ok(Watch(Lines::new(response.into_body(), EVENT_MAXIMUM)))
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<(HeaderValue, String)>,
    ) -> Result<Response<Incoming>, Error> {
        let Inner {
            prefix,
            credentials,
            lease,
            ..
        } = &*self.client.0;
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        let path = format!("{prefix}{path}");
        *request.uri_mut() = path.parse().map_err(|_| Error::Path(path))?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, JSON);
        if let Some(authorization) = credentials.header().await.map_err(Error::Credentials)? {
            headers.insert(AUTHORIZATION, authorization);
        }
        if let Some((kind, text)) = body {
            headers.insert(CONTENT_TYPE, kind);
            *request.body_mut() = Full::new(Bytes::from(text));
        }
        let response = self.http.send(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::UNAUTHORIZED {
            credentials.forget();
            lease.iter().for_each(Lease::refuse);
        }
        let octets = collect(response.into_body(), REFUSAL_MAXIMUM).await?;
        let refusal = serde_json::from_slice(&octets).ok();
        let refusal = refusal.filter(|refusal: &Status| refusal.code != 0);
        Err(refusal
            .unwrap_or_else(|| Status::of(status, &String::from_utf8_lossy(&octets)))
            .into())
    }
}

/// The events of a watch.
pub(super) struct Watch(Lines);

impl Watch {
    /// The next event; `None` if the API server has ended the watch. Dropping the future loses nothing.
    pub async fn next<K: DeserializeOwned>(&mut self) -> Result<Option<Event<K>>, Error> {
        let Some(line) = self.0.next().await? else {
            return Ok(None);
        };
        match serde_json::from_slice(&line) {
            Ok(event) => Ok(Some(event)),
            Err(_) => Err(Error::Unread("event")),
        }
    }
}
