//! Pushes modules, in a [process](super::process) with limits.

use std::time::Duration;

use bytes::Bytes;

use super::artifact::{LARGEST_MODULE, checked};
use super::job::Destination;
use super::process::{Error, Work, run};
use crate::config::{Reference, Registries, spell_size};
use crate::confine::Confinement;

/// What the process may take: memory for a module and what is made of it on the way, and as long as a registry may take
/// for each part of it.
const LIMITS: Confinement = Confinement {
    memory: 4 * LARGEST_MODULE,
    time: Duration::from_secs(900),
};

/// The largest digest that is read, in bytes.
const ANSWER: usize = 128;

/// Pushes `module` as `reference`, which has a tag and no digest, and returns the digest of its manifest.
///
/// # Errors
/// When the reference is no place to push to, or the registry refuses the module.
pub async fn push(module: Bytes, reference: &Reference, registries: &Registries) -> Result<String, Error> {
    let Some(tag) = reference.tag.clone().filter(|_| reference.is_movable()) else {
        let problem = "the reference needs a tag and must not have a digest: oci://REGISTRY/NAME:TAG";
        return Err(Error::Failed(problem.into()));
    };
    if module.len() > LARGEST_MODULE {
        let largest = spell_size(LARGEST_MODULE);
        return Err(Error::Failed(format!("it is larger than {largest}")));
    }
    let destination = Destination::new(reference, tag, registries)?;
    let head = serde_json::to_vec(&destination).map_err(|error| error.to_string())?;
    let digest = run(Work::Push, &[&head, b"\n", &module], LIMITS, ANSWER).await?;
    let digest = String::from_utf8_lossy(&digest);
    Ok(checked(&digest)?.to_owned())
}
