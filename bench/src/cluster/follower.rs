//! The servers that follow the cluster, with equal setups: no cache, the same TTL, no names of pods, one
//! processor.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Server, free_port};
use crate::rotation::{FIRST_PORT, SERVERS};

/// The paths of the programs.
pub struct Programs {
    pub dnsweir: PathBuf,
    pub coredns: PathBuf,
}

impl Programs {
    /// Returns the version that each prints.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let version = |program: &Path, argument: &str| {
            let said = Command::new(program)
                .arg(argument)
                .output()
                .map(|output| output.stdout);
            let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
            said.lines().next().unwrap_or_default().to_owned()
        };
        let versions = [
            (Follower::Dnsweir, version(&self.dnsweir, "--version")),
            (Follower::CoreDns, version(&self.coredns, "-version")),
        ];
        versions
            .map(|(follower, version)| (follower.name().to_owned(), version))
            .into()
    }
}

/// A server that follows the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Follower {
    Dnsweir,
    CoreDns,
}

impl Follower {
    pub const ALL: [Follower; 2] = [Follower::Dnsweir, Follower::CoreDns];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Follower::Dnsweir => "dnsweir",
            Follower::CoreDns => "CoreDNS",
        }
    }

    /// Returns its name in the raw numbers at this size of the cluster.
    pub fn point(self, services: u32) -> String {
        format!("{}={services}", self.name())
    }

    /// Writes its configuration into `folder`.
    pub fn set_up(self, programs: &Programs, folder: &Path, kubeconfig: &str) -> io::Result<SetUp> {
        let address = SocketAddrV4::new(SERVERS, free_port(SERVERS, FIRST_PORT)?);
        let (file, access) = (folder.join("configuration"), folder.join("kubeconfig"));
        fs::write(&access, kubeconfig)?;
        let access = access.display();
        let (text, mut command) = match self {
            Follower::Dnsweir => {
                let admin = free_port(SERVERS, address.port() + 1)?;
                let text = format!(
                    "listen \"{address}\"\nadmin \"{SERVERS}:{admin}\"\nworkers 1\n\
                     zone \"cluster.local\" \"in-addr.arpa\" {{ kubernetes {{ kubeconfig \"{access}\"; ttl \"5s\" }} }}\n"
                );
                let mut command = Command::new(&programs.dnsweir);
                command.args(["run", "--log-level", "warn", "--config"]);
                (text, command)
            }
            Follower::CoreDns => {
                let port = address.port();
                let text = format!(
                    ".:{port} {{\n    bind {SERVERS}\n    kubernetes cluster.local in-addr.arpa {{\n        \
                     kubeconfig {access}\n        pods disabled\n        ttl 5\n    }}\n}}\n"
                );
                let mut command = Command::new(&programs.coredns);
                command.arg("-conf");
                (text, command)
            }
        };
        fs::write(&file, text)?;
        command.arg(&file);
        Ok(SetUp {
            command,
            address,
            folder: folder.to_owned(),
        })
    }
}

/// A server ready to be started.
pub struct SetUp {
    command: Command,
    address: SocketAddrV4,
    folder: PathBuf,
}

impl SetUp {
    /// Starts it on this processor, without waiting for an answer.
    pub fn start(&mut self, core: usize) -> io::Result<Server> {
        Server::launch(&mut self.command, core, self.address, &self.folder)
    }

    /// Returns the end of its output.
    pub fn last_words(&self) -> String {
        crate::process::last_words(&self.folder)
    }
}
