//! What a child process is to pull.

use serde::{Deserialize, Serialize};

use super::client::{Host, Way};
use super::credentials;
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

impl Job {
    /// Creates the job to pull what `reference` names. Reads the files that `registries` names now.
    ///
    /// # Errors
    /// When one of them cannot be read or parsed.
    pub fn new(
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

    /// Returns the names and addresses of the hosts, as in URLs.
    ///
    /// # Errors
    /// When one of them is none.
    pub fn written(&self) -> Result<Vec<String>, String> {
        let written = self.hosts.iter().map(|host| {
            let url = host.url()?;
            Ok(url.host_str().unwrap_or_default().to_owned())
        });
        written.collect()
    }
}

/// Returns how registries are reached.
///
/// # Errors
/// When the certificates cannot be read.
pub fn way(registries: &Registries) -> Result<Way, String> {
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
pub fn host(name: &str, reference: &Reference, registries: &Registries) -> Result<Host, String> {
    let find = |path: &std::path::PathBuf| credentials::find(path, name, &reference.repository);
    Ok(Host {
        name: name.to_owned(),
        plain: registries.plain_http.iter().any(|host| host == name),
        credentials: registries.credentials.as_ref().map(find).transpose()?.flatten(),
    })
}
