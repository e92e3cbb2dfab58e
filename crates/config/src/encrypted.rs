//! `tls://`, `tls { … }` and `certificate`: upstreams and listeners with TLS, and their files.

use std::fmt;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kdl::{KdlEntry, KdlNode, KdlValue};
use rustls::pki_types::ServerName;

use super::address::{DNS_PORT, address, check, parse};
use super::decode::{Decoder, Wrong, arguments, block, child, parsed, property, text, value_span};
use super::error::Span;
use super::files::unreadable_help;
use super::upstream::{Encryption, NamedUpstream, Upstream};
use super::words::words;
use crate::tls::{Authorities, Identity, Pin, Trust, server_name};

/// The protocols that have a scheme.
const ENCRYPTIONS: [Encryption; 3] = [Encryption::Tls, Encryption::Https, Encryption::Quic];

/// Size limit in bytes of a file with certificates or a key: four times a list of all public authorities.
const LARGEST: u64 = 1 << 20;

words! {
    /// A `tls` as written.
    pub(super) struct Written in TLS(0..=0): r#"tls { ca "/etc/dnsweir/ca.pem" }"#;

    /// A file with the authorities that must have signed the certificates.
    one "ca" ca: Option<String> = ("the system's authorities": "/etc/dnsweir/ca.pem") in text, "a file in PEM";
    /// The server must have one of these public keys, written as `"sha256/…"` (RFC 7858 section 4.2). Without `ca`,
    /// only the key is checked.
    list "pin"(1..=8) pins: Vec<Pin> = ("none": "sha256/9SjxtnXx8sIcJRzFT2tBuKGnQWGIP6tqYBhZ9AbLT8g=") in pin, "keys";
    by hand {
        /// The client certificate for servers that ask for one.
        hand "certificate" = none in CERTIFICATE, "a file in PEM";
    }
}

words! {
    /// `certificate "FILE" key="FILE"`, before the files are read.
    pub(crate) struct Certificate in CERTIFICATE(1..=1):
        r#"certificate "/etc/dnsweir/tls.crt" key="/etc/dnsweir/tls.key""#;

    /// The certificate, then the intermediate ones.
    value "FILE" chain: Option<String> = ("required") in text;
    /// The file with its key.
    property "key" key: Option<String> = ("required") in text, "a file in PEM";
}

/// Splits off the scheme of an argument, if it has one.
pub(super) fn scheme(text: &str) -> Option<Result<(Encryption, &str), Wrong>> {
    let (scheme, rest) = text.split_once("://")?;
    let known = ENCRYPTIONS.into_iter().find(|known| known.word() == scheme);
    let unknown = || {
        let known = ENCRYPTIONS.map(|known| format!("{}://", known.word()));
        let known = known.join(" or ");
        let help = format!("write {known}, or an address alone for DNS in clear text");
        Wrong::new("is of a scheme that is not known", help)
    };
    Some(known.map(|known| (known, rest)).ok_or_else(unknown))
}

/// Reads an address to listen on, and its protocol if it has a scheme.
pub(super) fn listener(value: &KdlValue) -> Result<(SocketAddr, Option<Encryption>), Wrong> {
    let Some(scheme) = value.as_string().and_then(scheme) else {
        return Ok((address(DNS_PORT)(value)?, None));
    };
    let (encryption, rest) = scheme?;
    let found = address(encryption.port())(&KdlValue::String(rest.into()))?;
    Ok((found, Some(encryption)))
}

/// Reads an address to listen on, with or without a scheme, and returns only the address.
pub(super) fn listening_address(value: &KdlValue) -> Result<SocketAddr, Wrong> {
    listener(value).map(|(address, _)| address)
}

/// An upstream as written.
#[derive(Clone, PartialEq)]
pub(super) enum Target {
    At(Upstream),
    Named(NamedUpstream),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::At(upstream) => upstream.address.fmt(f),
            Target::Named(upstream) => upstream.host.fmt(f),
        }
    }
}

/// Parses `ADDRESS[%NAME][:PORT]` after a scheme, as in CoreDNS: the address and the name in its certificate;
/// or a name alone. HTTPS upstreams may have a path.
pub(super) fn upstream(rest: &str, encryption: Encryption) -> Result<Target, Wrong> {
    let (rest, path) = match (encryption, rest.find('/')) {
        (Encryption::Https, Some(at)) => (&rest[..at], Some(path(&rest[at..])?)),
        (Encryption::Https, None) => (rest, Some(PATH.to_owned())),
        (Encryption::Tls | Encryption::Quic, _) => (rest, None),
    };
    if let Some((host, port)) = host(rest, encryption.port()) {
        return Ok(Target::Named(NamedUpstream { host, port, path }));
    }
    let (address, name) = address_and_name(rest, encryption.port())?;
    Ok(Target::At(Upstream { address, name, path }))
}

/// Parses `NAME[:PORT]`, where the name has more than one label and is not an address.
fn host(rest: &str, port: u16) -> Option<(String, u16)> {
    let (name, port) = match rest.split_once(':') {
        Some((name, port)) => (name, port.parse().ok().filter(|port| *port > 0)?),
        None => (rest, port),
    };
    let name = name.trim_end_matches('.');
    match server_name(name)? {
        ServerName::DnsName(name) if name.as_ref().contains('.') => {
            Some((name.as_ref().to_ascii_lowercase(), port))
        }
        _ => None,
    }
}

/// The path that all DNS over HTTPS servers use, also in the examples of RFC 8484.
const PATH: &str = "/dns-query";

/// Parses the path of a DNS over HTTPS server, possibly a template (RFC 8484 section 4.1).
fn path(written: &str) -> Result<String, Wrong> {
    let path = written.strip_suffix("{?dns}").unwrap_or(written);
    let fits = |octet: u8| octet.is_ascii_graphic() && !b"?#{}\"<>\\^`|".contains(&octet);
    match path.bytes().all(fits) && path.len() <= 256 {
        true => Ok(path.to_owned()),
        false => Err(Wrong::new(
            format!("has an invalid path: {path:?}"),
            "write it like \"https://9.9.9.9%dns.quad9.net/dns-query\"",
        )),
    }
}

fn address_and_name(rest: &str, port: u16) -> Result<(SocketAddr, Option<String>), Wrong> {
    let help = "write the server's address, and behind it the name in its certificate: \"tls://9.9.9.9%dns.quad9.net\", \
                \"tls://[2620:fe::fe]%dns.quad9.net:853\"";
    let wrong = |problem: String| Wrong::new(problem, help);
    // In brackets, `%` introduces an interface.
    let end = rest.find(']').unwrap_or(0);
    let (written, name, port) = match rest[end..].split_once('%') {
        Some((before, behind)) => {
            let (name, port) = match behind.split_once(':') {
                Some((name, port)) => (
                    name,
                    port.parse()
                        .map_err(|_| wrong(format!("has {port:?} for a port")))?,
                ),
                None => (behind, port),
            };
            (&rest[..end + before.len()], Some(name), port)
        }
        None => (rest, None, port),
    };
    // Port 0 is invalid, so it can mark a missing port.
    let unwritten = 0;
    let mut address = parse(written, unwritten).ok_or_else(|| wrong("is not an IP address".into()))?;
    match (address.port() == unwritten, name) {
        (true, _) => address.set_port(port),
        (false, Some(_)) => return Err(wrong("has its port before the name".into())),
        (false, None) => {}
    }
    check(address).map_err(|found| wrong(found.problem))?;
    let name = match name {
        Some(name) if server_name(name).is_none() => {
            return Err(wrong(format!("has an invalid name: {name:?}")));
        }
        name => name.map(|name| name.trim_end_matches('.').to_ascii_lowercase()),
    };
    Ok((address, name))
}

/// Decodes `tls { ca "FILE"; pin "sha256/…"; certificate "FILE" key="FILE" }`.
pub(super) fn trust(decoder: &mut Decoder, node: &KdlNode) -> Trust {
    let written = TLS.read(decoder, node);
    let nodes = block(node);
    let ca = written.ca.zip(child(nodes, "ca"));
    Trust {
        authorities: ca.and_then(|(written, ca)| authorities(decoder, ca, &written)),
        pins: written.pins,
        identity: child(nodes, "certificate").and_then(|node| identity(decoder, node)),
        ..Trust::default()
    }
}

fn authorities(decoder: &mut Decoder, node: &KdlNode, written: &str) -> Option<Authorities> {
    let read = read(decoder, written).and_then(|pem| Authorities::from_pem(&pem));
    let usual = "name a file with the certificates of authorities, in PEM";
    read.map_err(|problem| refuse(decoder, value_span(node), written, &problem, usual))
        .ok()
}

/// Decodes `certificate "FILE" key="FILE"`.
pub(super) fn identity(decoder: &mut Decoder, node: &KdlNode) -> Option<Identity> {
    let written = CERTIFICATE.read(decoder, node);
    let Some(key_entry) = property(node, "key") else {
        let problem = "`certificate` needs the file of its key";
        decoder.report(node, problem, CERTIFICATE.shape.help());
        return None;
    };
    let (certificate, key) = (written.chain?, written.key?);
    let entry = arguments(node).next()?;
    let mut pem_of = |written: &str, entry: &KdlEntry| {
        let usual = "name a file in PEM that dnsweir can read";
        read(decoder, written)
            .map_err(|problem| refuse(decoder, entry.into(), written, &problem, usual))
            .ok()
    };
    let (pem, key_pem) = (pem_of(&certificate, entry), pem_of(&key, key_entry));
    let identity = Identity::from_pem(&pem?, &key_pem?);
    let usual = "name a certificate, with those between it and its authority, and its key, both in PEM";
    identity
        .map_err(|(of_key, problem)| match of_key {
            true => refuse(decoder, key_entry.into(), &key, &problem, usual),
            false => refuse(decoder, entry.into(), &certificate, &problem, usual),
        })
        .ok()
}

fn read(decoder: &mut Decoder, written: &str) -> Result<Vec<u8>, String> {
    let path = decoder.files.at(written);
    let read = decoder.files.read(&path, LARGEST);
    read.map_err(|error| format!("cannot be read: {error}"))
}

/// Reports what is wrong with a file; `usual` is the help for anything but a URL or a folder.
fn refuse(decoder: &mut Decoder, place: Span, written: &str, problem: &str, usual: &str) {
    let help = unreadable_help(&decoder.files.at(written), usual);
    decoder.report(place, format!("{written:?} {problem}"), help);
}

/// Reads `sha256/` and the base64 digest of a public key, as in RFC 7858 section 4.2 and curl.
fn pin(value: &KdlValue) -> Result<Pin, Wrong> {
    let digest = |written: &str| {
        let octets = STANDARD.decode(written.strip_prefix("sha256/")?);
        octets.ok()?.try_into().ok()
    };
    let help = "write \"sha256/\" and the base64 of 32 bytes; `kdig +tls +tls-pin=… -d` shows a server's";
    parsed(value, digest, "is not the digest of a key", help)
}
