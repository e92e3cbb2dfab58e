//! What filters get to know of a query beside its record, if they ask for it.

use super::bindings::dnsweir::filter::types::Detail;
use crate::dns::edns;

/// What the octets behind a name are.
const EDNS_OPTION: u16 = 1;
const LISTENER: u16 = 2;
const SERVER_NAME: u16 = 3;

/// The details that a manifest asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    all_options: bool,
    options: Vec<u16>,
    listener: bool,
    server_name: bool,
}

/// What there is to know of a query.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The options of its OPT record.
    pub options: &'a [u8],
    /// The listener that it came to; empty: none.
    pub listener: &'a str,
    /// The server name of TLS; empty: none.
    pub server_name: &'a str,
}

impl Details {
    pub(super) fn new(wanted: &[Detail]) -> Details {
        let mut details = Details::default();
        for detail in wanted {
            match detail {
                Detail::EdnsOption(code) => details.options.push(*code),
                Detail::EdnsOptions => details.all_options = true,
                Detail::Listener => details.listener = true,
                Detail::ServerName => details.server_name = true,
            }
        }
        details
    }

    /// Whether there is anything that the filter wants to know.
    pub fn any(&self) -> bool {
        *self != Details::default()
    }

    /// Whether requests have to keep their options for it.
    pub fn options(&self) -> bool {
        self.all_options || !self.options.is_empty()
    }

    /// Appends what is wanted and there.
    pub(super) fn gather(&self, known: Known<'_>, out: &mut Vec<u8>) {
        for (code, value) in edns::options(known.options) {
            if self.all_options || self.options.contains(&code) {
                let parts = [&code.to_be_bytes()[..], value];
                push(EDNS_OPTION, &parts, out);
            }
        }
        for (wanted, kind, text) in [
            (self.listener, LISTENER, known.listener),
            (self.server_name, SERVER_NAME, known.server_name),
        ] {
            if wanted && !text.is_empty() {
                push(kind, &[text.as_bytes()], out);
            }
        }
    }
}

fn push(kind: u16, parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(kind.to_be_bytes());
    out.extend((length as u16).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_is_gathered() {
        let known = Known {
            options: b"\0\x08\0\x02ab\0\x0a\0\0\0\x08\0\x01c\0\x09\xff",
            listener: "[::1]:53",
            server_name: "",
        };
        let gathered = |wanted: &[Detail]| {
            let mut out = Vec::new();
            Details::new(wanted).gather(known, &mut out);
            out
        };
        assert!(!Details::new(&[]).any() && gathered(&[]).is_empty());
        let subnet = b"\0\x01\0\x04\0\x08ab\0\x01\0\x03\0\x08c";
        assert_eq!(gathered(&[Detail::EdnsOption(8), Detail::ServerName]), subnet);
        assert_eq!(
            gathered(&[Detail::EdnsOption(9)]),
            b"",
            "what overruns is the end"
        );
        let all = gathered(&[Detail::EdnsOptions]);
        assert_eq!(all, b"\0\x01\0\x04\0\x08ab\0\x01\0\x02\0\x0a\0\x01\0\x03\0\x08c");
        assert_eq!(gathered(&[Detail::Listener]), b"\0\x02\0\x08[::1]:53");
    }
}
