//! Pulls modules, in a [process](super::process) with limits.

use super::artifact::{Artifact, UNCHANGED};
use super::job::Job;
use super::process::{Error, PULL_MEMORY, Work, limits, run};
use crate::config::{Reference, Registries};

/// The result of a pull.
pub enum Pulled {
    /// The tag still names the known artifact.
    Unchanged,
    /// The artifact, checked against the reference's digest and its own.
    New(Artifact),
}

/// Pulls what `reference` names unless that is `known`, with signatures if wanted. Dropping the future
/// cancels it.
///
/// # Errors
/// When it cannot be pulled, or is no artifact with a module.
pub async fn pull(
    reference: &Reference,
    registries: &Registries,
    known: Option<&str>,
    signatures: bool,
) -> Result<Pulled, Error> {
    let job = Job::new(reference, registries, known, signatures)?;
    let job = serde_json::to_vec(&job).map_err(|error| error.to_string())?;
    let output = run(Work::Pull, &[&job], limits(registries), PULL_MEMORY).await?;
    if output == UNCHANGED {
        return Ok(Pulled::Unchanged);
    }
    let artifact = Artifact::read(output.into())?;
    artifact.hold_to(reference)?;
    Ok(Pulled::New(artifact))
}
