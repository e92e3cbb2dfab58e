//! What a process is to pull, or to push.

use serde::{Deserialize, Serialize};

use super::credentials::{self, Credentials};
use crate::config::{Reference, Registries};

/// An artifact to pull, and the hosts that may have it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// The hosts to ask in turn, until one has it.
    pub hosts: Vec<Host>,
    /// How to reach them.
    pub way: Way,
    /// The artifact's repository.
    pub repository: String,
    /// Its tag.
    pub tag: Option<String>,
    /// Its digest, which takes precedence over the tag.
    pub digest: Option<String>,
    /// The digest we already have: nothing is pulled if the tag still names it.
    pub known: Option<String>,
    /// Whether to pull signatures.
    pub signatures: bool,
}

/// Where a module is pushed to. It follows in the input, after a line feed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// How to reach it.
    pub way: Way,
    /// The repository.
    pub repository: String,
    /// The tag.
    pub tag: String,
}

/// A registry host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Host {
    /// Its name or address, with a port if it is not the default.
    pub name: String,
    /// Whether to connect without TLS.
    pub plain: bool,
    /// The credentials to present.
    pub credentials: Option<Credentials>,
}

/// How all hosts are reached.
#[derive(Debug, Serialize, Deserialize)]
pub struct Way {
    /// The CA certificates to trust, in PEM; `None` for the system's.
    pub ca: Option<String>,
    /// The proxy to connect through.
    pub proxy: Option<String>,
}

impl Job {
    /// Creates the job to pull what `reference` names. Reads the files that `registries` names now.
    ///
    /// # Errors
    /// When one of them cannot be read or parsed.
    pub(super) fn new(
        reference: &Reference,
        registries: &Registries,
        known: Option<&str>,
        signatures: bool,
    ) -> Result<Job, String> {
        let mirrors = registries
            .mirrors
            .iter()
            .filter(|(registry, _)| *registry == reference.registry);
        let mirrors = mirrors.flat_map(|(_, hosts)| hosts);
        let hosts = mirrors
            .chain([&reference.registry])
            .map(|name| host(name, reference, registries));
        Ok(Job {
            hosts: hosts.collect::<Result<_, _>>()?,
            way: way(registries)?,
            repository: reference.repository.clone(),
            tag: reference.tag.clone(),
            digest: reference.digest.clone(),
            known: known.map(str::to_owned),
            signatures,
        })
    }
}

impl Destination {
    /// Returns where a module is pushed to as `reference`, with this tag. Reads the files that `registries` names now.
    ///
    /// # Errors
    /// When one of them cannot be read or parsed.
    pub(super) fn new(
        reference: &Reference,
        tag: String,
        registries: &Registries,
    ) -> Result<Destination, String> {
        Ok(Destination {
            host: host(&reference.registry, reference, registries)?,
            way: way(registries)?,
            repository: reference.repository.clone(),
            tag,
        })
    }
}

/// Returns how registries are reached.
///
/// # Errors
/// When the certificates cannot be read.
fn way(registries: &Registries) -> Result<Way, String> {
    let read = |path: &std::path::PathBuf| {
        let shown = path.display();
        let read = crate::config::read_source(path);
        read.map(|source| source.text().to_owned())
            .map_err(|_| format!("the certificates {shown} cannot be read, or are not in PEM"))
    };
    Ok(Way {
        ca: registries.ca.as_ref().map(read).transpose()?,
        proxy: registries.proxy.clone(),
    })
}

/// Returns a host to ask for what `reference` names.
///
/// # Errors
/// When its credentials cannot be read or parsed.
fn host(name: &str, reference: &Reference, registries: &Registries) -> Result<Host, String> {
    let find = |path: &std::path::PathBuf| credentials::find(path, name, &reference.repository);
    Ok(Host {
        name: name.to_owned(),
        plain: registries.plain_http.iter().any(|host| host == name),
        credentials: registries.credentials.as_ref().map(find).transpose()?.flatten(),
    })
}
