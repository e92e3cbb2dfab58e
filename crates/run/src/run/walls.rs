//! Landlock rules for what the running process may write and execute: what its first configuration names.
//! They apply before any lasting thread starts.
//!
//! Writable are the folder of compiled, pulled and fetched files, the folders of the control sockets and of a
//! dnstap file, the lock of iptables if the node's network is managed, and `/dev/null`. Executable is this
//! program, the one that pulls modules and, with a `node` section, what is in the machine's program folders:
//! iptables and nft, and what they may be scripts of. With a kubeconfig, which may name a program for its credentials, everything is;
//! otherwise nothing writable is. Reading is not restricted, since a reload may name any file.
//!
//! The kernel cannot widen the rules: a later configuration that names another folder to write to is refused.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::{Config, SourceConfig, Stage, TapReader};
use crate::confine;
use crate::netstat;
use crate::private_folder::PrivateFolder;
use crate::programs::Program;

/// iptables' lock: the environment variable that names it, and its default.
const LOCK: (&str, &str) = ("XTABLES_LOCKFILE", "/run/xtables.lock");

/// Folders of programs, their loader, and their interpreters, besides those in PATH.
const PROGRAMS: [&str; 12] = [
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/nix/store",
    "/gnu/store",
];

/// Paths given on the command line.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The folder of compiled filters and pulled modules.
    pub compiled: Option<PathBuf>,
    /// A control socket, besides the configured one.
    pub control: Option<PathBuf>,
    /// Whether to restrict writing and executing to these and what the configuration names.
    pub walled: bool,
}

impl Places {
    /// Creates the paths of a restricted process.
    pub fn walled(compiled: Option<PathBuf>, control: Option<PathBuf>) -> Places {
        let walled = true;
        Places {
            compiled,
            control,
            walled,
        }
    }
}

/// What the process may write and execute.
#[derive(Debug, Clone, Default)]
pub(super) struct Walls {
    /// Whether to restrict it.
    wanted: bool,
    /// The control socket of the command line.
    pub control: Option<PathBuf>,
    /// The folder of kept files, as a path to this process's descriptor.
    kept: Option<PathBuf>,
    /// Once restricted: the folders where files may be created and removed.
    folders: Option<BTreeSet<PathBuf>>,
}

impl Walls {
    /// Creates them without restricting anything yet.
    pub fn new(places: &Places, kept: Option<&PrivateFolder>) -> Walls {
        let by_descriptor =
            |folder: &PrivateFolder| PathBuf::from(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()));
        Walls {
            wanted: places.walled && confine::keeps_paths(),
            control: places.control.clone(),
            kept: kept.map(by_descriptor),
            folders: None,
        }
    }

    /// Restricts this thread, and those that it starts later, to what a configuration needs.
    ///
    /// # Errors
    /// When the kernel refuses, or an earlier restriction excludes what this configuration needs.
    pub fn raise(&mut self, config: &Config) -> Result<(), String> {
        if !self.wanted || self.folders.is_some() {
            return self.hold(config);
        }
        let named: Vec<&Path> = self
            .control
            .as_deref()
            .into_iter()
            .chain(written(config))
            .collect();
        let folders: BTreeSet<PathBuf> = named.iter().filter_map(|path| folder_of(path).ok()).collect();
        let missing = named.iter().filter(|path| folder_of(path).is_err());
        for path in missing {
            tracing::warn!(
                "the folder of {} does not exist, so this process can never write there: create it, and restart dnsweir",
                path.display()
            );
        }
        let lock = config.node.as_ref().map(|_| lock());
        // From then on the process cannot look into others to find the owner of a port.
        netstat::remember_owners(config.listen.addresses.iter().chain(&config.admin.addresses));
        let null = Path::new("/dev/null");
        let files = self.kept.iter().chain(&lock).map(PathBuf::as_path).chain([null]);
        let allowed: Vec<&Path> = folders.iter().map(PathBuf::as_path).chain(files).collect();
        let programs = programs(config);
        let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
        confine::keep_to(&allowed, &programs)
            .map_err(|error| format!("cannot be kept from writing and executing what the configuration does not name (Landlock): {error}"))?;
        self.folders = Some(folders);
        Ok(())
    }

    /// Checks that the files a configuration writes are allowed.
    ///
    /// # Errors
    /// As text.
    pub fn hold(&self, config: &Config) -> Result<(), String> {
        let Some(folders) = &self.folders else {
            return Ok(());
        };
        let is_within = |path: &&Path| match folder_of(path) {
            Ok(folder) => folders.iter().any(|allowed| folder.starts_with(allowed)),
            // Creating the file there gives a better error.
            Err(_) => true,
        };
        match written(config).find(|path| !is_within(path)) {
            Some(path) => Err(format!(
                "{} is in a folder that this process cannot write to, because the configuration did not name it at the start (the kernel \
                 enforces this with Landlock): restart dnsweir",
                path.display()
            )),
            None => Ok(()),
        }
    }
}

/// Returns the files and sockets that a configuration creates.
fn written(config: &Config) -> impl Iterator<Item = &Path> {
    let tap = config.dnstap.as_ref().and_then(|tap| match &tap.to {
        TapReader::File(path, _) => Some(path.as_path()),
        TapReader::Unix(_) | TapReader::Tcp(_) => None,
    });
    config.control.as_deref().into_iter().chain(tap)
}

/// Returns the folder that a file is in, with all links resolved.
fn folder_of(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    fs::canonicalize(path.parent().unwrap_or(&path))
}

/// Returns iptables' lock file. Created here if it is missing, because iptables may not.
fn lock() -> PathBuf {
    let path = std::env::var_os(LOCK.0).map_or_else(|| LOCK.1.into(), PathBuf::from);
    let mut options = OpenOptions::new();
    let _ = options.create(true).append(true).mode(0o600).open(&path);
    path
}

/// Returns this program and the one that pulls modules, with their loader and, if the node's network is managed, the
/// programs for that. With a kubeconfig, everything: its `exec` may name any program that makes credentials.
fn programs(config: &Config) -> BTreeSet<PathBuf> {
    if names_kubeconfig(config) {
        return BTreeSet::from(["/".into()]);
    }
    let mut programs = mapped();
    programs.insert("/proc/self/exe".into());
    programs.extend(Program::Artifacts.executable().ok());
    if config.node.is_some() {
        programs.extend(PROGRAMS.map(PathBuf::from));
        let named = std::env::var_os("PATH").unwrap_or_default();
        programs.extend(std::env::split_paths(&named).filter(|folder| folder.is_absolute()));
    }
    programs
}

fn names_kubeconfig(config: &Config) -> bool {
    let stages = config.zones.iter().flat_map(|zone| &zone.stages);
    let of_zones = stages.filter_map(|stage| match stage {
        Stage::Source(source) => Some(source),
        Stage::Filter(_) | Stage::Cache(_) => None,
    });
    let mut sources = of_zones.chain(config.sources.iter().map(|named| &named.source));
    let is_named = |source: &SourceConfig| match source {
        SourceConfig::Kubernetes(kubernetes) => kubernetes.kubeconfig.is_some(),
        SourceConfig::ServiceEntries(entries) => entries.kubeconfig.is_some(),
        _ => false,
    };
    sources.any(is_named) || config.pods.as_ref().is_some_and(|pods| pods.kubeconfig.is_some())
}

/// Returns the files mapped as code in this process: among them the loader, which the kernel executes for us.
fn mapped() -> BTreeSet<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let file = |line: &str| {
        let mut words = line.splitn(6, ' ').skip(1);
        let is_code = words.next()?.contains('x');
        let path = words.last()?.trim_start();
        (is_code && path.starts_with('/')).then(|| PathBuf::from(path))
    };
    maps.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::filter;

    /// Runs in a separate thread, which alone is restricted.
    fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().unwrap()
    }

    #[test]
    fn the_first_configuration_says_what_is_written_from_then_on() {
        if !confine::keeps_paths() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["run", "taps", "kept", "elsewhere"] {
            fs::create_dir(at(name)).unwrap();
        }
        let path = folder.path().to_owned();
        aside(move || {
            let at = |name: &str| path.join(name);
            let config = |words: &str| {
                let text = format!("listen \"127.0.0.1\"\n{words}\nzone \".\" {{ forward \"192.0.2.1\" }}");
                config::parse("test", &text, &path, filter::BUILTINS).unwrap()
            };
            let kept = PrivateFolder::open(&at("kept")).unwrap();
            let places = Places::walled(None, Some(at("run/control")));
            let mut walls = Walls::new(&places, Some(&kept));
            let first = config("dnstap \"taps/first.tap\"");
            walls.raise(&first).unwrap();
            kept.store("file", &[b"kept"]).unwrap();
            for name in ["run/control", "taps/first.tap", "taps/other"] {
                fs::write(at(name), "").unwrap();
            }
            fs::write("/dev/null", "").unwrap();
            let refused = fs::write(at("elsewhere/file"), "").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(
                std::process::Command::new("/bin/true").status().is_err(),
                "no network is kept"
            );
            // A second start in the same process, as with `--wait`, finds the same restriction.
            walls.raise(&config("control \"taps/control\"")).unwrap();
            walls.hold(&config("control \"run/missing/control\"")).unwrap();
            for words in ["control \"elsewhere/control\"", "dnstap \"elsewhere/tap\""] {
                let said = walls.hold(&config(words)).unwrap_err();
                assert!(
                    said.contains("elsewhere/") && said.ends_with("restart dnsweir"),
                    "{said}"
                );
            }
        });
    }

    #[test]
    fn a_kubeconfig_may_name_any_program_for_its_credentials() {
        if !confine::keeps_paths() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        fs::write(&file, "").unwrap();
        aside(move || {
            let text = format!(
                "listen \"127.0.0.1\"\nzone \"cluster.local\" {{ kubernetes {{ kubeconfig {file:?} }} }}"
            );
            let config = config::parse("test", &text, Path::new("/"), filter::BUILTINS).unwrap();
            let places = Places {
                walled: true,
                ..Places::default()
            };
            Walls::new(&places, None).raise(&config).unwrap();
            assert!(
                std::process::Command::new("/bin/true")
                    .status()
                    .unwrap()
                    .success()
            );
            assert!(fs::write(&file, "").is_err(), "it is not written to");
        });
    }

    #[test]
    fn the_loader_and_the_program_are_what_runs() {
        let mapped = mapped();
        let own = std::env::current_exe().unwrap();
        assert!(mapped.contains(&own), "{mapped:?}");
    }
}
