//! What a child process is asked to pull.

use serde::{Deserialize, Serialize};

use super::client::{Host, Way};
use super::credentials;
use crate::config::{Reference, Registries};

/// An artifact to pull, and from whom.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// Who is asked, one after the other until one has it.
    pub hosts: Vec<Host>,
    /// How they are reached.
    pub way: Way,
    /// The artifact's name.
    pub repository: String,
    /// Its tag.
    pub tag: Option<String>,
    /// Its digest, which comes before the tag.
    pub digest: Option<String>,
    /// The digest that is there already: nothing is pulled if the tag still names it.
    pub known: Option<String>,
    /// Whether signatures are wanted.
    pub signatures: bool,
}

impl Job {
    /// The job of pulling what `reference` names. Files that `registries` names are read now.
    ///
    /// # Errors
    /// When one of them cannot be read or understood.
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
}

/// How registries are reached.
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

/// One that is asked for what `reference` names.
///
/// # Errors
/// When its credentials cannot be read or understood.
pub fn host(name: &str, reference: &Reference, registries: &Registries) -> Result<Host, String> {
    let find = |path: &std::path::PathBuf| credentials::find(path, name, &reference.repository);
    Ok(Host {
        name: name.to_owned(),
        plain: registries.plain_http.iter().any(|host| host == name),
        credentials: registries.credentials.as_ref().map(find).transpose()?.flatten(),
    })
}
