//! What all objects have in common, and the lists, events and refusals that they come in.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The metadata of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Its name.
    pub name: Option<String>,
    /// Its namespace, if it is in one.
    pub namespace: Option<String>,
    /// Its identifier, which no later object has.
    pub uid: Option<String>,
    /// Its version.
    pub resource_version: Option<String>,
    /// When it was created, as in RFC 3339.
    pub creation_timestamp: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    /// Its labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its annotations.
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Metadata {
    /// When the object was created, in seconds since 1970.
    pub fn created(&self) -> Option<i64> {
        let time: jiff::Timestamp = self.creation_timestamp.as_ref()?.parse().ok()?;
        Some(time.as_second())
    }

    /// Whether it is being deleted.
    pub(crate) fn is_ending(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// `NAMESPACE/NAME`, or the name of an object without a namespace.
    pub fn key(&self) -> Box<str> {
        let name = self.name.as_deref().unwrap_or_default();
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}").into(),
            None => name.into(),
        }
    }
}

/// An object with a specification, and perhaps a status.
#[derive(Debug, Clone, Deserialize)]
pub struct Object<Spec, Status = IgnoredAny> {
    /// Its metadata.
    #[serde(default)]
    pub metadata: Metadata,
    /// What it is to be.
    pub spec: Option<Spec>,
    /// What it is.
    pub status: Option<Status>,
}

/// Anything with metadata.
pub trait HasMetadata {
    /// The metadata.
    fn metadata(&self) -> &Metadata;
}

impl<Spec, Status> HasMetadata for Object<Spec, Status> {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct List<K> {
    #[serde(default)]
    pub metadata: ListMetadata,
    pub items: Option<Vec<K>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ListMetadata {
    pub resource_version: Option<String>,
    /// What to ask for the next page with.
    #[serde(rename = "continue")]
    pub next: Option<String>,
}

/// An event of a watch.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
pub(super) enum Event<K> {
    Added(K),
    Modified(K),
    Deleted(K),
    Bookmark(Object<IgnoredAny>),
    Error(Status),
}

/// Why the API server refuses a request.
#[derive(Debug, Clone, Default, Deserialize, thiserror::Error)]
#[error("{code} {reason}: {message}")]
#[serde(default)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u32,
}

impl Status {
    /// One for an answer without a status in the API server's form.
    pub(super) fn of(code: hyper::StatusCode, text: &str) -> Status {
        Status {
            code: code.as_u16(),
            reason: code.canonical_reason().unwrap_or_default().to_owned(),
            message: crate::plain_text::one_line(text, 200),
            details: None,
        }
    }

    /// How long the API server asks its clients to wait.
    pub(super) fn retry_after(&self) -> Duration {
        let seconds = self
            .details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds);
        Duration::from_secs(seconds.into())
    }
}

/// The API groups that a server has.
#[derive(Debug, Deserialize)]
pub(crate) struct Groups {
    pub groups: Vec<Group>,
}

/// An API group.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Group {
    pub name: String,
    #[serde(default)]
    versions: Vec<Version>,
    preferred_version: Option<Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
}

impl Group {
    /// Its versions, the preferred one first.
    pub fn versions(self) -> Vec<String> {
        let all = self.preferred_version.into_iter().chain(self.versions);
        all.map(|version| version.version).collect()
    }
}
