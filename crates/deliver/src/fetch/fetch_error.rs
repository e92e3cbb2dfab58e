//! Why a fetch failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{spell_duration, spell_size};
use crate::plain_text::with_causes;

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No response, or none over a trusted connection.
    #[error("{}", with_causes(.0))]
    Http(#[from] reqwest::Error),
    /// A response other than the contents.
    #[error("the server answered {0}")]
    Status(reqwest::StatusCode),
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
