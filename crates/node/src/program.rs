//! The programs that we run, iptables and nft, each with a deadline after which it is killed.

use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::error::{Error, Kind};

/// How long a program may take. Longer than the wait for the xtables lock, to tell a held lock from a program
/// that hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// Runs a program to its end, whatever its exit status.
///
/// Errors: [`Kind::Deadline`] if it took longer than [`DEADLINE`] and was killed; [`Kind::Iptables`] if it
/// could not be started ([`is_missing`](Failure::is_missing): because it does not exist).
pub async fn run(program: &str, arguments: &[&str], input: &str) -> Result<Output, Failure> {
    within(DEADLINE, program, arguments, input).await
}

/// Why a program did not finish.
#[derive(Debug)]
pub struct Failure {
    program: String,
    why: Why,
}

#[derive(Debug)]
enum Why {
    NotStarted(io::Error),
    TooLate(Duration),
}

impl Failure {
    /// Returns whether the program does not exist on this machine.
    pub fn is_missing(&self) -> bool {
        matches!(&self.why, Why::NotStarted(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let (kind, why) = match failure.why {
            Why::NotStarted(error) => (Kind::Iptables, format!("could not be run: {error}")),
            Why::TooLate(deadline) => (
                Kind::Deadline,
                format!(
                    "did not finish within {} s and was killed",
                    deadline.as_secs_f32()
                ),
            ),
        };
        Error {
            kind,
            text: format!("{} {why}", failure.program),
        }
    }
}

async fn within(
    deadline: Duration,
    program: &str,
    arguments: &[&str],
    input: &str,
) -> Result<Output, Failure> {
    let failed = |why| Failure {
        program: program.to_string(),
        why,
    };
    let ran = async {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Kills it after the deadline; the runtime reaps it.
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program may exit without reading its input: the exit status says why.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    match timeout(deadline, ran).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(failed(Why::NotStarted(error))),
        Err(_) => Err(failed(Why::TooLate(deadline))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(work)
    }

    #[test]
    fn input_goes_in_and_output_comes_out() {
        let output = wait(run("cat", &[], "one\ntwo\n")).unwrap();
        assert_eq!(output.stdout, b"one\ntwo\n");
    }

    /// Returns whether a program runs with this argument. A killed one no longer has arguments.
    fn runs(argument: &str) -> bool {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines =
            processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.any(|line| line == format!("sleep\0{argument}\0"))
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let seconds = format!("1000000.{}", std::process::id());
        let failure = wait(within(Duration::from_millis(1), "sleep", &[&seconds], "")).unwrap_err();
        assert!(!failure.is_missing());
        let error = Error::from(failure);
        assert_eq!(error.kind, Kind::Deadline);
        assert_eq!(
            error.to_string(),
            "sleep did not finish within 0.001 s and was killed"
        );
        while runs(&seconds) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = wait(run("dnsweir-no-such-program", &[], "")).unwrap_err();
        assert!(failure.is_missing());
        assert!(Error::from(failure).to_string().contains("no-such-program"));
    }
}
