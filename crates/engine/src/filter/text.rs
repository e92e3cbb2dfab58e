//! Text written by a guest.

use std::fmt;

pub use crate::plain_text::one_line;

/// Maximum bytes of a log line.
pub(super) const LOG_LINE: usize = 1024;

/// The text of an error, which may quote names chosen by the module.
pub(super) fn in_words(error: &impl fmt::Display) -> String {
    one_line(&format!("{error:#}"), 1024)
}
