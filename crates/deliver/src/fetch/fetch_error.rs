//! Why a fetch failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;

use crate::agent;
use crate::config::{spell_duration, spell_size};

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No response, or none over a trusted connection.
    #[error(transparent)]
    Server(#[from] agent::Error),
    /// A response other than the contents.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// It has more bytes than `size` allows.
    #[error("it is larger than {}: raise `size` if it may be", spell_size(*.0))]
    TooLarge(usize),
    /// It took longer than `time` allows.
    #[error("it took longer than {}", spell_duration(*.0))]
    TooSlow(Duration),
    /// A file named by the location cannot be used.
    #[error("{}: {problem}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It cannot be stored, on disk or in memory.
    #[error("cannot keep it: {0}")]
    Disk(#[from] io::Error),
}

impl From<dnsweir_http::Error> for FetchError {
    fn from(error: dnsweir_http::Error) -> FetchError {
        match error {
            dnsweir_http::Error::TooLarge(most) => FetchError::TooLarge(most),
            error => FetchError::Server(error.into()),
        }
    }
}
