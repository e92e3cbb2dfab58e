//! The simulated network: datagrams and streams over IPv4 and IPv6.
//!
//! It guarantees what the kernel's loopback guarantees, and randomizes what the kernel leaves open: ports,
//! which of several sockets on one address gets a datagram, delays. Each descriptor is a real socket
//! that is never bound, so its number and options are the kernel's. Addresses of actors are outside the
//! program: what arrives there is handed to the actor, whose sockets have no descriptors.

pub mod datagrams;
pub mod streams;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::seed::Random;

/// The most bytes that a socket buffers for its reader: the kernel's default for loopback sockets.
pub const BUFFER: usize = 212_992;

/// Delay of a datagram or a piece of a stream, in nanoseconds: the minimum, and the range of the random rest.
const WAY: (u64, u64) = (20_000, 80_000);

/// Identifies a socket. Several descriptors may share one.
pub type Number = u32;

/// The error number of a failed call.
pub type Errno = i32;

/// A socket of the program or of an actor.
pub struct Socket {
    pub six: bool,
    /// Whether calls return instead of waiting.
    pub nonblocking: bool,
    /// The receive timeout of blocking calls, in nanoseconds.
    pub patience: Option<u64>,
    /// Whether other sockets may bind the same address (SO_REUSEPORT).
    pub shares: bool,
    /// The index of the socket in its SO_REUSEPORT group that receives, as set by the attached program.
    pub steered: Option<u32>,
    /// Whether the receiver asked for the destination address of datagrams.
    pub tells_destination: bool,
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    /// The pending error, until it is read.
    pub error: Errno,
    pub kind: Kind,
    /// How many descriptors refer to it.
    descriptors: u32,
    /// The actor that owns it; `None` for the program's.
    pub actor: Option<usize>,
}

/// The kind of a socket.
pub enum Kind {
    /// A datagram socket: its queue, and the bytes in it.
    Datagrams {
        waiting: VecDeque<Datagram>,
        octets: usize,
    },
    /// A stream socket that is neither connected nor listening.
    Fresh,
    /// A listener: pending connections, and the limit on them.
    Listener {
        waiting: VecDeque<Number>,
        backlog: usize,
    },
    /// A connection.
    Stream(streams::Stream),
}

/// A datagram that arrived.
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub octets: Vec<u8>,
}

/// A scheduled event.
#[derive(Debug)]
pub enum Event {
    /// A datagram arrives; if no socket takes it, the sender gets an error.
    Arrives {
        sender: Number,
        from: SocketAddr,
        to: SocketAddr,
        octets: Vec<u8>,
    },
    /// A connection request arrives.
    Asks { who: Number, to: SocketAddr },
    /// A connection is established, or refused.
    Connects { who: Number, other: Option<Number> },
    /// Bytes of a stream arrive at this end.
    Comes(Number, Vec<u8>),
    /// The end of the stream arrives at this end.
    Ends(Number),
    /// A reset arrives at this end.
    Breaks(Number),
    /// Streams get their usual room back.
    Widens,
    /// An actor's timer fires; `why` says which.
    Wakes { actor: usize, why: u64 },
}

/// What an actor is notified of.
pub enum News {
    Datagram {
        actor: usize,
        datagram: Datagram,
    },
    Accepted {
        actor: usize,
        socket: Number,
    },
    Connected {
        actor: usize,
        socket: Number,
    },
    Came {
        actor: usize,
        socket: Number,
        octets: Vec<u8>,
    },
    /// The connection ended, was refused or was reset.
    Ended {
        actor: usize,
        socket: Number,
    },
    Wakes {
        actor: usize,
        why: u64,
    },
}

/// The network.
pub struct Net {
    sockets: BTreeMap<Number, Socket>,
    due: BTreeMap<(u64, u64), Event>,
    /// Nanoseconds since the start, without the time for which the machine slept.
    pub now: u64,
    /// Nanoseconds for which the machine slept.
    pub slept: u64,
    /// When it last woke up.
    pub woke: u64,
    order: u64,
    next: Number,
    pub chance: Random,
    /// Sockets with new readiness, for edge-triggered epoll instances.
    pub edges: Vec<Number>,
    /// Which actor owns each address.
    pub outside: BTreeMap<IpAddr, usize>,
    /// The most bytes that a stream takes and delivers at a time, and until when, while that is less than
    /// usual.
    narrow: Option<(usize, u64)>,
}

impl Net {
    /// Nanoseconds since the start, including sleep: the time of everything outside the machine.
    pub fn clock(&self) -> u64 {
        self.now + self.slept
    }

    /// Puts the machine to sleep: nothing runs in it, and what arrives meanwhile is delivered when it wakes.
    pub fn sleep(&mut self, nanoseconds: u64) {
        self.slept += nanoseconds;
        self.woke = self.now;
    }

    /// Returns an empty network.
    pub fn new(chance: Random) -> Net {
        Net {
            sockets: BTreeMap::new(),
            due: BTreeMap::new(),
            now: 0,
            slept: 0,
            woke: 0,
            order: 0,
            next: 1,
            chance,
            edges: Vec::new(),
            outside: BTreeMap::new(),
            narrow: None,
        }
    }

    /// Creates a socket for the program or an actor.
    pub fn open(&mut self, six: bool, stream: bool, actor: Option<usize>) -> Number {
        let kind = match stream {
            true => Kind::Fresh,
            false => Kind::Datagrams {
                waiting: VecDeque::new(),
                octets: 0,
            },
        };
        self.add(Socket {
            six,
            nonblocking: true,
            patience: None,
            shares: false,
            steered: None,
            tells_destination: false,
            local: None,
            peer: None,
            error: 0,
            kind,
            descriptors: 1,
            actor,
        })
    }

    fn add(&mut self, socket: Socket) -> Number {
        let number = self.next;
        self.next += 1;
        self.sockets.insert(number, socket);
        number
    }

    /// Counts one more descriptor of a socket.
    pub fn share(&mut self, number: Number) {
        if let Some(socket) = self.sockets.get_mut(&number) {
            socket.descriptors += 1;
        }
    }

    /// Returns a socket.
    pub fn socket(&mut self, number: Number) -> Option<&mut Socket> {
        self.sockets.get_mut(&number)
    }

    /// Returns the program's sockets that have an address.
    pub fn bound(&self) -> impl Iterator<Item = &Socket> {
        self.sockets
            .values()
            .filter(|socket| socket.actor.is_none() && socket.local.is_some())
    }

    /// Closes a descriptor, and with the last one its socket. Returns whether that was the last.
    pub fn close(&mut self, number: Number) -> bool {
        let Some(socket) = self.sockets.get_mut(&number) else {
            return false;
        };
        socket.descriptors -= 1;
        if socket.descriptors > 0 {
            return false;
        }
        let Some(socket) = self.sockets.remove(&number) else {
            return false;
        };
        match socket.kind {
            Kind::Stream(stream) => self.hang_up(&stream),
            Kind::Listener { waiting, .. } => waiting.into_iter().for_each(|number| {
                self.close(number);
            }),
            Kind::Datagrams { .. } | Kind::Fresh => {}
        }
        true
    }

    /// Binds a socket. Port 0 picks any free port.
    ///
    /// # Errors
    /// Those of bind(2).
    pub fn bind(&mut self, number: Number, address: SocketAddr) -> Result<(), Errno> {
        let six = self.sockets.get(&number).ok_or(libc::EBADF)?.six;
        if six != address.is_ipv6() {
            return Err(libc::EAFNOSUPPORT);
        }
        let address = match address.port() {
            0 => SocketAddr::new(address.ip(), self.free_port(number)),
            _ => address,
        };
        if self.is_taken(number, address) {
            return Err(libc::EADDRINUSE);
        }
        let socket = self.sockets.get_mut(&number).ok_or(libc::EBADF)?;
        if socket.local.is_some() {
            return Err(libc::EINVAL);
        }
        socket.local = Some(address);
        Ok(())
    }

    /// Whether another socket of the same protocol has the address, unless both allow sharing.
    fn is_taken(&self, number: Number, address: SocketAddr) -> bool {
        let Some(own) = self.sockets.get(&number) else {
            return false;
        };
        let meets = |bound: SocketAddr| {
            let any = bound.ip().is_unspecified() || address.ip().is_unspecified();
            bound.port() == address.port()
                && bound.is_ipv6() == address.is_ipv6()
                && (any || bound.ip() == address.ip())
        };
        self.sockets.iter().any(|(&other, socket)| {
            // An accepted connection has its listener's address.
            other != number
                && !matches!(socket.kind, Kind::Stream(_))
                && socket.is_stream() == own.is_stream()
                && socket.local.is_some_and(meets)
                && !(socket.shares && own.shares)
        })
    }

    fn free_port(&mut self, number: Number) -> u16 {
        loop {
            let port = 32_768 + self.chance.below(28_232) as u16;
            let six = self.sockets.get(&number).is_some_and(|socket| socket.six);
            if !self.is_taken(number, SocketAddr::new(any(six), port)) {
                return port;
            }
        }
    }

    /// Returns the local address for talking to `peer`, assigned if there is none.
    fn settle(&mut self, number: Number, peer: SocketAddr) -> Result<SocketAddr, Errno> {
        let local = self.sockets.get(&number).ok_or(libc::EBADF)?.local;
        let near: IpAddr = match (peer.ip().is_loopback(), peer.is_ipv6()) {
            (true, _) => peer.ip(),
            (false, false) => Ipv4Addr::new(10, 9, 0, 1).into(),
            (false, true) => Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1).into(),
        };
        match local {
            Some(local) if local.ip().is_unspecified() => Ok(SocketAddr::new(near, local.port())),
            Some(local) => Ok(local),
            None => {
                let local = SocketAddr::new(near, self.free_port(number));
                self.sockets.get_mut(&number).ok_or(libc::EBADF)?.local = Some(local);
                Ok(local)
            }
        }
    }

    /// Finds the program's socket that receives what is sent to an address: the steered one of a group, or
    /// one by hash.
    fn taker(&mut self, datagrams: bool, from: SocketAddr, to: SocketAddr) -> Option<Number> {
        let fits = |socket: &Socket| {
            let right = match socket.kind {
                Kind::Datagrams { .. } => datagrams && socket.peer.is_none_or(|peer| peer == from),
                Kind::Listener { .. } => !datagrams,
                Kind::Fresh | Kind::Stream(_) => false,
            };
            let local = socket.local?;
            let here = local.port() == to.port() && (local.ip() == to.ip() || local.ip().is_unspecified());
            let rank = (socket.peer.is_some(), !local.ip().is_unspecified());
            (right && here && socket.six == to.is_ipv6() && socket.actor.is_none()).then_some(rank)
        };
        let best = self.sockets.values().filter_map(fits).max()?;
        let group: Vec<_> = self
            .sockets
            .iter()
            .filter(|(_, socket)| fits(socket) == Some(best))
            .collect();
        let steered = group.iter().find_map(|(_, socket)| socket.steered);
        let index = match steered {
            Some(place) if (place as usize) < group.len() => place as usize,
            _ => Random::new(u64::from(from.port()))
                .branch(group.len() as u64)
                .below(group.len() as u64) as usize,
        };
        Some(*group[index].0)
    }

    /// Schedules an event for this many nanoseconds from now.
    pub fn after(&mut self, nanoseconds: u64, event: Event) {
        self.order += 1;
        self.due.insert((self.now + nanoseconds, self.order), event);
    }

    fn way(&mut self) -> u64 {
        WAY.0 + self.chance.below(WAY.1)
    }

    /// Returns when the next event is due.
    pub fn next_due(&self) -> Option<u64> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Runs the first event if it is due. Returns what to notify an actor of, if anything.
    pub fn happen(&mut self) -> Option<Option<News>> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= self.now)?;
        Some(match first.remove() {
            Event::Arrives {
                sender,
                from,
                to,
                octets,
            } => self.arrive(sender, Datagram { from, to, octets }),
            Event::Asks { who, to } => self.ask(who, to),
            Event::Connects { who, other } => self.connected(who, other),
            Event::Comes(number, octets) => self.came(number, octets),
            Event::Ends(number) => self.ended(number),
            Event::Breaks(number) => self.broken(number),
            Event::Widens => self.widen(),
            Event::Wakes { actor, why } => Some(News::Wakes { actor, why }),
        })
    }

    /// Returns a socket's readiness in bits of epoll.
    pub fn ready(&self, number: Number) -> u32 {
        let Some(socket) = self.sockets.get(&number) else {
            return 0;
        };
        let mut events = match &socket.kind {
            Kind::Datagrams { waiting, .. } => {
                libc::EPOLLOUT | if waiting.is_empty() { 0 } else { libc::EPOLLIN }
            }
            Kind::Fresh if socket.peer.is_some() && socket.error == 0 => 0,
            Kind::Fresh => libc::EPOLLOUT | libc::EPOLLHUP,
            Kind::Listener { waiting, .. } => {
                if waiting.is_empty() {
                    0
                } else {
                    libc::EPOLLIN
                }
            }
            Kind::Stream(stream) => stream.ready(self.room()),
        };
        if socket.error != 0 {
            events |= libc::EPOLLERR | libc::EPOLLIN | libc::EPOLLOUT;
        }
        events as u32
    }
}

impl Socket {
    /// Whether it is a stream socket.
    pub fn is_stream(&self) -> bool {
        !matches!(self.kind, Kind::Datagrams { .. })
    }
}

/// Returns the wildcard address.
pub fn any(six: bool) -> IpAddr {
    match six {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}
