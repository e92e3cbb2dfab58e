//! `https://…`: where to fetch something, and how.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use kdl::{KdlNode, KdlValue};
use url::{Host, Url};

use super::decode::{Decoder, Wrong, boolean, parsed, path, property};
use super::error::Span;
use super::units::{duration, s, size};
use super::words::words;

words! {
    /// The properties of a node that names a [`Location`]. Relative paths are resolved.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Access in SOURCE(2..=2): r#"source "list" "https://lists.example/ads.txt""#, then find_files;

    /// Maximum size of a source, or of a folder's files together; a larger one is refused.
    property "size" size: usize = "64MiB" in size(1..=4 << 30);
    /// A file with the authorities that sign the server's certificate.
    property "ca" ca: Option<PathBuf> = ("the system's authorities") in path, "a file in PEM";
    /// A file with a bearer token, read for each request and sent only to that server.
    property "token-file" token: Option<PathBuf> = ("none") in path, "a file";
    /// HTTP proxy; variables such as `HTTPS_PROXY` are ignored.
    property "proxy" proxy: Option<Url> = ("none") in proxy, "`\"http://…\"`";
    /// The server's address.
    property "address" address: Option<IpAddr> = ("looked up") in ip, "an address";
    /// How long a request may take, to its last byte.
    property "time" time: Duration = "1m" in duration(s(1)..=s(3600));
    /// Allows `http://` to other machines, without a token; to this machine it is always allowed.
    property "plain" plain: bool = false in boolean;
}

/// `"https://…" ca="FILE" token-file="FILE" proxy="http://…" address="192.0.2.1" size="64MiB" time="1m" plain=#true`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// `https:`; or `http:`, only to this machine or with `plain`.
    pub url: Url,
    /// How to fetch it.
    pub access: Access,
}

/// Whether a text is a URL rather than a path.
pub(super) fn is_url(text: &str) -> bool {
    text.contains("://")
}

fn find_files(decoder: &mut Decoder, _: &KdlNode, access: &mut Access) {
    for file in [&mut access.ca, &mut access.token].into_iter().flatten() {
        *file = decoder.files.at(&*file);
    }
}

/// Decodes the URL `written` in `node`, which has the properties `access`.
pub(super) fn decode(
    decoder: &mut Decoder,
    node: &KdlNode,
    access: Access,
    written: &str,
    span: Span,
) -> Option<Location> {
    let url = match url(written, access.plain, access.token.is_some()) {
        Ok(url) => url,
        Err(wrong) => {
            decoder.report(span, format!("{written:?} {}", wrong.problem), wrong.help);
            return None;
        }
    };
    if access.plain && url.scheme() == "https" {
        let at = property(node, "plain").map_or(Span::from(node), Span::from);
        decoder.report(at, "`plain` is for http://", "remove it");
    }
    Some(Location { url, access })
}

fn url(written: &str, plain: bool, token: bool) -> Result<Url, Wrong> {
    let help = "write it like \"https://lists.example/ads.txt\"";
    let url = Url::parse(written).map_err(|error| Wrong::new(format!("is not a URL: {error}"), help))?;
    if url.host().is_none() {
        return Err(Wrong::new("names no server", help));
    }
    if url.password().is_some() || !url.username().is_empty() {
        let help =
            "write the token into a file that only dnsweir can read, and name that: token-file=\"PATH\"";
        return Err(Wrong::new("has a password in it", help));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_this_machine(&url) => Ok(url),
        "http" if plain && token => Err(Wrong::new(
            "would be sent the token in clear text",
            "write https://, or remove `token-file`",
        )),
        "http" if plain => Ok(url),
        "http" => Err(Wrong::new(
            "is not secure: anyone between the two machines can change the data",
            "write https://, or plain=#true if you want this",
        )),
        _ => Err(Wrong::new("is of a scheme that is not known", help)),
    }
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn proxy(value: &KdlValue) -> Result<Url, Wrong> {
    let url = |text: &str| {
        let url = Url::parse(text).ok();
        url.filter(|url| url.scheme() == "http" && url.host().is_some())
    };
    let help = "write it like \"http://192.0.2.1:3128\"";
    parsed(value, url, "is not an HTTP proxy", help)
}

fn ip(value: &KdlValue) -> Result<IpAddr, Wrong> {
    let help = "write one without a port: \"192.0.2.1\"";
    parsed(value, |text| text.parse().ok(), "is not an address", help)
}
