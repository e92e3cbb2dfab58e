//! Protects against DNS rebinding: any site can point its own name at this address, and then read it from a
//! page as if it were its own, unless we only answer to our own names.

use std::net::IpAddr;

use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap, ORIGIN};

use super::{Reply, text};

/// Refuses a request for more than health and metrics if `Host` is neither an address, nor `localhost`, nor
/// the name configured in `admin`, or if another site's page sends it.
pub(super) fn refusal(headers: &HeaderMap, own: Option<&str>) -> Option<Reply> {
    let host = match headers.get(HOST) {
        // Browsers always send it (RFC 9112 section 3.2).
        None => return None,
        Some(host) => host.to_str().unwrap_or_default(),
    };
    let name = name_of(host);
    let is_own = own.is_some_and(|own| own.eq_ignore_ascii_case(name.trim_end_matches('.')));
    if !is_own && !name.eq_ignore_ascii_case("localhost") && name.parse::<IpAddr>().is_err() {
        return Some(misdirected(name));
    }
    match headers
        .get(ORIGIN)
        .map(|origin| origin.to_str().unwrap_or_default())
    {
        Some(origin) if origin.split_once("://").is_none_or(|(_, from)| from != host) => Some(text(
            StatusCode::MISDIRECTED_REQUEST,
            "pages of other sites may not read this: open / on this address\n".into(),
        )),
        _ => None,
    }
}

/// Returns a host without its port, and without the brackets of an IPv6 address (RFC 3986 section 3.2.2).
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(ip, _)| ip),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

/// Returns 421 Misdirected Request (RFC 9110 section 15.5.20).
fn misdirected(name: &str) -> Reply {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let name = match name.len() <= 253 && name.chars().all(is_name) {
        true => name,
        false => "NAME",
    };
    text(
        StatusCode::MISDIRECTED_REQUEST,
        format!(
            "this is not {name}: use the address, or write admin \"…\" host=\"{name}\" in the configuration\n"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, origin: Option<&str>, own: Option<&str>) -> Option<u16> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        refusal(&headers, own).map(|reply| reply.status().as_u16())
    }

    #[test]
    fn addresses_and_own_names_are_answered() {
        for host in [
            "127.0.0.1",
            "10.0.0.1:9253",
            "[::1]:9253",
            "[fd00::1]",
            "localhost:9253",
            "LocalHost",
        ] {
            assert_eq!(refused(host, None, None), None, "{host}");
        }
        assert_eq!(refused("dns.lan:9253", None, Some("dns.lan")), None);
        assert_eq!(refused("DNS.lan.", None, Some("dns.lan")), None);
        assert!(refusal(&HeaderMap::new(), None).is_none(), "HTTP/1.0");
    }

    #[test]
    fn a_name_that_leads_here_is_not_ours() {
        for host in [
            "evil.example",
            "evil.example:9253",
            "127.0.0.1.evil.example",
            "",
            "localhost.evil.example",
            "[evil",
        ] {
            assert_eq!(refused(host, None, None), Some(421), "{host}");
            assert_eq!(refused(host, None, Some("dns.lan")), Some(421), "{host}");
        }
        assert_eq!(
            refused("evil.example", Some("http://evil.example"), None),
            Some(421)
        );
    }

    #[test]
    fn pages_of_others_read_nothing() {
        let host = "127.0.0.1:9253";
        for origin in [
            "http://evil.example",
            "null",
            "http://127.0.0.1",
            "http://127.0.0.1:80",
            "",
        ] {
            assert_eq!(refused(host, Some(origin), None), Some(421), "{origin}");
        }
        assert_eq!(refused(host, Some("http://127.0.0.1:9253"), None), None);
    }
}
