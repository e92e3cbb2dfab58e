//! One history: a scenario, played by the program in its own folder.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use harness::guests::build_some;

use crate::outcome::{Ended, Outcome};

/// Configurations that histories name. Each is a file `NAME.kdl` in the program's folder; the one in use is
/// `live.kdl`.
pub const CONFIGURATIONS: [(&str, &str); 8] = [
    ("one", include_str!("configurations/one.kdl")),
    ("other", include_str!("configurations/other.kdl")),
    ("filtered", include_str!("configurations/filtered.kdl")),
    ("own", include_str!("configurations/own.kdl")),
    ("waiting", include_str!("configurations/waiting.kdl")),
    ("spinning", include_str!("configurations/spinning.kdl")),
    ("cluster", include_str!("configurations/cluster.kdl")),
    ("bad", include_str!("configurations/bad.kdl")),
];

/// The program's own folder, below the one with scenario, report and log: it watches its configuration's
/// folder, and would notice readers of those files.
const PLACE: &str = "proxy";

/// Seconds of CPU time without a call after which a thread counts as silent: wall time depends on other
/// processes.
const SILENT: f64 = 2.0;

/// The limit in wall time, for a process that waits for something outside the box.
const STUCK: Duration = Duration::from_secs(300);

/// The limit on a history in real time: exceeding it says nothing about the program.
const LONGEST: Duration = Duration::from_secs(3600);

/// A history to play.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Determines the order of threads, ports and everything else that the lines leave open.
    pub seed: u64,
    /// The configuration that the program starts with.
    pub configuration: String,
    /// Lines of a scenario (src/scenario.rs).
    pub lines: Vec<String>,
}

impl History {
    /// Plays it, and returns the outcome.
    ///
    /// # Errors
    /// If it cannot be played, which says nothing about the program.
    pub fn play(&self) -> Result<Outcome, String> {
        let place = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
        self.play_in(place.path())
    }

    /// Plays it in a folder, and leaves everything there.
    ///
    /// # Errors
    /// As above.
    pub fn play_in(&self, folder: &Path) -> Result<Outcome, String> {
        let failed = |error: io::Error| format!("cannot play a history: {error}");
        self.prepare(folder).map_err(failed)?;
        let mut child = command(folder).map_err(failed)?.spawn().map_err(failed)?;
        let ended = watch(&mut child, folder).map_err(failed)?;
        Outcome::read(folder, ended).map_err(failed)
    }

    /// Whether it ever uses a configuration.
    fn names(&self, configuration: &str) -> bool {
        let file = format!(" {configuration}.kdl ");
        self.configuration == configuration || self.lines.iter().any(|line| line.contains(&file))
    }

    fn prepare(&self, folder: &Path) -> io::Result<()> {
        let place = folder.join(PLACE);
        for name in ["home", "control"] {
            fs::create_dir_all(place.join(name))?;
        }
        for (name, text) in CONFIGURATIONS {
            fs::write(place.join(name).with_extension("kdl"), text)?;
        }
        fs::write(place.join("own.zone"), include_str!("configurations/own.zone"))?;
        fs::write(
            place.join("kubeconfig"),
            include_str!("configurations/kubeconfig"),
        )?;
        if ["filtered", "spinning"].iter().any(|name| self.names(name)) {
            for (module, path) in modules() {
                fs::copy(path, place.join(module))?;
            }
        }
        let first = place.join(&self.configuration).with_extension("kdl");
        if !place.join("live.kdl").exists() {
            fs::hard_link(first, place.join("live.kdl"))?;
        }
        let mut text = format!("seed {}\nreport ../report\n", self.seed);
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        fs::write(folder.join("scenario"), text)
    }
}

/// Builds the modules of failing filters, once, and returns them by file name.
fn modules() -> &'static [(&'static str, PathBuf)] {
    static MODULES: OnceLock<Vec<(&str, PathBuf)>> = OnceLock::new();
    MODULES.get_or_init(|| {
        let folder = build_some(&["hostile-trap", "hostile-spin"].map(str::to_owned));
        let names = ["hostile_trap.wasm", "hostile_spin.wasm"];
        names.map(|name| (name, folder.join(name))).into()
    })
}

/// Returns the command that runs the program in a folder.
fn command(folder: &Path) -> io::Result<Command> {
    let log = File::create(folder.join("log"))?;
    let mut command = Command::new(program());
    command
        .args(["run", "--config", "live.kdl"])
        .current_dir(folder.join(PLACE));
    command.env_clear().env("HOME", "home");
    command
        .env("DNSWEIR_BOX", "../scenario")
        .env("LD_PRELOAD", library()?);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // Memory addresses must be the same each time, because they seed hash tables.
    // SAFETY: one system call between fork and exec, which takes no lock.
    unsafe {
        command.pre_exec(
            || match libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            },
        )
    };
    Ok(command)
}

/// Returns the path of the proxy under test.
fn program() -> PathBuf {
    match std::env::var_os("DNSWEIR_PROGRAMS") {
        Some(folder) => Path::new(&folder).join("dnsweir"),
        None => PathBuf::from("dnsweir"),
    }
}

/// Returns the path of the box. Cargo puts it beside this program.
fn library() -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let library = this.with_file_name("libdnsweir_box.so");
    match library.exists() {
        true => Ok(library),
        false => Err(io::Error::other(format!("there is no {}", library.display()))),
    }
}

/// Waits until the program has ended or stopped making calls.
fn watch(child: &mut Child, folder: &Path) -> io::Result<Ended> {
    let pulse = folder.join("report.pulse");
    let begin = Instant::now();
    let (mut last, mut since, mut used) = (0, Instant::now(), 0.0);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::By(status));
        }
        std::thread::sleep(Duration::from_millis(if begin.elapsed().as_millis() < 500 {
            2
        } else {
            20
        }));
        let words = fs::read(&pulse).unwrap_or_default();
        let word = |index: usize| {
            let octets = words
                .get(index * 8..index * 8 + 8)
                .and_then(|octets| octets.try_into().ok());
            octets.map_or(0, u64::from_ne_bytes)
        };
        if word(0) != last || word(2) != 0 {
            (last, since, used) = (word(0), Instant::now(), processor(child.id()));
        }
        let ended = if processor(child.id()) - used > SILENT || since.elapsed() > STUCK {
            Ended::Silent(stack(child.id(), word(1)))
        } else if begin.elapsed() > LONGEST {
            Ended::Late
        } else {
            continue;
        };
        child.kill()?;
        child.wait()?;
        return Ok(ended);
    }
}

/// Returns the CPU seconds that a process has used (proc(5), fields 14 and 15 of stat).
fn processor(process: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    // SAFETY: only queries a number.
    ticks / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

/// Returns a thread's stack from gdb, or a hint if gdb is not available.
fn stack(process: u32, thread: u64) -> String {
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-batch",
        "-nx",
        "-p",
        &process.to_string(),
        "-ex",
        "thread apply all -q backtrace 24",
    ]);
    let unseen = || format!("thread {thread} of the process; gdb would show its stack");
    let Ok(output) = gdb.stdin(Stdio::null()).output() else {
        return unseen();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mark = format!("(LWP {thread})");
    // Two parts name it: the list of threads, and the one with its stack.
    let part = text
        .split("\nThread ")
        .find(|part| part.contains(&mark) && part.contains("#0"));
    part.map_or_else(unseen, |part| {
        part.lines().take(26).collect::<Vec<_>>().join("\n")
    })
}
