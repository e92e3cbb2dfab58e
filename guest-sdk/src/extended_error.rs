//! Extended DNS errors.

use crate::bindings::dnsweir::filter::types as raw;

/// The limit of a text in bytes.
const TEXT: usize = 200;

/// An extended DNS error (RFC 8914): why a response is as it is, for clients that use EDNS.
///
/// ```
/// use dnsweir_filter::{ExtendedError, Rcode, Verdict};
///
/// let why = ExtendedError::FILTERED.text("on this network's block list");
/// let verdict = Verdict::refuse(Rcode::NXDOMAIN).error(why);
/// # let _ = verdict;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ExtendedError {
    code: u16,
    text: String,
}

impl ExtendedError {
    /// 4: the answer was forged by policy.
    pub const FORGED: ExtendedError = ExtendedError::new(4);
    /// 15: blocked by the server's operator. The default of a [refusal](crate::Verdict::refuse).
    pub const BLOCKED: ExtendedError = ExtendedError::new(15);
    /// 16: blocked by an external requirement, such as a law.
    pub const CENSORED: ExtendedError = ExtendedError::new(16);
    /// 17: blocked at the client's request.
    pub const FILTERED: ExtendedError = ExtendedError::new(17);
    /// 18: the client is not authorized to ask.
    pub const PROHIBITED: ExtendedError = ExtendedError::new(18);

    /// One of IANA's extended DNS error codes.
    pub const fn new(code: u16) -> ExtendedError {
        let text = String::new();
        ExtendedError { code, text }
    }

    /// Adds a text for people, cut after 200 bytes. It is left out if the response has no room for it.
    pub fn text(mut self, text: impl Into<String>) -> ExtendedError {
        self.text = text.into();
        self.text.truncate(self.text.floor_char_boundary(TEXT));
        self
    }

    pub(crate) fn into_raw(self) -> raw::ExtendedError {
        let ExtendedError { code, text } = self;
        raw::ExtendedError { code, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = "é".repeat(300);
        assert_eq!(ExtendedError::BLOCKED.text(text).text, "é".repeat(100));
        let text = format!("a{}", "é".repeat(300));
        assert_eq!(ExtendedError::BLOCKED.text(text).text.len(), 199);
        assert_eq!(ExtendedError::new(0).text("short").text, "short");
    }
}
