//! Why a response is as it is.

use crate::bindings::dnsweir::filter::types as raw;

/// Octets of a text, at most.
const TEXT: usize = 200;

/// Why a response is as it is (RFC 8914), for clients that speak EDNS.
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
    /// 4: the answer was made up for reasons of policy.
    pub const FORGED: ExtendedError = ExtendedError::new(4);
    /// 15: whoever runs the server wants the name blocked. What a [refusal](crate::Verdict::refuse) says by itself.
    pub const BLOCKED: ExtendedError = ExtendedError::new(15);
    /// 16: somebody else wants it blocked, such as a law.
    pub const CENSORED: ExtendedError = ExtendedError::new(16);
    /// 17: the client wants it blocked.
    pub const FILTERED: ExtendedError = ExtendedError::new(17);
    /// 18: the client may not ask.
    pub const PROHIBITED: ExtendedError = ExtendedError::new(18);

    /// One of IANA's extended DNS error codes.
    pub const fn new(code: u16) -> ExtendedError {
        let text = String::new();
        ExtendedError { code, text }
    }

    /// Says it to people, too. What is longer than 200 octets is cut; a response without room for it goes out
    /// without.
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
