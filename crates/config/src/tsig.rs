//! `tsig`: secrets shared with other servers of a zone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kdl::{KdlEntry, KdlNode};

use super::decode::{Decoder, arguments, block, child, text, word};
use super::files::{Files, TEXT_HELP};
use super::name::zone_name;
use super::words::{Table, words};
use crate::dns::name::Name;
use crate::dns::tsig::Key;

words! {
    /// A `tsig` as written.
    pub(super) struct Written in TSIG(1..=1):
        r#"tsig "transfers.example.org" { algorithm "hmac-sha256"; secret (file)"/etc/dnsweir/transfers.secret" }"#;

    /// The key's name, as on the other servers.
    value "NAME" name: Option<String> = ("required") in zone_name, "a name";
    /// The signature algorithm.
    one "algorithm" algorithm: &'static str = "hmac-sha256" in word(&ALGORITHMS);
    by hand {
        /// Made by `openssl rand -base64 32` or BIND's `tsig-keygen`; with `(file)"PATH"` or `(env)"NAME"` it is not in
        /// the configuration.
        hand "secret" = ("required") in SECRET, "at least 16 bytes in base64";
    }
}

const SECRET: Table<()> = Table::plain(1..=1, r#"secret (file)"/etc/dnsweir/transfers.secret""#);

/// Words for algorithms, and the algorithms.
const ALGORITHMS: [(&str, &str); 3] = [
    ("hmac-sha256", "hmac-sha256"),
    ("hmac-sha384", "hmac-sha384"),
    ("hmac-sha512", "hmac-sha512"),
];

/// The fewest bytes of a secret: a shorter one could be guessed from its signatures (RFC 8945 section 8).
const SHORTEST: usize = 16;

/// Decodes the `tsig` nodes.
pub(super) fn decode<'k>(decoder: &mut Decoder, nodes: impl Iterator<Item = &'k KdlNode>) -> Vec<Key> {
    let mut met = Vec::new();
    let mut keys = Vec::new();
    for node in nodes {
        let written = TSIG.read(decoder, node);
        let secret = secret(decoder, node);
        let name = written.name.and_then(|name| Name::parse(&name).ok());
        let (Some(name), Some(secret)) = (name, secret) else {
            continue;
        };
        let problem = format!("the key {name} is written twice");
        let key = Key::new(&name, written.algorithm, &secret);
        if decoder.meet(&mut met, name, node, problem, "rename one of them") {
            keys.extend(key);
        }
    }
    keys
}

/// Reads the shared secret in base64, here or in a file.
fn secret(decoder: &mut Decoder, node: &KdlNode) -> Option<Vec<u8>> {
    let Some(secret) = child(block(node), "secret") else {
        decoder.report(node, "this key has no `secret`", SECRET.shape.help());
        return None;
    };
    let secret = read(decoder, secret);
    decoder.check(&secret, &SECRET.shape);
    let entry = arguments(&secret).next()?;
    let written = decoder.value("secret", entry, text)?;
    let decoded = STANDARD.decode(written.trim()).ok();
    let problem = match &decoded {
        // Never quote the secret: it would end up in a log.
        None => "the secret is not in base64",
        Some(secret) if secret.len() < SHORTEST => "the secret has fewer than 16 bytes",
        Some(_) => return decoded,
    };
    let help = "make one with `openssl rand -base64 32`, or `tsig-keygen` of BIND 9: the value of `secret` in its output";
    decoder.report(entry, problem, help);
    None
}

/// Returns the node with `(file)"PATH"` replaced by the contents of the file.
fn read(decoder: &mut Decoder, node: &KdlNode) -> KdlNode {
    let mut node = node.clone();
    for entry in node.entries_mut() {
        let Some(written) = file(entry) else { continue };
        let path = decoder.files.at(written);
        let content = decoder.file("file", &path, &*entry, Files::text, TEXT_HELP);
        let mut found = KdlEntry::new(content.unwrap_or_default());
        found.set_span(entry.span());
        *entry = found;
    }
    node
}

/// The path in a `(file)` value.
fn file(entry: &KdlEntry) -> Option<&str> {
    entry.ty().filter(|kind| kind.value() == "file")?;
    entry.value().as_string()
}
