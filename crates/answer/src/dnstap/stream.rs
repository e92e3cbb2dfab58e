//! The connection to the reader: opened for the first frames, and reopened after a failure.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::file::Written;
use super::frames::{self, Control};
use crate::config::TapReader;

/// How long a reader may take to accept, and to take what was sent. When the queue is full meanwhile, frames
/// are dropped.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause after a failure; frames that arrive meanwhile are dropped.
const AGAIN: Duration = Duration::from_secs(1);

/// What happened to frames.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Frames handed to a reader.
    pub written: AtomicU64,
    /// Frames for which there was no reader, or that were lost with its connection.
    pub unread: AtomicU64,
}

/// Takes whole frames and never fails: frames that cannot be written are counted.
pub(super) struct Stream {
    to: TapReader,
    counters: Arc<Counters>,
    open: Option<Open>,
    /// The earliest time to open it.
    when: Instant,
    /// Why it failed last: logged once.
    problem: Option<String>,
}

/// A started stream.
enum Open {
    Socket(Box<dyn Socket>),
    File(Written),
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
        match (&self.to, &mut self.open) {
            (_, Some(Open::Socket(socket))) => return socket.write_all(frames),
            (TapReader::File(_, most), Some(Open::File(written)))
                if !written.is_full_with(frames.len(), *most) =>
            {
                written.append(frames)?;
                self.problem = None;
                return Ok(());
            }
            _ => {}
        }
        let opened = Open::begin(&self.to, frames)?;
        if self.open.is_none() {
            tracing::info!(to = %self.to, "dnstap is written");
        } else {
            tracing::debug!(to = %self.to, "a full dnstap file was renamed");
        }
        self.problem = None;
        self.close();
        self.open = Some(opened);
        Ok(())
    }

    fn lose(&mut self, error: &io::Error) {
        // A file is kept: frames are appended once there is room again.
        if let Some(Open::Socket(_)) = self.open {
            self.open = None;
        }
        self.when = Instant::now() + AGAIN;
        let problem = error.to_string();
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(to = %self.to, %error, "dnstap cannot be written: messages are dropped until it can");
            self.problem = Some(problem);
        }
    }

    /// Announces the end, and waits until the reader confirms it.
    fn close(&mut self) {
        match self.open.take() {
            Some(Open::Socket(mut socket)) => {
                // The stream ends either way.
                let _ = socket
                    .write_all(&frames::control(Control::Stop))
                    .and_then(|()| frames::read(Control::Finish, &mut socket));
            }
            Some(Open::File(written)) => written.end(),
            None => {}
        }
    }
}

impl Write for Stream {
    fn write(&mut self, frames: &[u8]) -> io::Result<usize> {
        let sent = match Instant::now() >= self.when {
            true => self.send(frames).inspect_err(|error| self.lose(error)).is_ok(),
            false => false,
        };
        let count = match sent {
            true => &self.counters.written,
            // The reader may have received some of them; we cannot know.
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
    /// Starts a stream with these frames.
    fn begin(to: &TapReader, frames: &[u8]) -> io::Result<Open> {
        let mut socket: Box<dyn Socket> = match to {
            TapReader::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Box::new(socket)
            }
            TapReader::Tcp(address) => {
                let socket = TcpStream::connect_timeout(address, PATIENCE)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Box::new(socket)
            }
            TapReader::File(path, _) => return Ok(Open::File(Written::begin(path, frames)?)),
        };
        greet(&mut *socket)?;
        socket.write_all(frames)?;
        Ok(Open::Socket(socket))
    }
}

/// Negotiates the content type with the reader.
fn greet(mut socket: &mut dyn Socket) -> io::Result<()> {
    socket.write_all(&frames::control(Control::Ready))?;
    frames::read(Control::Accept, &mut socket)?;
    socket.write_all(&frames::control(Control::Start))
}
