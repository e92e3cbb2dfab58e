//! `signatures`: the signers that modules from registries need.

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Wrong, arguments, block, child, fitting, head, named_nodes, suggestion, text};
use super::error::Span;
use super::files::Files;
use super::reference::is_repository;
use super::words::{Table, words};

words! {
    /// `signatures { … }`: one of these must have signed each pulled module; if empty, no signature is needed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Signatures in SIGNATURES(0..=0): r#"signatures { key "platform" "/etc/dnsweir/cosign.pub" }"#,
        then read_identities;

    /// A public key in PEM.
    tables "key" keys: Vec<Key> = none in KEY, "a name and a file";
    /// Sigstore's trusted root in JSON: at most 64 authorities and logs of each kind.
    table "trust-root" trust_root: Option<TrustRoot> = ("none") in TRUST_ROOT, "a file; only with `identity`";
    /// A signer whose signatures are accepted with any key.
    hands "identity" identities: Vec<SigningIdentity> = none in IDENTITY, "a name";
}

const KEY: Table<Option<Key>> =
    Table::of_values(2..=2, r#"key "platform" "/etc/dnsweir/cosign.pub""#, read_key);

const TRUST_ROOT: Table<Option<TrustRoot>> = Table::of_values(
    1..=1,
    r#"trust-root "/etc/dnsweir/trusted_root.json""#,
    read_trust_root,
);

words! {
    /// `identity "NAME" subject="…" issuer="…"`: a signer whose signatures are accepted with any key.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SigningIdentity in IDENTITY(1..=1):
        r#"identity "release" subject="release@example.com" issuer="https://accounts.example.com""#;

    /// Its name in the configuration.
    value "NAME" name: String = required in signer_name;
    /// The address or URI in the certificate; a final `*` matches any ending.
    property "subject" subject: String = required in subject, "an address or a URI";
    /// The issuer in the certificate.
    property "issuer" issuer: String = required in issuer, "a URL";
    besides {
        /// Its span.
        span: Span;
    }
}

words! {
    /// `signed-by "NAME"… for="REPOSITORY"`: the signature that a filter's module needs.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SignedBy in SIGNED_BY(0..=16): r#"signed-by "platform""#;

    /// The repository that the signature must name, if it names one.
    property "for" repository: Option<String> = ("that in the reference") in repository, "a name without the registry";
    besides {
        /// The keys and identities of which one must have signed; if empty, any of them.
        names: Vec<String>;
    }
}

/// `key "NAME" "FILE"`: a trusted public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name in the configuration and in output.
    pub name: String,
    /// The text of the file.
    pub pem: String,
    /// Its span.
    pub span: Span,
}

/// `trust-root "FILE"`: the trusted certificate authorities, timestamp authorities and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustRoot {
    /// The text of the file.
    pub json: String,
    /// Its span.
    pub span: Span,
}

impl Signatures {
    /// The names that `signed-by` may use, with their spans.
    fn names(&self) -> impl Iterator<Item = (&str, Span)> {
        let keys = self.keys.iter().map(|key| (key.name.as_str(), key.span));
        let identities = self.identities.iter();
        keys.chain(identities.map(|identity| (identity.name.as_str(), identity.span)))
    }
}

/// Reads the identities, and checks all signers together.
fn read_identities(decoder: &mut Decoder, node: &KdlNode, read: &mut Signatures) {
    let nodes = block(node);
    if child(nodes, "key").or(child(nodes, "identity")).is_none() {
        let help = format!("{}, or remove it", SIGNATURES.shape.help());
        decoder.report(node, "`signatures` names no key and no identity", help);
    }
    for node in named_nodes(nodes, "identity") {
        if child(nodes, "trust-root").is_none() {
            decoder.report(node, "`identity` needs a `trust-root`", TRUST_ROOT.shape.help());
        }
        read.identities.extend(identity(decoder, node));
    }
    if let (Some(node), None) = (child(nodes, "trust-root"), child(nodes, "identity")) {
        let problem = "`trust-root` has no effect without an `identity`";
        decoder.report(node, problem, IDENTITY.shape.help());
    }
    let mut met = Vec::new();
    for (name, span) in read.names() {
        let problem = format!("{name:?} is defined twice in `signatures`");
        decoder.meet(&mut met, name, span, problem, "give one of them another name");
    }
}

fn read_key(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Option<Key> {
    let mut entries = arguments(node);
    let name = decoder.value("key", entries.next()?, signer_name);
    let file = decoder.value("key", entries.next()?, text)?;
    let help = "name a public key in PEM, as `cosign generate-key-pair` writes cosign.pub";
    let pem = file_of(decoder, node, &file, help)?;
    let (name, span) = (name?, head(node));
    Some(Key { name, pem, span })
}

fn read_trust_root(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Option<TrustRoot> {
    let file = decoder.argument(node, text)?;
    let help = "name a trusted root of sigstore in JSON, as `cosign trusted-root create` writes it";
    let json = file_of(decoder, node, &file, help)?;
    let span = head(node);
    Some(TrustRoot { json, span })
}

/// Reads the text file that `node` names.
fn file_of(decoder: &mut Decoder, node: &KdlNode, file: &str, help: &str) -> Option<String> {
    let path = decoder.files.at(file);
    decoder.file(node.name().value(), &path, node, Files::text, help)
}

/// Decodes an `identity`; `None` if it is incomplete.
fn identity(decoder: &mut Decoder, node: &KdlNode) -> Option<SigningIdentity> {
    let read = IDENTITY.read(decoder, node);
    for property in IDENTITY.shape.properties {
        if super::decode::property(node, property).is_none() {
            let problem = format!("`identity` needs `{property}=`");
            decoder.report(node, problem, IDENTITY.shape.help());
        }
    }
    let span = head(node);
    let texts = [&read.name, &read.subject, &read.issuer];
    let is_complete = texts.iter().all(|text| !text.is_empty());
    is_complete.then_some(SigningIdentity { span, ..read })
}

/// Reads the name of a key or identity.
fn signer_name(value: &KdlValue) -> Result<String, Wrong> {
    let help = "write a name: \"platform\"";
    fitting(value, |name| !name.is_empty(), "is not a name", help)
}

/// Reads an address or URI, or a prefix of some.
fn subject(value: &KdlValue) -> Result<String, Wrong> {
    fitting(value, is_subject, "is not a valid subject", SUBJECT_HELP)
}

fn issuer(value: &KdlValue) -> Result<String, Wrong> {
    fitting(value, is_issuer, "is not a valid issuer", ISSUER_HELP)
}

/// What to write as the subject of an identity.
pub const SUBJECT_HELP: &str =
    "write the address or the URI that certificates have; a final `*` matches any ending";

/// What to write as the issuer of an identity.
pub const ISSUER_HELP: &str = "write it as certificates have it: \"https://accounts.example.com\"";

/// Whether this can be the subject of an identity: not empty or a bare `*`, and with `*` only at the end.
pub fn is_subject(text: &str) -> bool {
    let begin = text.strip_suffix('*').unwrap_or(text);
    !begin.is_empty() && !begin.contains('*')
}

/// Whether this can be the issuer of an identity: not empty, and not a pattern.
pub fn is_issuer(text: &str) -> bool {
    !text.is_empty() && !text.contains('*')
}

/// Decodes a filter's `signed-by`.
pub(super) fn signed_by(decoder: &mut Decoder, signatures: &Signatures, node: &KdlNode) -> SignedBy {
    let mut signed_by = SIGNED_BY.read(decoder, node);
    if node.entries().is_empty() {
        let help = format!("{}, or remove it", SIGNED_BY.shape.help());
        decoder.report(node, "`signed-by` names neither a signer nor a repository", help);
    }
    let known: Vec<&str> = signatures.names().map(|(name, _)| name).collect();
    let key = |value: &KdlValue| {
        let name = text(value)?;
        match known.contains(&name.as_str()) {
            true => Ok(name),
            false => Err(Wrong::new(
                "is none of the keys and identities in `signatures`",
                suggestion(&name, &known, SIGNATURES.shape.example),
            )),
        }
    };
    signed_by.names = decoder.values(node, key);
    signed_by
}

/// Reads the name of a repository in a registry.
fn repository(value: &KdlValue) -> Result<String, Wrong> {
    let help = "write the name without the registry: \"filters/block-list\"";
    fitting(value, is_repository, "is not a name within a registry", help)
}
