//! A network namespace with its own loopback and its own `/etc/resolv.conf`: for what only works on fixed
//! addresses.

use std::path::Path;
use std::process::Command;

use super::process::Process;
use super::tools;

/// A network and mount namespace with `lo` up. It lasts as long as the process that holds it.
pub struct Namespace(Process);

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace::new()
    }
}

impl Namespace {
    /// Creates one; [`tools::needs`] `root` tells whether that works here.
    pub fn new() -> Namespace {
        let script = "ip link set lo up && echo up && exec sleep infinity";
        let mut command = tools::command("unshare");
        command.args(["--net", "--mount", "--propagation", "private", "sh", "-c", script]);
        let holder = Process::start(&mut command);
        holder.printed("a network namespace", |line| line == "up");
        Namespace(holder)
    }

    /// Returns a command that runs in it.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = tools::command("nsenter");
        command
            .args(["--net", "--mount", "--target", &self.0.id().to_string(), "--"])
            .arg(program);
        command
    }

    /// Returns a command for a tool that runs in it.
    pub fn tool(&self, tool: &str) -> Command {
        self.command(&tools::find(tool).unwrap_or_else(|| tool.into()))
    }

    /// Replaces a file with another one, inside only.
    pub fn replace(&self, place: &str, file: &Path) {
        tools::output(self.tool("mount").arg("--bind").arg(file).arg(place));
    }
}
