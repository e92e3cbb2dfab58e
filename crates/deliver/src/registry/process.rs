//! The parent's side of `dnsweir-artifacts`, which asks registries and verifies signatures: a process for each job.
//!
//! It reads what strangers send. So it has limits, and knows the passwords only of the hosts that it asks. Job, output and
//! errors go through three in-memory files shared only by these two, of which the parent reads a bounded part.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::config::{Registries, spell_duration, spell_size};
use crate::confine::{CERTIFICATES, Confinement, Reach, file_in_memory};
use crate::plain_text::one_line;
use crate::programs::{EX_OSERR, Program};

/// The most bytes of memory that the process may take for the proxy: a module twice.
pub const PULL_MEMORY: usize = 128 << 20;

/// The most bytes read of an error message.
const COMPLAINT: usize = 4096;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is missing or of another version, or the machine does not let it run.
    #[error("{0}")]
    Machine(String),
    /// It failed, or exceeded its limits.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for Error {
    fn from(problem: String) -> Error {
        Error::Failed(problem)
    }
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Pulls an artifact: a [`Job`](super::job::Job) in, its parts out.
    Pull,
    /// Pushes a module: a [`Destination`](super::job::Destination) and the module in, a digest out.
    Push,
    /// Verifies signatures: a [`Verification`](super::policy::Verification) in, a
    /// [`Verified`](super::policy::Verified) for each signature that is wanted out.
    Verify,
}

impl Work {
    /// All of it.
    pub const ALL: [Work; 3] = [Work::Pull, Work::Push, Work::Verify];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Work::Pull => "pull",
            Work::Push => "push",
            Work::Verify => "verify",
        }
    }

    /// Returns what the process may access.
    pub fn reach(self) -> Reach {
        match self {
            Work::Pull | Work::Push => Reach::Servers,
            Work::Verify => Reach::Nothing,
        }
    }

    /// Describes why a process failed that has `said` this.
    fn failure(self, limits: Confinement, status: ExitStatus, said: String) -> Error {
        let (pulls, what) = match self {
            Work::Pull => ("pulls", "what the registry sent takes"),
            Work::Push => ("pushes", "the module takes"),
            Work::Verify => ("verifies signatures", "verifying the signatures takes"),
        };
        if said.contains("memory allocation of ") {
            let memory = spell_size(limits.memory);
            return Error::Failed(format!("{what} more than {memory} of memory"));
        }
        match status.code() {
            Some(1) => Error::Failed(said),
            Some(code) if code == i32::from(EX_OSERR) => Error::Machine(said),
            _ => Error::Failed(format!("the process that {pulls} ended with {status}: {said}")),
        }
    }

    /// Describes that a process took too long.
    fn late(self, time: Duration) -> Error {
        let time = spell_duration(time);
        Error::Failed(match self {
            Work::Pull | Work::Verify => format!("it took more than {time} (`time`)"),
            Work::Push => format!("it took more than {time}"),
        })
    }
}

/// Returns the limits of a process that pulls or verifies.
pub(super) fn limits(registries: &Registries) -> Confinement {
    Confinement {
        memory: PULL_MEMORY,
        time: registries.time,
    }
}

/// Returns the first `most` bytes of what a process makes of the `input`. Dropping the future ends the process.
///
/// # Errors
/// When it does not start, fails, or exceeds its limits.
pub(super) async fn run(
    work: Work,
    input: &[&[u8]],
    limits: Confinement,
    most: usize,
) -> Result<Vec<u8>, Error> {
    let machine = |error: io::Error| Error::Machine(error.to_string());
    let unstarted = |error: io::Error| Error::Machine(Program::Artifacts.failure(&error));
    let mut job = file_in_memory(c"artifacts").map_err(machine)?;
    let written = input.iter().try_for_each(|part| job.write_all(part));
    written.and_then(|()| job.rewind()).map_err(machine)?;
    let output = file_in_memory(c"artifacts").map_err(machine)?;
    let errors = file_in_memory(c"artifacts").map_err(machine)?;
    let child = Program::Artifacts.child(work.name(), limits);
    let mut command = Command::from(child.map_err(unstarted)?);
    command
        .envs(certificates())
        .kill_on_drop(true)
        .stdin(Stdio::from(job))
        .stdout(Stdio::from(output.try_clone().map_err(machine)?))
        .stderr(Stdio::from(errors.try_clone().map_err(machine)?));
    let mut child = command.spawn().map_err(unstarted)?;
    let status = timeout(limits.time, child.wait()).await;
    let status = status.map_err(|_| work.late(limits.time))?.map_err(machine)?;
    if status.success() {
        return read(output, most).map_err(machine);
    }
    let said = read(errors, COMPLAINT).map_err(machine)?;
    let said = one_line(&String::from_utf8_lossy(&said), COMPLAINT);
    Err(work.failure(limits, status, said))
}

/// Returns the first `most` bytes of a file, in no more memory than that.
fn read(mut file: File, most: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).map_or(most, |length| length.min(most));
    let mut octets = Vec::with_capacity(length);
    file.rewind()?;
    file.take(length as u64).read_to_end(&mut octets)?;
    Ok(octets)
}

/// Returns the variables that name the system's certificates, if they are not in the usual place.
fn certificates() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    CERTIFICATES
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
}
