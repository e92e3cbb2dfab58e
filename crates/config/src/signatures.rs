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
        then read_signers;

    /// A public key in PEM.
    hands "key" keys: Vec<Key> = none in KEY, "a name and a file";
    /// Sigstore's trusted root in JSON: at most 64 authorities and logs of each kind.
    hand "trust-root" trust_root: Option<TrustRoot> = none in TRUST_ROOT, "a file; only with `identity`";
    /// A signer whose signatures are accepted with any key.
    hands "identity" identities: Vec<SigningIdentity> = none in IDENTITY, "a name";
}

pub(super) const KEY: Table<()> = Table::plain(2..=2, r#"key "platform" "/etc/dnsweir/cosign.pub""#);

const TRUST_ROOT: Table<()> = Table::plain(1..=1, r#"trust-root "/etc/dnsweir/trusted_root.json""#);

words! {
    /// An `identity` as written.
    pub(super) struct Written in IDENTITY(1..=1):
        r#"identity "release" subject="release@example.com" issuer="https://accounts.example.com""#;

    /// Its name in the configuration.
    value "NAME" name: Option<String> = ("required") in text;
    /// The address or URI in the certificate; a final `*` matches any ending.
    property "subject" subject: Option<String> = ("required") in subject, "an address or a URI";
    /// The issuer in the certificate.
    property "issuer" issuer: Option<String> = ("required") in issuer, "a URL";
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

/// `identity "NAME" subject="…" issuer="…"`: a signer whose signatures are accepted with any key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningIdentity {
    /// Its name in the configuration and in output.
    pub name: String,
    /// The address or URI in the certificate; a final `*` matches any ending.
    pub subject: String,
    /// The identity provider that authenticated the signer to the authority.
    pub issuer: String,
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

    /// Reports a `name` that is already used; returns whether it is new.
    fn is_new(&self, decoder: &mut Decoder, name: &str, span: Span) -> bool {
        let Some((_, first)) = self.names().find(|(known, _)| *known == name) else {
            return true;
        };
        let problem = format!("{name:?} is defined twice in `signatures`");
        decoder.report_again(span, first, problem, "give one of them another name");
        false
    }
}

fn read_signers(decoder: &mut Decoder, node: &KdlNode, read: &mut Signatures) {
    let nodes = block(node);
    if child(nodes, "key").or(child(nodes, "identity")).is_none() {
        let help = format!("{}, or remove it", SIGNATURES.shape.help());
        decoder.report(node, "`signatures` names no key and no identity", help);
    }
    for node in named_nodes(nodes, "key") {
        if let Some(key) = key(decoder, node)
            && read.is_new(decoder, &key.name, key.span)
        {
            read.keys.push(key);
        }
    }
    read.trust_root = trust_root(decoder, nodes);
    for node in named_nodes(nodes, "identity") {
        if child(nodes, "trust-root").is_none() {
            decoder.report(node, "`identity` needs a `trust-root`", TRUST_ROOT.shape.help());
        }
        if let Some(identity) = identity(decoder, node)
            && read.is_new(decoder, &identity.name, identity.span)
        {
            read.identities.push(identity);
        }
    }
    if let (Some(node), None) = (child(nodes, "trust-root"), child(nodes, "identity")) {
        let problem = "`trust-root` has no effect without an `identity`";
        decoder.report(node, problem, IDENTITY.shape.help());
    }
}

fn key(decoder: &mut Decoder, node: &KdlNode) -> Option<Key> {
    decoder.check(node, &KEY.shape);
    let mut words = arguments(node).filter_map(|entry| decoder.value("key", entry, text));
    let (name, file) = (words.next()?, words.next()?);
    drop(words);
    let help = "name a public key in PEM, as `cosign generate-key-pair` writes cosign.pub";
    let pem = file_of(decoder, node, &file, help)?;
    let span = head(node);
    Some(Key { name, pem, span })
}

fn trust_root(decoder: &mut Decoder, nodes: &[KdlNode]) -> Option<TrustRoot> {
    let node = child(nodes, "trust-root")?;
    let file = decoder.scalar(nodes, TRUST_ROOT.shape.example, text)?;
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

fn identity(decoder: &mut Decoder, node: &KdlNode) -> Option<SigningIdentity> {
    let written = IDENTITY.read(decoder, node);
    for property in IDENTITY.shape.properties {
        if super::decode::property(node, property).is_none() {
            let problem = format!("`identity` needs `{property}=`");
            decoder.report(node, problem, IDENTITY.shape.help());
        }
    }
    Some(SigningIdentity {
        name: written.name?,
        subject: written.subject?,
        issuer: written.issuer?,
        span: head(node),
    })
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
