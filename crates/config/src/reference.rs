//! `oci://REGISTRY/NAME:TAG@sha256:DIGEST`: an artifact in a registry.

use std::fmt;

use super::hex;

/// The start of a reference.
const SCHEME: &str = "oci://";

/// The most bytes of a name or host, and of a tag (the distribution specification, "Pulling manifests").
const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;

/// An artifact in a registry, by tag or digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// The registry's host, with its port if given.
    pub registry: String,
    /// The name in the registry, such as `filters/block-list`.
    pub repository: String,
    /// `:TAG`. Beside a digest, it is only informative.
    pub tag: Option<String>,
    /// `@sha256:…`, the required digest of the manifest, in lower case.
    pub digest: Option<String>,
}

impl Reference {
    /// Parses a text that starts with `oci://`; `None` if it does not.
    ///
    /// # Errors
    /// What is wrong with it, phrased to follow "it".
    pub fn parse(text: &str) -> Option<Result<Reference, String>> {
        text.strip_prefix(SCHEME).map(parse)
    }

    /// Returns the reference with this digest.
    pub fn with_digest(&self, digest: &str) -> Reference {
        Reference {
            digest: Some(digest.to_owned()),
            ..self.clone()
        }
    }

    /// Whether it may resolve to another artifact later.
    pub fn is_movable(&self) -> bool {
        self.digest.is_none()
    }
}

fn parse(text: &str) -> Result<Reference, String> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(parse_digest(digest)?)),
        None => (text, None),
    };
    let Some((registry, path)) = rest.split_once('/') else {
        return Err("names no registry: write oci://REGISTRY/NAME:TAG".into());
    };
    let (repository, tag) = match path.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (path, None),
    };
    if !is_host(registry) {
        return Err(format!("has a registry that is not a host name: {registry:?}"));
    }
    if !is_repository(repository) {
        return Err(format!(
            "has the name {repository:?}: write lowercase letters and digits, separated by `.`, `_`, `-` and `/`"
        ));
    }
    if let Some(tag) = tag
        && !is_tag(tag)
    {
        return Err(format!("has an invalid tag: {tag:?}"));
    }
    if tag.is_none() && digest.is_none() {
        return Err("needs a tag or a digest: write oci://REGISTRY/NAME:TAG or …@sha256:DIGEST".into());
    }
    Ok(Reference {
        registry: registry.to_owned(),
        repository: repository.to_owned(),
        tag: tag.map(str::to_owned),
        digest,
    })
}

fn parse_digest(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("sha256:");
    let octets = digits.and_then(hex::octets).filter(|octets| octets.len() == 32);
    let octets =
        octets.ok_or_else(|| format!("has the digest {text:?}: write sha256: and 64 hexadecimal digits"))?;
    Ok(format!("sha256:{}", hex::digits(&octets)))
}

/// Whether this can be a registry's host, with or without a port; it is put into a URL unescaped.
pub(super) fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    let is_name = |host: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(plain)
    };
    let is_ipv6 = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
    };
    host.len() <= LONGEST_NAME && port.is_none_or(is_port) && (is_name(host) || is_ipv6(host))
}

/// Whether this is a repository as in the distribution specification: `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`,
/// several of them separated by `/`.
pub(super) fn is_repository(text: &str) -> bool {
    let is_part = |part: &str| {
        let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(outer)
            && part.ends_with(outer)
            && part.chars().all(|c| outer(c) || ['.', '_', '-'].contains(&c))
            && !part.contains("..")
    };
    text.len() <= LONGEST_NAME && text.split('/').all(is_part)
}

/// Whether this is a tag as in the distribution specification: `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`.
fn is_tag(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= LONGEST_TAG
        && text.starts_with(first)
        && text.chars().all(|c| first(c) || c == '.' || c == '-')
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}
