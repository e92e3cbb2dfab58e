//! The parent's side of pulling: a [child process](super::child) does it within limits.

use std::io::{self, Read, Seek, Write};
use std::process::Stdio;

use bytes::Bytes;
use tokio::process::Command;
use tokio::time::timeout;

use super::artifact::{Artifact, UNCHANGED};
use super::job::Job;
use crate::config::{Reference, Registries, spell_duration, spell_size};
use crate::confine::{CERTIFICATES, file_in_memory};
use crate::plain_text::one_line;

/// This program, even after its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// The most bytes of memory that a pull may take: a module twice.
pub const PULL_MEMORY: usize = 128 << 20;

/// The most bytes read of an error message.
const COMPLAINT: u64 = 4096;

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
/// As text.
pub async fn pull(
    reference: &Reference,
    registries: &Registries,
    known: Option<&str>,
    signatures: bool,
) -> Result<Pulled, String> {
    let job = Job::new(reference, registries, known, signatures)?;
    let job = serde_json::to_vec(&job).map_err(|error| error.to_string())?;
    let output = in_child(&job, registries).await?;
    if output == UNCHANGED {
        return Ok(Pulled::Unchanged);
    }
    let artifact = Artifact::read(output)?;
    artifact.hold_to(reference)?;
    Ok(Pulled::New(artifact))
}

/// Returns the output of a child process that does the job.
async fn in_child(job: &[u8], registries: &Registries) -> Result<Bytes, String> {
    let machine = |error: io::Error| error.to_string();
    let mut input = file_in_memory(c"pull").map_err(machine)?;
    input
        .write_all(job)
        .and_then(|()| input.rewind())
        .map_err(machine)?;
    let mut output = file_in_memory(c"pull").map_err(machine)?;
    let mut errors = file_in_memory(c"pull").map_err(machine)?;
    let mut command = Command::new(PROGRAM);
    command
        .arg("pull-module")
        .arg(format!("--parent={}", std::process::id()))
        .arg(format!("--memory={PULL_MEMORY}"))
        .arg(format!("--milliseconds={}", registries.time.as_millis()))
        .env_clear()
        .envs(certificates())
        .current_dir("/")
        .kill_on_drop(true)
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(output.try_clone().map_err(machine)?))
        .stderr(Stdio::from(errors.try_clone().map_err(machine)?));
    let mut child = command.spawn().map_err(machine)?;
    let late = |_| format!("it took more than {} (`time`)", spell_duration(registries.time));
    let status = timeout(registries.time, child.wait())
        .await
        .map_err(late)?
        .map_err(machine)?;
    if status.success() {
        let mut octets = Vec::new();
        output
            .rewind()
            .and_then(|()| output.read_to_end(&mut octets))
            .map_err(machine)?;
        return Ok(octets.into());
    }
    let mut complaint = Vec::new();
    errors
        .rewind()
        .and_then(|()| errors.take(COMPLAINT).read_to_end(&mut complaint))
        .map_err(machine)?;
    let said = one_line(&String::from_utf8_lossy(&complaint), 1024);
    if said.contains("memory allocation of ") {
        return Err(format!(
            "what the registry sent takes more than {} of memory",
            spell_size(PULL_MEMORY)
        ));
    }
    match status.code() {
        Some(1) => Err(said),
        _ => Err(format!("the process that pulls ended with {status}: {said}")),
    }
}

/// Returns the variables that name the system's certificates, if they are not in the usual place.
fn certificates() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    CERTIFICATES
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
}
