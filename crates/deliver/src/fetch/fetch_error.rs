//! Why something was not fetched.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{spell_duration, spell_size};

/// Why something was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No answer, or none over a connection to be trusted.
    #[error("{}", causes(.0))]
    Http(#[from] reqwest::Error),
    /// Another answer than the contents.
    #[error("the server answered {0}")]
    Status(reqwest::StatusCode),
    /// It has more octets than `size` allows.
    #[error("it is larger than {}: raise `size` if it may be", spell_size(*.0))]
    TooLarge(usize),
    /// It took longer than `time` allows.
    #[error("it took longer than {}", spell_duration(*.0))]
    TooSlow(Duration),
    /// A file that the location names cannot be used.
    #[error("{}: {problem}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why not.
        problem: String,
    },
    /// It cannot be kept, on disk or in memory.
    #[error("cannot keep it: {0}")]
    Disk(#[from] io::Error),
}

/// An error and what it comes from, the last of which says most.
fn causes(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !words.contains(&said) {
            words.push_str(": ");
            words.push_str(&said);
        }
        cause = error.source();
    }
    words
}
