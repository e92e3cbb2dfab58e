//! The load generator over TCP: queries pipelined over a few connections (RFC 7766).
//!
//! Servers may close a connection at any time. Its queries are then sent again on a new one, and their
//! latency still counts from when they were due.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use crate::drive::{Client, Clock, Tally};
use crate::pending::Pending;
use crate::wire::Question;

/// Connections, and the one whose turn it is.
pub struct TcpClient {
    connections: Vec<Connection>,
    turn: usize,
    server: SocketAddrV4,
}

struct Connection {
    stream: TcpStream,
    pending: Pending,
    /// Framed queries not yet accepted by the kernel.
    unsent: Vec<u8>,
    /// An incomplete frame.
    unread: Vec<u8>,
}

impl Connection {
    fn open(server: SocketAddrV4) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&server.into(), Duration::from_secs(2))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            pending: Pending::new(),
            unsent: Vec::new(),
            unread: Vec::new(),
        })
    }

    fn add(&mut self, due: u64, question: Question, tally: &mut Tally) {
        let id = self.pending.add(due, question, tally);
        let mut query = [0; 64];
        let length = question.write(id, &mut query);
        // RFC 1035 section 4.2.2: the length in two octets comes first.
        self.unsent.extend((length as u16).to_be_bytes());
        self.unsent.extend_from_slice(&query[..length]);
    }

    /// Writes what the kernel accepts. Returns false if the connection is gone.
    fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return false,
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes the answers that have arrived; `None` if the connection is gone.
    fn collect(&mut self, clock: &mut dyn Clock, tally: &mut Tally) -> Option<usize> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(read) => self.unread.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Some(0),
            Err(_) => return None,
        }
        let now = clock.now();
        let mut taken = 0;
        let mut at = 0;
        while let Some(prefix) = self.unread[at..].first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*prefix));
            let Some(reply) = self.unread.get(at + 2..at + 2 + length) else {
                break;
            };
            self.pending.answer(reply, now, tally);
            taken += 1;
            at += 2 + length;
        }
        self.unread.drain(..at);
        Some(taken)
    }
}

impl TcpClient {
    /// Opens `connections` connections.
    pub fn new(server: SocketAddrV4, connections: usize) -> io::Result<TcpClient> {
        let open = (0..connections).map(|_| Connection::open(server));
        Ok(TcpClient {
            connections: open.collect::<io::Result<_>>()?,
            turn: 0,
            server,
        })
    }

    fn reconnect(&mut self, index: usize, tally: &mut Tally) -> io::Result<()> {
        let mut new = Connection::open(self.server)?;
        tally.reconnects += 1;
        for (due, question) in self.connections[index].pending.take_all() {
            new.add(due, question, tally);
        }
        self.connections[index] = new;
        Ok(())
    }
}

impl Client for TcpClient {
    fn ask(
        &mut self,
        count: usize,
        due: u64,
        next: &mut dyn FnMut() -> Question,
        tally: &mut Tally,
    ) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            let now = left.min(32);
            self.turn = (self.turn + 1) % self.connections.len();
            let connection = &mut self.connections[self.turn];
            for _ in 0..now {
                connection.add(due, next(), tally);
            }
            if !connection.flush() {
                self.reconnect(self.turn, tally)?;
            }
            tally.sent += now as u64;
            left -= now;
        }
        Ok(())
    }

    fn collect(&mut self, clock: &mut dyn Clock, tally: &mut Tally) -> io::Result<usize> {
        let mut taken = 0;
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if connection.pending.count() == 0 {
                continue;
            }
            let flushed = connection.flush();
            match connection.collect(clock, tally) {
                Some(answers) if flushed => taken += answers,
                _ => self.reconnect(index, tally)?,
            }
        }
        Ok(taken)
    }

    fn abandon(&mut self, before: u64, tally: &mut Tally) {
        for connection in &mut self.connections {
            connection.pending.abandon(before, tally);
        }
    }

    fn waiting(&self) -> usize {
        self.connections
            .iter()
            .map(|connection| connection.pending.count())
            .sum()
    }
}
