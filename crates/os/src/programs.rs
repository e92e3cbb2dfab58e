//! The programs beside this one: how they are found and started, and that they are of its version.
//!
//! What no query needs is in programs of its own, in the folder of `dnsweir`, wherever that is. An upgrade may replace
//! some of these files while `dnsweir` runs. So a program ends with an error if one of another version has started it:
//! neither knows what the other expects. The proxy [holds](Program::hold) what it may start later.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};

use crate::confine::Confinement;

/// The exit code if the configuration or the command line is not valid (sysexits.h).
pub const EX_USAGE: u8 = 64;

/// The exit code for an error of this machine, such as an address already in use, or a program that is missing.
pub const EX_OSERR: u8 = 71;

/// The version of all programs.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first argument of a program that another one starts. The version of the latter follows.
const FOR: &str = "--for";

/// What the kernel adds to the path of a running program whose file was removed or replaced.
const DELETED: &[u8] = b" (deleted)";

/// The program that is held, and its file.
static HELD: OnceLock<(Program, OwnedFd)> = OnceLock::new();

/// A program beside this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Asks registries, and verifies signatures, as a [`Child`].
    Artifacts,
    /// Shows in a terminal what a running process does.
    Top,
    /// The admission webhook.
    Webhook,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Artifacts => "dnsweir-artifacts",
            Program::Top => "dnsweir-top",
            Program::Webhook => "dnsweir-webhook",
        }
    }

    /// Returns its path, whether or not it is there.
    fn path(self) -> io::Result<PathBuf> {
        Ok(beside(std::env::current_exe()?, self.name()))
    }

    /// Holds its file for the rest of this process, which then starts that one, whatever replaces it. The file must not
    /// be a script: its interpreter could not open it. Does nothing if it is not there, or one is held already.
    pub fn hold(self) {
        let opened = self.path().and_then(|path| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            Ok(open(path, flags, Mode::empty())?)
        });
        if let Ok(file) = opened {
            let _ = HELD.set((self, file));
        }
    }

    /// Returns the path of the file to execute: of the one that is held, or of the one beside this program, whether or
    /// not it is there.
    ///
    /// # Errors
    /// Without `/proc`, which says where this program is.
    pub fn executable(self) -> io::Result<PathBuf> {
        match HELD.get() {
            Some((held, file)) if *held == self => Ok(format!("/proc/self/fd/{}", file.as_raw_fd()).into()),
            _ => self.path(),
        }
    }

    /// Returns a command that starts it, for further arguments.
    fn command(self) -> io::Result<Command> {
        let mut command = Command::new(self.executable()?);
        // Its messages, and tools that list processes, show where it is.
        command.arg0(self.path()?).args([FOR, VERSION]);
        Ok(command)
    }

    /// Returns a command that starts it as a child for this work, within limits, without an environment.
    ///
    /// # Errors
    /// As [`Program::executable`].
    pub fn child(self, work: &str, limits: Confinement) -> io::Result<Command> {
        let mut command = self.command()?;
        let milliseconds = limits.time.as_millis();
        command
            .arg(work)
            .arg(std::process::id().to_string())
            .arg(limits.memory.to_string())
            .arg(milliseconds.to_string())
            .env_clear()
            .current_dir("/");
        Ok(command)
    }

    /// Replaces this process with it, with these arguments. Returns only if that fails, and why.
    pub fn replace_this(self, arguments: impl IntoIterator<Item = OsString>) -> String {
        let error = match self.command() {
            Ok(mut command) => command.args(arguments).exec(),
            Err(error) => error,
        };
        self.failure(&error)
    }

    /// Describes why it did not start, and what to do.
    pub fn failure(self, error: &io::Error) -> String {
        let name = self.name();
        let path = match self.path() {
            Ok(path) => path,
            Err(_) => {
                return format!(
                    "{name} is not found without /proc, which says where this program is: {error}"
                );
            }
        };
        let shown = path.display();
        match error.kind() {
            io::ErrorKind::NotFound if !path.exists() => {
                format!(
                    "{shown} is missing: install {name} {VERSION}, of the same release, beside this program"
                )
            }
            _ => format!("{shown} cannot be started: {error}; after an upgrade, restart dnsweir"),
        }
    }
}

/// What a child of one of our programs does, and within which limits.
#[derive(Debug, PartialEq, Eq)]
pub struct Child {
    /// What it does.
    pub work: String,
    /// The process that waits for it.
    pub parent: u32,
    /// The resources that it may use.
    pub limits: Confinement,
}

impl Child {
    /// Reads the arguments that [`Program::child`] has written.
    pub fn read(arguments: &[OsString]) -> Option<Child> {
        let [work, parent, memory, milliseconds] = arguments else {
            return None;
        };
        let milliseconds = milliseconds.to_str()?.parse().ok()?;
        Some(Child {
            work: work.to_str()?.to_owned(),
            parent: parent.to_str()?.parse().ok()?,
            limits: Confinement {
                memory: memory.to_str()?.parse().ok()?,
                time: Duration::from_millis(milliseconds),
            },
        })
    }
}

/// Returns the path of a program in the folder of `own`, the path of a running program as the kernel knows it.
fn beside(own: PathBuf, name: &str) -> PathBuf {
    let own = own.into_os_string().into_vec();
    let own = own.strip_suffix(DELETED).unwrap_or(&own);
    Path::new(OsStr::from_bytes(own)).with_file_name(name)
}

/// Returns the arguments of this program, which another one has started, after those about the version.
///
/// # Errors
/// If that program has another version, or is none of ours.
pub fn started_with() -> Result<Vec<OsString>, String> {
    let mut arguments = std::env::args_os();
    let own = arguments.next().unwrap_or_default();
    after_version(arguments).map_err(|version| {
        let shown = own.display();
        match version {
            None => format!("{shown} is a part of dnsweir: start the program `dnsweir` instead"),
            Some(other) => format!(
                "{shown} is of version {VERSION}, but dnsweir {} runs: after an upgrade, restart it; otherwise, install \
                 both from one release",
                other.display()
            ),
        }
    })
}

/// Returns the arguments after those about the version, if it is ours.
///
/// # Errors
/// The other version, if there is one.
fn after_version(mut arguments: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, Option<OsString>> {
    match (arguments.next(), arguments.next()) {
        (Some(word), Some(version)) if word == FOR => match version == VERSION {
            true => Ok(arguments.collect()),
            false => Err(Some(version)),
        },
        _ => Err(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also while the program that runs is no longer there, because an upgrade has replaced it.
    #[test]
    fn programs_are_in_the_folder_of_this_one() {
        for own in ["/opt/a b/dnsweir", "/opt/a b/dnsweir (deleted)"] {
            assert_eq!(
                beside(own.into(), "dnsweir-top"),
                Path::new("/opt/a b/dnsweir-top")
            );
        }
    }

    #[test]
    fn only_our_own_version_is_served() {
        let after = |words: &str| after_version(words.split_whitespace().map(OsString::from));
        let started = format!("{FOR} {VERSION} --once --for x");
        assert_eq!(after(&started).unwrap(), ["--once", "--for", "x"]);
        assert_eq!(after("--for 0.0.9 --once").unwrap_err().unwrap(), "0.0.9");
        for words in ["", "--once", "--for", "--help --for 0.1.0"] {
            assert_eq!(after(words), Err(None), "{words}");
        }
    }

    #[test]
    fn a_child_reads_what_its_parent_wrote() {
        let limits = Confinement {
            memory: 1 << 27,
            time: Duration::from_millis(1500),
        };
        let command = Program::Artifacts.child("pull", limits).unwrap();
        let arguments = command.get_args().map(OsStr::to_owned);
        let arguments = after_version(arguments).unwrap();
        let child = Child {
            work: "pull".into(),
            parent: std::process::id(),
            limits,
        };
        assert_eq!(Child::read(&arguments), Some(child));
        assert_eq!(Child::read(&arguments[1..]), None);
    }

    #[test]
    fn what_does_not_start_is_named_with_its_folder() {
        let missing = Program::Top.failure(&io::ErrorKind::NotFound.into());
        let folder = std::env::current_exe()
            .unwrap()
            .parent()
            .unwrap()
            .display()
            .to_string();
        assert!(
            missing.starts_with(&format!("{folder}/dnsweir-top is missing: ")) && missing.contains(VERSION),
            "{missing}"
        );
        let refused = Program::Top.failure(&io::ErrorKind::PermissionDenied.into());
        assert!(
            refused.contains("/dnsweir-top cannot be started: permission denied"),
            "{refused}"
        );
    }
}
