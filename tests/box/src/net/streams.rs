//! Streams: connections of two sockets, each with bytes not read yet.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::{BUFFER, Errno, Event, Kind, Net, News, Number, Socket};

/// Nanoseconds before a connection request is retried, if the backlog is full.
const ASKS_AGAIN: u64 = 1_000_000_000;

/// Nanoseconds between the pieces of one write.
const APART: u64 = 10_000;

/// One end of a connection.
pub struct Stream {
    /// The other end, while it exists.
    other: Option<Number>,
    came: VecDeque<u8>,
    /// Bytes sent that the other end has not read.
    sent: usize,
    /// When the last of them arrives: none overtakes another.
    last: u64,
    /// Whether no more will arrive.
    ended: bool,
    /// Whether no more will be sent.
    closed: bool,
    /// Whether it was reset.
    broken: bool,
}

impl Stream {
    fn new(other: Number) -> Stream {
        Stream {
            other: Some(other),
            came: VecDeque::new(),
            sent: 0,
            last: 0,
            ended: false,
            closed: false,
            broken: false,
        }
    }

    /// Returns its readiness, if at most `room` bytes may be in flight.
    pub(super) fn ready(&self, room: usize) -> i32 {
        let mut events = 0;
        if !self.came.is_empty() || self.ended {
            events |= libc::EPOLLIN;
        }
        if self.sent < room || self.closed {
            events |= libc::EPOLLOUT;
        }
        if self.ended {
            events |= libc::EPOLLRDHUP;
        }
        if self.broken || (self.ended && self.closed) {
            events |= libc::EPOLLHUP;
        }
        events
    }
}

impl Net {
    fn stream(&mut self, number: Number) -> Option<&mut Stream> {
        match self.socket(number)? {
            Socket {
                kind: Kind::Stream(stream),
                ..
            } => Some(stream),
            _ => None,
        }
    }

    /// The most bytes that the program may have in flight in a stream.
    pub(super) fn room(&self) -> usize {
        self.narrow.map_or(BUFFER, |(octets, _)| octets)
    }

    /// Limits streams for a while to this many bytes of room and per piece: the program sees short reads and
    /// writes.
    pub fn narrow(&mut self, octets: usize, lasts: u64) {
        self.narrow = Some((octets.max(1), self.now + lasts));
        self.after(lasts, Event::Widens);
    }

    pub(super) fn widen(&mut self) -> Option<News> {
        if self.narrow.is_some_and(|(_, until)| until <= self.now) {
            self.narrow = None;
            let streams = self.sockets.iter().filter(|(_, socket)| socket.is_stream());
            self.edges.extend(streams.map(|(number, _)| *number));
        }
        None
    }

    /// Makes a stream socket listen.
    ///
    /// # Errors
    /// Those of listen(2).
    pub fn listen(&mut self, number: Number, backlog: usize) -> Result<(), Errno> {
        let socket = self.socket(number).ok_or(libc::EBADF)?;
        match &mut socket.kind {
            Kind::Fresh => {
                socket.kind = Kind::Listener {
                    waiting: VecDeque::new(),
                    backlog,
                }
            }
            Kind::Listener { backlog: before, .. } => *before = backlog,
            Kind::Datagrams { .. } | Kind::Stream(_) => return Err(libc::EINVAL),
        }
        Ok(())
    }

    /// Requests a connection.
    ///
    /// # Errors
    /// Those of connect(2) on a nonblocking socket: EINPROGRESS on success.
    pub fn connect(&mut self, number: Number, peer: SocketAddr) -> Result<(), Errno> {
        let local = self.settle(number, peer)?;
        let socket = self.socket(number).ok_or(libc::EBADF)?;
        match &socket.kind {
            Kind::Fresh if socket.peer.is_none() => {}
            Kind::Fresh if socket.error != 0 => return Err(std::mem::take(&mut socket.error)),
            Kind::Fresh => return Err(libc::EALREADY),
            Kind::Stream(_) => return Err(libc::EISCONN),
            Kind::Datagrams { .. } | Kind::Listener { .. } => return Err(libc::EINVAL),
        }
        (socket.peer, socket.local) = (Some(peer), Some(local));
        let way = self.way();
        self.after(
            way,
            Event::Asks {
                who: number,
                to: peer,
            },
        );
        Err(libc::EINPROGRESS)
    }

    /// Requests a connection for an actor, from an address of its own.
    pub fn dial(&mut self, actor: usize, from: SocketAddr, to: SocketAddr) -> Number {
        let number = self.open(from.is_ipv6(), true, Some(actor));
        if let Some(socket) = self.socket(number) {
            socket.local = Some(from);
        }
        let _ = self.connect(number, to);
        number
    }

    pub(super) fn ask(&mut self, who: Number, to: SocketAddr) -> Option<News> {
        let asking = self.socket(who)?;
        let (from, six) = (asking.local?, asking.six);
        let taker = self.taker(false, from, to);
        let actor = self.outside.get(&to.ip()).copied().filter(|_| taker.is_none());
        let way = self.way();
        if let Some(Socket {
            kind: Kind::Listener { waiting, backlog },
            ..
        }) = taker.and_then(|number| self.socket(number))
            && waiting.len() > *backlog
        {
            self.after(ASKS_AGAIN, Event::Asks { who, to });
            return None;
        }
        if taker.is_none() && actor.is_none() {
            self.after(way, Event::Connects { who, other: None });
            return None;
        }
        let number = self.open(six, true, actor);
        let accepted = self.socket(number)?;
        (accepted.local, accepted.peer) = (Some(to), Some(from));
        accepted.kind = Kind::Stream(Stream::new(who));
        self.after(
            way,
            Event::Connects {
                who,
                other: Some(number),
            },
        );
        if let Some(taker) = taker
            && let Some(Socket {
                kind: Kind::Listener { waiting, .. },
                ..
            }) = self.socket(taker)
        {
            waiting.push_back(number);
            self.edges.push(taker);
        }
        actor.map(|actor| News::Accepted {
            actor,
            socket: number,
        })
    }

    /// Takes a pending connection.
    ///
    /// # Errors
    /// Those of accept4(2).
    pub fn accept(&mut self, number: Number) -> Result<Number, Errno> {
        match &mut self.socket(number).ok_or(libc::EBADF)?.kind {
            Kind::Listener { waiting, .. } => waiting.pop_front().ok_or(libc::EAGAIN),
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn connected(&mut self, who: Number, other: Option<Number>) -> Option<News> {
        let there = other.is_some_and(|other| self.sockets.contains_key(&other));
        let Some(socket) = self.socket(who) else {
            if let Some(other) = other {
                self.broken(other);
            }
            return None;
        };
        let actor = socket.actor;
        match other {
            Some(other) if there => socket.kind = Kind::Stream(Stream::new(other)),
            Some(_) => socket.error = libc::ECONNRESET,
            None => socket.error = libc::ECONNREFUSED,
        }
        self.edges.push(who);
        actor.map(|actor| match there {
            true => News::Connected { actor, socket: who },
            false => News::Ended { actor, socket: who },
        })
    }

    /// Sends the bytes that fit.
    ///
    /// # Errors
    /// Those of send(2).
    pub fn write(&mut self, number: Number, octets: &[u8]) -> Result<usize, Errno> {
        let (now, way, most) = (self.now, self.way(), self.room());
        let piece = self.narrow.map_or(usize::MAX, |(octets, _)| octets);
        let socket = self.socket(number).ok_or(libc::EBADF)?;
        if socket.error != 0 {
            return Err(std::mem::take(&mut socket.error));
        }
        let outside = socket.actor.is_some();
        let Kind::Stream(stream) = &mut socket.kind else {
            return Err(libc::ENOTCONN);
        };
        let Some(other) = stream.other.filter(|_| !stream.closed && !stream.broken) else {
            return Err(libc::EPIPE);
        };
        let room = if outside {
            octets.len()
        } else {
            most.saturating_sub(stream.sent)
        };
        if room == 0 && !octets.is_empty() {
            return Err(libc::EAGAIN);
        }
        let length = octets.len().min(room);
        stream.sent += length;
        let first = stream.last.max(now + way) + 1;
        let pieces = octets[..length].chunks(piece.min(length.max(1)));
        // Far enough apart to be read separately.
        let times = (0..).map(|index| first + index * APART);
        stream.last = first + (pieces.len().max(1) as u64 - 1) * APART;
        for (at, piece) in times.zip(pieces) {
            self.after(at - now, Event::Comes(other, piece.to_vec()));
        }
        Ok(length)
    }

    pub(super) fn came(&mut self, number: Number, octets: Vec<u8>) -> Option<News> {
        let length = octets.len();
        let socket = self.socket(number)?;
        let actor = socket.actor;
        let Kind::Stream(stream) = &mut socket.kind else {
            return None;
        };
        if let Some(actor) = actor {
            let other = stream.other;
            self.taken(other, length);
            return Some(News::Came {
                actor,
                socket: number,
                octets,
            });
        }
        stream.came.extend(octets);
        self.edges.push(number);
        None
    }

    /// Frees the room of bytes that the other end has read.
    fn taken(&mut self, sender: Option<Number>, length: usize) {
        let Some(sender) = sender else { return };
        if let Some(stream) = self.stream(sender) {
            stream.sent = stream.sent.saturating_sub(length);
            self.edges.push(sender);
        }
    }

    /// Reads received bytes; an empty result is the end.
    ///
    /// # Errors
    /// Those of recv(2).
    pub fn read(&mut self, number: Number, most: usize, peek: bool) -> Result<Vec<u8>, Errno> {
        let socket = self.socket(number).ok_or(libc::EBADF)?;
        if socket.error != 0 {
            return Err(std::mem::take(&mut socket.error));
        }
        let Kind::Stream(stream) = &mut socket.kind else {
            return Err(libc::ENOTCONN);
        };
        let length = stream.came.len().min(most);
        if length == 0 && !stream.ended && most > 0 {
            return Err(libc::EAGAIN);
        }
        if peek {
            return Ok(stream.came.iter().take(length).copied().collect());
        }
        let octets = stream.came.drain(..length).collect();
        let other = stream.other;
        self.taken(other, length);
        Ok(octets)
    }

    /// Shuts down sending, receiving or both.
    pub fn shut(&mut self, number: Number, how: i32) -> Result<(), Errno> {
        let now = self.now;
        let socket = self.socket(number).ok_or(libc::EBADF)?;
        match &mut socket.kind {
            Kind::Listener { .. } => {
                let Kind::Listener { waiting, .. } = std::mem::replace(&mut socket.kind, Kind::Fresh) else {
                    return Ok(());
                };
                waiting.into_iter().for_each(|number| {
                    self.close(number);
                });
            }
            Kind::Stream(stream) => {
                stream.ended |= how != libc::SHUT_WR;
                let ends = how != libc::SHUT_RD && !stream.closed;
                stream.closed |= ends;
                let (other, after) = (stream.other, stream.last.saturating_sub(now) + 1);
                if let Some(other) = other.filter(|_| ends) {
                    self.after(after, Event::Ends(other));
                }
                self.edges.push(number);
            }
            Kind::Datagrams { .. } | Kind::Fresh => return Err(libc::ENOTCONN),
        }
        Ok(())
    }

    pub(super) fn ended(&mut self, number: Number) -> Option<News> {
        let stream = self.stream(number)?;
        stream.ended = true;
        self.edges.push(number);
        let actor = self.socket(number)?.actor?;
        Some(News::Ended {
            actor,
            socket: number,
        })
    }

    /// Resets a connection.
    pub(super) fn broken(&mut self, number: Number) -> Option<News> {
        let socket = self.socket(number)?;
        let Kind::Stream(stream) = &mut socket.kind else {
            return None;
        };
        stream.other = None;
        (stream.ended, stream.broken) = (true, true);
        socket.error = libc::ECONNRESET;
        let actor = socket.actor;
        self.edges.push(number);
        actor.map(|actor| News::Ended {
            actor,
            socket: number,
        })
    }

    /// Notifies the peer of a closed connection: with an end, or with a reset if something was not read.
    pub(super) fn hang_up(&mut self, gone: &Stream) {
        let Some(other) = gone.other else { return };
        let after = gone.last.saturating_sub(self.now) + 1;
        match (gone.came.is_empty(), gone.closed) {
            (false, _) => self.after(after, Event::Breaks(other)),
            (true, false) => self.after(after, Event::Ends(other)),
            (true, true) => {}
        }
    }

    /// Resets a connection of an actor.
    pub fn abort(&mut self, number: Number) {
        let other = self.stream(number).and_then(|stream| stream.other);
        self.sockets.remove(&number);
        if let Some(other) = other {
            self.after(1, Event::Breaks(other));
        }
    }
}
