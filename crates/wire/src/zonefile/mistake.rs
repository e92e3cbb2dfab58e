//! Mistakes in zone files.

use std::fmt;
use std::path::PathBuf;

/// A mistake: what is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: PathBuf,
    /// The line on which the entry begins, counted from 1; none if it concerns the whole file.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub help: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.problem),
            None => write!(f, "{}: {}", self.file.display(), self.problem),
        }
    }
}

/// A mistake in one entry, without its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    pub problem: String,
    pub help: String,
}

impl Wrong {
    pub fn new(problem: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong {
            problem: problem.into(),
            help: help.into(),
        }
    }
}
