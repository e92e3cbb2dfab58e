//! Code shared by servers and clients of DNS over HTTPS (RFC 8484).

/// The media type of requests and responses (RFC 8484 section 6).
pub const MEDIA_TYPE: &str = "application/dns-message";

/// Whether a `Content-Type` announces a DNS message: in any letter case, and with any parameters (RFC 9110
/// section 8.3.1).
pub fn is_message(content_type: &[u8]) -> bool {
    let essence = content_type
        .split(|octet| *octet == b';')
        .next()
        .unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())
}

/// Decodes the percent-encoding of URI text (RFC 3986 section 2.3); none if it is malformed.
pub fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut octets = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(octet) = octets.next() {
        let hex = |octet: u8| char::from(octet).to_digit(16);
        decoded.push(match octet {
            b'%' => {
                let (high, low) = (hex(octets.next()?)?, hex(octets.next()?)?);
                (high << 4 | low) as u8
            }
            octet => octet,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_have_letters_of_either_case_and_parameters() {
        for (text, expected) in [
            ("application/dns-message", true),
            ("Application/DNS-Message", true),
            ("application/dns-message; charset=utf-8", true),
            (" application/dns-message ;a=b", true),
            ("application/dns-messages", false),
            ("application/dns-json", false),
            ("", false),
        ] {
            assert_eq!(is_message(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn percent_encoding_is_taken_away() {
        for (text, expected) in [
            ("/dns-query", Some("/dns-query")),
            ("/dns%2Dquer%79", Some("/dns-query")),
            ("/%", None),
            ("/%4", None),
            ("/%zz", None),
        ] {
            let decoded = percent_decoded(text);
            assert_eq!(decoded.as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }
}
