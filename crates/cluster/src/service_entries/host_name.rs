//! The hosts of service entries.

use crate::dns::name::Name;

/// One name, or all names below one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName {
    /// In lower case and wire format.
    pub name: Box<[u8]>,
    /// Whether it stands for all names below, but not for the name itself.
    pub wildcard: bool,
}

/// A host that is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host {0:?} is not valid in DNS")]
pub struct Malformed(String);

impl HostName {
    /// Parses a host of an object.
    ///
    /// # Errors
    /// If it is not a DNS name, or is the root.
    pub fn read(text: &str) -> Result<HostName, Malformed> {
        let (name, wildcard) = match text.strip_prefix("*.") {
            Some(base) => (base, true),
            None => (text, false),
        };
        let malformed = || Malformed(text.chars().take(80).collect());
        let name = Name::parse(name).map_err(|_| malformed())?;
        if name == Name::ROOT || name.as_bytes().contains(&b'*') {
            return Err(malformed());
        }
        Ok(HostName {
            name: name.as_bytes().into(),
            wildcard,
        })
    }
}

/// In text form: `*.example.com`.
impl std::fmt::Display for HostName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let star = if self.wildcard { "*." } else { "" };
        write!(f, "{star}{}", crate::dns::name::Text(&self.name))
    }
}
