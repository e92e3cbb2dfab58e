//! What goes wrong with a registry.

use std::fmt;
use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;
use url::Url;

use crate::agent;
use crate::plain_text::one_line;

/// The most bytes of a registry's text in a message.
const TEXT: usize = 256;

/// The codes of what does not exist.
const MISSING: [&str; 3] = ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"];

/// Why a registry did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no answer.
    #[error(transparent)]
    Server(#[from] agent::Error),
    /// It has said nothing for this long.
    #[error("it sent nothing for {} s", .0.as_secs())]
    Silent(Duration),
    /// It refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It answered something else than what was asked for.
    #[error("{0}")]
    Other(String),
}

/// A registry's refusal.
#[derive(Debug, thiserror::Error)]
pub struct Refusal {
    url: String,
    status: StatusCode,
    codes: Vec<String>,
    said: String,
}

/// The body of a refusal:
/// <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#error-codes>.
#[derive(Deserialize)]
struct Envelope {
    errors: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    code: String,
    message: Option<String>,
}

impl Refusal {
    /// Reads a refusal from the body of an answer.
    pub fn new(url: &Url, status: StatusCode, body: &[u8]) -> Refusal {
        let envelope = serde_json::from_slice(body);
        let reasons = envelope.map_or_else(|_| Vec::new(), |Envelope { errors }| errors);
        let texts = reasons.iter().map(|reason| match &reason.message {
            Some(message) if !message.is_empty() => message.as_str(),
            _ => reason.code.as_str(),
        });
        let mut said = Vec::from_iter(texts).join(", ");
        if said.is_empty() {
            said = String::from_utf8_lossy(body).into_owned();
        }
        Refusal {
            url: url.to_string(),
            status,
            codes: reasons.into_iter().map(|reason| reason.code).collect(),
            said: one_line(&said, TEXT),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { url, status, .. } = self;
        match *status {
            StatusCode::UNAUTHORIZED => write!(f, "Not authorized: {url}")?,
            status => write!(f, "{url}: {status}")?,
        }
        match &*self.said {
            "" => Ok(()),
            said => write!(f, ": {said}"),
        }
    }
}

impl Error {
    /// Returns whether a registry says that something does not exist.
    pub fn is_missing(&self) -> bool {
        let Error::Refused(refusal) = self else {
            return false;
        };
        let mut codes = refusal.codes.iter();
        refusal.status == StatusCode::NOT_FOUND || codes.any(|code| MISSING.contains(&&**code))
    }
}

impl From<String> for Error {
    fn from(problem: String) -> Error {
        Error::Other(problem)
    }
}
