//! `dnsweir filter record`: test cases made of what real clients ask, heard over dnstap from whichever server answers them.
//!
//! Each question is recorded once, and each case is written when it is heard, so that whoever stops it has what there is. Clients
//! become unrecognizable: an address of documentation stands for each, and of EDNS only the size and DO are kept, since
//! options can name a client.

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

/// Messages that wait to be written; who tells more waits.
const WAITING: usize = 256;

/// In the place of a client who is not told.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What is to be recorded.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Questions in all.
    pub count: usize,
    /// For how long.
    pub time: Option<Duration>,
    /// Responses, and not queries.
    pub responses: bool,
}

/// Records until there is enough, the time is over, or a file ends. What it says is how much there was.
///
/// # Errors
/// When the place cannot be opened, is no dnstap, or the output cannot be written.
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
        "// Recorded over dnstap, clients masked. `dnsweir filter test --bless` adds what a filter says."
    )
    .map_err(unwritten)?;
    let (send, heard) = sync_channel(WAITING);
    let (done, read) = sync_channel(1);
    // It ends with the process at the latest: nothing else waits for a writer that does not come.
    let spawned = thread::Builder::new().name("dnstap".into()).spawn(move || {
        let _ = done.send(reader.read(&mut |heard| send.send(heard).is_ok()));
    });
    spawned.map_err(|error| Stop::Machine(format!("there is no thread to read dnstap: {error}")))?;
    let count = take(&heard, wanted, &mut out).map_err(unwritten)?;
    drop(heard);
    if let Ok(Err(error)) = read.try_recv() {
        return Err(Stop::Machine(format!("{from}: {error}")));
    }
    Ok(output.map_or_else(String::new, |path| {
        format!("{count} questions in {}\n", path.display())
    }))
}

/// Writes a case for each question that is new, until there are enough, the time is over, or nobody tells more; how many.
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

/// A new file: what somebody has recorded and blessed is not written over.
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

/// A socket that is listened at, which leaves its file behind unless somebody removes it: its path and its file.
struct Socket<'a>(Option<(&'a Path, u64)>);

impl Socket<'_> {
    /// The one that was just made.
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
        // Another one may listen there by now.
        if let Some((path, inode)) = self.0
            && fs::symlink_metadata(path).is_ok_and(|found| found.ino() == inode)
        {
            // Nothing can be done about one that is gone.
            let _ = fs::remove_file(path);
        }
    }
}
