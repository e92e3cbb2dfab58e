//! The report of a history: a file with one fact a line, which the runner reads.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::kernel::kernel;
use crate::net::Net;
use crate::scenario::Scenario;
use crate::world::Thing;

/// How many violations are described; further ones are only counted.
const TOLD: u64 = 20;

/// The report so far.
pub struct Report {
    path: String,
    lines: String,
    violations: u64,
    digest: u64,
    order: u64,
    pub switches: u64,
    pub jumps: u64,
    pub calls: u64,
    /// How often the program logged that it had reloaded, or had not.
    pub reloads: u64,
    counts: BTreeMap<String, u64>,
    written: bool,
}

impl Report {
    pub fn new(scenario: &Scenario) -> Report {
        Report {
            path: scenario.report.clone(),
            lines: String::new(),
            violations: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            order: 0xcbf2_9ce4_8422_2325,
            switches: 0,
            jumps: 0,
            calls: 0,
            reloads: 0,
            counts: BTreeMap::new(),
            written: false,
        }
    }

    /// Records a switch to another thread.
    pub fn switched(&mut self, thread: usize, now: u64) {
        self.switches += 1;
        self.order = mixed(self.order, &(thread as u64).to_le_bytes());
        self.order = mixed(self.order, &now.to_le_bytes());
    }

    /// Records bytes that an actor received.
    pub fn saw(&mut self, now: u64, octets: &[u8]) {
        self.digest = mixed(mixed(self.digest, &now.to_le_bytes()), octets);
    }

    /// Counts an occurrence of something.
    pub fn count(&mut self, what: &str) {
        match self.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(what.to_owned(), 1);
            }
        }
    }

    /// Records a violation of an invariant.
    pub fn violation(&mut self, now: u64, what: &str) {
        self.violations += 1;
        if self.violations <= TOLD {
            let _ = writeln!(
                self.lines,
                "violation {}.{:03} s: {what}",
                now / 1_000_000_000,
                now / 1_000_000 % 1000
            );
        }
    }

    /// Writes text from the admin address to its own file.
    pub fn text(&mut self, name: &str, text: &[u8]) {
        write(&format!("{}.{name}", self.path), text);
    }

    /// Records what the program holds.
    pub fn snapshot(&mut self, name: &str, threads: usize, net: &Net, descriptors: &[Option<Thing>]) {
        let mut held: BTreeMap<String, u64> = BTreeMap::new();
        for socket in net.bound() {
            let Some(local) = socket
                .local
                .filter(|_| !matches!(socket.kind, crate::net::Kind::Stream(_)))
            else {
                continue;
            };
            let kind = if socket.is_stream() { "tcp" } else { "udp" };
            // Ephemeral ports differ each time.
            let place = match local.port() {
                32_768.. => local.ip().to_string(),
                _ => local.to_string(),
            };
            let closed = if socket.is_stream() || socket.peer.is_none() {
                ""
            } else {
                " to one"
            };
            *held.entry(format!("{kind} {place}{closed}")).or_insert(0) += 1;
        }
        for descriptor in 0..1024 {
            let thing = descriptors.get(descriptor).copied().flatten();
            let what = match thing {
                Some(Thing::Socket(_)) => continue,
                Some(Thing::Counter(_)) => "eventfd".to_owned(),
                Some(Thing::Poll(_)) => "epoll".to_owned(),
                None => match link(descriptor) {
                    Some(link) => link.split(':').next().unwrap_or_default().to_owned(),
                    None => continue,
                },
            };
            *held.entry(format!("descriptor {what}")).or_insert(0) += 1;
        }
        for file in files("") {
            held.insert(format!("file {file}"), 1);
        }
        let _ = writeln!(self.lines, "snapshot {name} threads {threads}");
        for (what, count) in held {
            let _ = writeln!(self.lines, "snapshot {name} {what} {count}");
        }
    }

    /// Writes the file, once.
    pub fn write(&mut self, why: &str, now: u64, faults: &str) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        let mut text = format!("ended {why}\nvirtual {}\n", now / 1_000_000);
        let _ = writeln!(text, "digest {:016x}\norder {:016x}", self.digest, self.order);
        let _ = writeln!(
            text,
            "switches {}\njumps {}\ncalls {}",
            self.switches, self.jumps, self.calls
        );
        let _ = writeln!(text, "violations {}", self.violations);
        for (what, count) in &self.counts {
            let _ = writeln!(text, "count {what} {count}");
        }
        text.push_str(faults);
        text.push_str(&self.lines);
        write(&self.path, text.as_bytes());
    }
}

/// Continues an FNV-1a hash over more bytes.
fn mixed(digest: u64, octets: &[u8]) -> u64 {
    octets.iter().fold(digest, |digest, octet| {
        (digest ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Lists files that the program has created below its folder. The symbols that this uses are not replaced.
fn files(folder: &str) -> Vec<String> {
    let place = if folder.is_empty() { "." } else { folder };
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() {
            name
        } else {
            format!("{folder}/{name}")
        };
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files(&path)),
            // The runner's own files: configurations, scenario, report and log.
            false if !path.contains('/') => {}
            false => found.push(path),
        }
    }
    found
}

/// Returns where a descriptor's link points.
fn link(descriptor: usize) -> Option<String> {
    let path = format!("/proc/self/fd/{descriptor}\0");
    let mut place = [0_u8; 256];
    let length = kernel!(
        libc::SYS_readlinkat,
        libc::AT_FDCWD,
        path.as_ptr(),
        place.as_mut_ptr(),
        place.len()
    );
    let link = place.get(..usize::try_from(length).ok()?)?;
    Some(String::from_utf8_lossy(link).into_owned())
}

/// Writes a file.
fn write(path: &str, octets: &[u8]) {
    let file = create(path);
    write_to(file, octets);
    kernel!(libc::SYS_close, file);
}

/// Creates a file with direct system calls, which are not counted as the program's.
pub fn create(path: &str) -> i64 {
    let path = format!("{path}\0");
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC | libc::O_CLOEXEC;
    kernel!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600)
}

/// Writes to a file of `create`.
pub fn write_to(file: i64, mut octets: &[u8]) {
    while !octets.is_empty() {
        let written = kernel!(libc::SYS_write, file, octets.as_ptr(), octets.len());
        let Some(rest) = usize::try_from(written)
            .ok()
            .filter(|count| *count > 0)
            .and_then(|count| octets.get(count..))
        else {
            break;
        };
        octets = rest;
    }
}
