//! The way to the reader: opened when there is something to tell, and anew when it was lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::frames::{self, Control};
use crate::config::TapReader;

/// How long a reader may take to accept, and to take what was sent. Frames are dropped meanwhile when the queue is full.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long after a failure it is tried again; what is told meanwhile is dropped.
const AGAIN: Duration = Duration::from_secs(1);

/// What became of frames.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Frames that were handed to a reader.
    pub written: AtomicU64,
    /// Those that there was no reader for, or that went down with one.
    pub unread: AtomicU64,
}

/// Takes whole frames, and never fails: what cannot be written is counted.
pub(super) struct Stream {
    to: TapReader,
    counters: Arc<Counters>,
    open: Option<Open>,
    /// When it may be opened.
    when: Instant,
    /// Why it could not be opened, or was lost: told once.
    problem: Option<String>,
}

/// A stream that was started.
enum Open {
    Socket(Box<dyn Socket>),
    File { file: File, octets: u64 },
}

trait Socket: Read + Write + Send {}
impl<S: Read + Write + Send> Socket for S {}

impl Stream {
    pub fn new(to: TapReader, counters: Arc<Counters>) -> Stream {
        Stream {
            to,
            counters,
            open: None,
            when: Instant::now(),
            problem: None,
        }
    }

    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        if let TapReader::File(path, most) = &self.to
            && let Some(Open::File { octets, .. }) = &self.open
            && octets + frames.len() as u64 > *most
        {
            tracing::debug!(file = %path.display(), "a full file of dnstap is put aside");
            self.close();
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let opened = Open::begin(&self.to)?;
                tracing::info!(to = %self.to, "dnstap is written");
                self.problem = None;
                none.insert(opened)
            }
        };
        match open {
            Open::Socket(socket) => socket.write_all(frames),
            Open::File { file, octets } => {
                *octets += frames.len() as u64;
                file.write_all(frames)
            }
        }
    }

    fn lose(&mut self, error: &io::Error) {
        self.open = None;
        self.when = Instant::now() + AGAIN;
        let problem = error.to_string();
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(to = %self.to, %error, "dnstap cannot be written: messages are dropped until it can");
            self.problem = Some(problem);
        }
    }

    /// Says that nothing follows, and waits until the reader has seen it.
    fn close(&mut self) {
        // It is over either way.
        let _ = match self.open.take() {
            Some(Open::Socket(mut socket)) => socket
                .write_all(&frames::control(Control::Stop))
                .and_then(|()| frames::read(Control::Finish, &mut socket)),
            Some(Open::File { mut file, .. }) => file.write_all(&frames::control(Control::Stop)),
            None => Ok(()),
        };
    }
}

impl Write for Stream {
    fn write(&mut self, frames: &[u8]) -> io::Result<usize> {
        let sent = match self.open.is_some() || Instant::now() >= self.when {
            true => self.send(frames).inspect_err(|error| self.lose(error)).is_ok(),
            false => false,
        };
        let count = match sent {
            true => &self.counters.written,
            // Some of them may have been read, which only the reader knows.
            false => &self.counters.unread,
        };
        count.fetch_add(frames::count(frames), Ordering::Relaxed);
        Ok(frames.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
    }
}

impl Open {
    fn begin(to: &TapReader) -> io::Result<Open> {
        match to {
            TapReader::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Open::greet(Box::new(socket))
            }
            TapReader::Tcp(address) => {
                let socket = TcpStream::connect_timeout(address, PATIENCE)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Open::greet(Box::new(socket))
            }
            TapReader::File(path, _) => {
                let mut file = create(path)?;
                let start = frames::control(Control::Start);
                file.write_all(&start)?;
                let octets = start.len() as u64;
                Ok(Open::File { file, octets })
            }
        }
    }

    /// Agrees with the reader on what is told.
    fn greet(mut socket: Box<dyn Socket>) -> io::Result<Open> {
        socket.write_all(&frames::control(Control::Ready))?;
        frames::read(Control::Accept, &mut socket)?;
        socket.write_all(&frames::control(Control::Start))?;
        Ok(Open::Socket(socket))
    }
}

/// A new file; one that is there is put aside, since a stream has one start only. Nobody else may read what clients ask.
fn create(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => {
            return Err(io::Error::other("it is there, and is not a plain file"));
        }
        Ok(_) => {
            let mut aside = path.as_os_str().to_owned();
            aside.push(".1");
            fs::rename(path, PathBuf::from(aside))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}
