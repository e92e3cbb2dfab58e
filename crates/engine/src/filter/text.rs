//! Text that a guest wrote.

use std::fmt;

pub use crate::plain_text::one_line;

/// Octets of a log line.
pub(super) const LOG_LINE: usize = 1024;

/// An error's text, which may quote names that the module chose.
pub(super) fn in_words(error: &impl fmt::Display) -> String {
    one_line(&format!("{error:#}"), 1024)
}
