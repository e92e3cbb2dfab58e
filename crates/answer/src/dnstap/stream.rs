//! The way to the reader: opened when there is something to tell, and anew when it was lost.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::file::Written;
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
        // What is in a file stays, and more comes behind it when there is room again.
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

    /// Says that nothing follows, and waits until the reader has seen it.
    fn close(&mut self) {
        match self.open.take() {
            Some(Open::Socket(mut socket)) => {
                // It is over either way.
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
    /// Begins a stream with these frames.
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

/// Agrees with the reader on what is told.
fn greet(mut socket: &mut dyn Socket) -> io::Result<()> {
    socket.write_all(&frames::control(Control::Ready))?;
    frames::read(Control::Accept, &mut socket)?;
    socket.write_all(&frames::control(Control::Start))
}
