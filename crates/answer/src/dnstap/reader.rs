//! The reading end: reads clients' messages from a dnstap stream, whichever server writes it.
//!
//! Serves one connection at a time. Skips frames without a client's message; an oversized frame ends the
//! stream.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};

use super::frames::{self, Control};
use super::message::{Heard, heard};
use crate::config::TapReader;

/// Largest frame in bytes: two messages of maximum size with their metadata.
const FRAME: usize = 256 << 10;

/// Where messages are read from.
#[derive(Debug)]
pub enum Reader {
    /// Connections to a Unix socket.
    Unix(UnixListener),
    /// TCP connections.
    Tcp(TcpListener),
    /// An existing file.
    File(File),
}

impl Reader {
    /// Opens the file, or listens: writers can connect from then on.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn open(from: &TapReader) -> io::Result<Reader> {
        match from {
            TapReader::Unix(path) => {
                let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                if is_socket
                    && UnixStream::connect(path)
                        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
                {
                    // Left by a reader that was interrupted. Only sockets are removed: connecting to a plain
                    // file is refused, too, and the file has to stay.
                    fs::remove_file(path)?;
                }
                UnixListener::bind(path).map(Reader::Unix)
            }
            TapReader::Tcp(address) => TcpListener::bind(address).map(Reader::Tcp),
            TapReader::File(path, _) => File::open(path).map(Reader::File),
        }
    }

    /// Passes messages to `take` until it returns false or a file ends.
    ///
    /// # Errors
    /// A file is not dnstap, or a socket accepts no connections. An error on a connection ends only that
    /// connection.
    pub fn read(&self, take: &mut impl FnMut(Heard) -> bool) -> io::Result<()> {
        match self {
            Reader::File(file) => read_file(&mut BufReader::new(file), take),
            Reader::Unix(listener) => loop {
                if !serve(listener.accept()?.0, take) {
                    return Ok(());
                }
            },
            Reader::Tcp(listener) => loop {
                if !serve(listener.accept()?.0, take) {
                    return Ok(());
                }
            },
        }
    }
}

fn read_file(file: &mut impl Read, take: &mut impl FnMut(Heard) -> bool) -> io::Result<()> {
    frames::read(Control::Start, file).map_err(|_| io::Error::other("it is not a file of dnstap"))?;
    read_frames(file, take).map(drop)
}

/// Reads a connection to its end. Returns whether `take` wants more.
fn serve(mut stream: impl Read + Write, take: &mut impl FnMut(Heard) -> bool) -> bool {
    let mut hear = || -> io::Result<bool> {
        frames::read(Control::Ready, &mut stream)?;
        stream.write_all(&frames::control(Control::Accept))?;
        frames::read(Control::Start, &mut stream)?;
        let more = read_frames(&mut stream, take)?;
        stream.write_all(&frames::control(Control::Finish))?;
        Ok(more)
    };
    hear().unwrap_or_else(|error| {
        tracing::debug!(%error, "a writer of dnstap has gone, or writes something else");
        true
    })
}

/// Reads frames up to the control frame or the end of the stream. Returns whether `take` wants more.
fn read_frames(from: &mut impl Read, take: &mut impl FnMut(Heard) -> bool) -> io::Result<bool> {
    let mut frame = Vec::new();
    loop {
        let mut size = [0; 4];
        match from.read_exact(&mut size) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            read => read?,
        }
        let size = u32::from_be_bytes(size) as usize;
        if size == 0 {
            // A control frame: here it can only be the last.
            return Ok(true);
        }
        if size > FRAME {
            return Err(io::Error::other(format!("a frame of {size} bytes is not dnstap")));
        }
        frame.resize(size, 0);
        from.read_exact(&mut frame)?;
        if heard(&frame).is_some_and(|heard| !take(heard)) {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::dns::Transport;
    use crate::dnstap::Exchange;
    use crate::dnstap::message::{Kind, Message};

    fn frames_of(kinds: &[Kind]) -> Vec<u8> {
        let exchange = Exchange {
            client: Some("192.0.2.7:53".parse().unwrap()),
            server: None,
            pod: None,
            transport: Transport::Tls,
            query: b"query",
            took: Duration::ZERO,
            response: None,
        };
        let frame = |kind: &Kind| Message::query(*kind, &exchange, Duration::ZERO).frame(b"", None);
        kinds.iter().flat_map(frame).collect()
    }

    fn all(octets: &[u8]) -> (io::Result<()>, Vec<Heard>) {
        let mut all = Vec::new();
        let mut take = |heard| {
            all.push(heard);
            true
        };
        let read = read_file(&mut &octets[..], &mut take);
        (read, all)
    }

    #[test]
    fn clients_messages_are_heard_and_no_others() {
        let start = frames::control(Control::Start);
        let kinds = [Kind::ForwarderQuery, Kind::ClientQuery];
        let octets = [start, frames_of(&kinds), frames::control(Control::Stop)].concat();
        let (read, all) = all(&octets);
        read.unwrap();
        let heard = Heard {
            client: Some("192.0.2.7".parse().unwrap()),
            transport: Transport::Tls,
            is_response: false,
            message: b"query".to_vec(),
        };
        assert_eq!(all, [heard]);
    }

    #[test]
    fn what_is_not_dnstap_is_an_error_or_the_end() {
        let start = frames::control(Control::Start);
        let huge = [&start[..], &[0x7f, 0, 0, 0, 1]].concat();
        for octets in [&b""[..], b"HTTP/1.1 200 OK", &huge] {
            let (read, all) = all(octets);
            assert!(read.is_err() && all.is_empty(), "{octets:?}");
        }
        let whole = [start, frames_of(&[Kind::ClientQuery; 2])].concat();
        let (read, heard) = all(&whole);
        assert!(read.is_ok() && heard.len() == 2);
        // Truncated, and with garbage at the end.
        assert_eq!(all(&whole[..whole.len() - 3]).1.len(), 1);
        let mut broken = whole;
        let at = broken.len() - 10;
        broken[at..].fill(0xff);
        assert_eq!(all(&broken).1.len(), 1);
    }

    #[test]
    fn a_writer_is_accepted_and_heard_to_its_end() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            ours.write_all(&frames::control(Control::Ready)).unwrap();
            frames::read(Control::Accept, &mut ours).unwrap();
            ours.write_all(&frames::control(Control::Start)).unwrap();
            ours.write_all(&frames_of(&[Kind::ClientResponse])).unwrap();
            ours.write_all(&frames::control(Control::Stop)).unwrap();
            drop(ours);
        });
        let mut count = 0;
        assert!(serve(theirs, &mut |_| {
            count += 1;
            true
        }));
        writer.join().unwrap();
        // The frame has a query and no response, so there is no response message to pass on.
        assert_eq!(count, 0);
    }
}
