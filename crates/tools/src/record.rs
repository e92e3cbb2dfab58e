//! `dnsweir filter record`: makes test cases from real queries, read over dnstap from any server.
//!
//! Each question is recorded once and written immediately, so that nothing is lost if the tool is stopped.
//! Clients are anonymized: each gets a documentation address, and of EDNS only the size and DO are kept,
//! since options can identify a client.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Stop;
use crate::cases::{Asked, Masks};
use crate::config::TapReader;
use crate::dnstap::{Heard, Reader};

/// The most messages waiting to be written; then the reader waits.
const WAITING: usize = 256;

/// Stands for a client that the message does not contain.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What to record.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The number of different questions.
    pub count: usize,
    /// How long to record.
    pub time: Option<Duration>,
    /// Record responses instead of queries.
    pub responses: bool,
}

/// Records until there are enough questions, the time is over, or the file ends. Returns a summary.
///
/// # Errors
/// When the source cannot be opened or is not dnstap, or the output cannot be written.
pub fn record(from: &TapReader, wanted: &Wanted, output: Option<&Path>) -> Result<String, Stop> {
    let reader = Reader::open(from).map_err(|error| Stop::Machine(format!("{from}: {error}")))?;
    let _socket = Socket::of(from);
    let mut out: Box<dyn Write> = match output {
        Some(path) => Box::new(create(path)?),
        None => Box::new(io::stdout()),
    };
    let unwritten = |error: io::Error| Stop::Machine(format!("the test cases cannot be written: {error}"));
    writeln!(
        out,
        "// Recorded over dnstap, clients masked. `dnsweir filter test --bless` adds a filter's results."
    )
    .map_err(unwritten)?;
    let (send, heard) = sync_channel(WAITING);
    let (done, read) = sync_channel(1);
    // It is not joined: it may wait for a writer that never comes, until the process ends.
    let spawned = thread::Builder::new().name("dnstap".into()).spawn(move || {
        let _ = done.send(reader.read(&mut |heard| send.send(heard).is_ok()));
    });
    spawned.map_err(|error| Stop::Machine(format!("cannot start a thread to read dnstap: {error}")))?;
    let count = take(&heard, wanted, &mut out).map_err(unwritten)?;
    drop(heard);
    if let Ok(Err(error)) = read.try_recv() {
        return Err(Stop::Machine(format!("{from}: {error}")));
    }
    Ok(output.map_or_else(String::new, |path| {
        format!("{count} questions in {}\n", path.display())
    }))
}

/// Writes a case for each new question, until there are enough, the time is over, or the source ends. Returns
/// how many.
fn take(heard: &Receiver<Heard>, wanted: &Wanted, out: &mut dyn Write) -> io::Result<usize> {
    let until = wanted.time.map(|time| Instant::now() + time);
    let (mut masks, mut known) = (Masks::default(), HashSet::new());
    while known.len() < wanted.count {
        let next = match until {
            Some(until) => heard.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let Ok(heard) = next else { break };
        let asked = Asked::of(&heard.message).filter(|_| heard.is_response == wanted.responses);
        let Some(asked) = asked.filter(|asked| !known.contains(asked)) else {
            continue;
        };
        let client = masks.mask(heard.client.unwrap_or(NOBODY));
        let case = match wanted.responses {
            true => asked.response_case(&heard.message, client, heard.transport),
            false => Some(asked.query_case(&heard.message, client, heard.transport)),
        };
        let Some(case) = case else { continue };
        for line in case {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        known.insert(asked);
    }
    Ok(known.len())
}

/// Creates a new file: recorded and blessed cases must not be overwritten.
fn create(path: &Path) -> Result<fs::File, Stop> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Stop::Refused(format!(
            "{} is there: name another file, or remove it",
            path.display()
        )),
        _ => Stop::Machine(format!("{}: {error}", path.display())),
    })
}

/// The unix socket being listened on, as path and inode; its file is removed on drop.
struct Socket<'a>(Option<(&'a Path, u64)>);

impl Socket<'_> {
    /// Remembers the socket that was just created.
    fn of(from: &TapReader) -> Socket<'_> {
        let TapReader::Unix(path) = from else {
            return Socket(None);
        };
        let made = fs::symlink_metadata(path).ok();
        Socket(made.map(|made| (path.as_path(), made.ino())))
    }
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        // Another process may have replaced it.
        if let Some((path, inode)) = self.0
            && fs::symlink_metadata(path).is_ok_and(|found| found.ino() == inode)
        {
            // If it is already gone, there is nothing to do.
            let _ = fs::remove_file(path);
        }
    }
}
