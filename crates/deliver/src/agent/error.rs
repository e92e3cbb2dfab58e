//! Why a request has no response.

use crate::plain_text::with_causes;

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection to the server, or no answer on it.
    #[error("{}", with_causes(.0))]
    Http(#[from] dnsweir_http::Error),
    /// The server is not found, may not be contacted, or redirects wrongly.
    #[error("{0}")]
    Refused(String),
}
