//! The network of the box: datagrams and streams of both families.
//!
//! It keeps what the kernel's loopback would, and makes chance of what the kernel leaves to its own: ports, which of several
//! sockets of one address a datagram goes to, how long anything takes, what is lost. A descriptor of it is a real socket that
//! is never bound, so that numbers and options are the kernel's. Addresses that actors own are outside: what comes there is
//! handed to them, and they have sockets as well, without descriptors.

pub mod datagrams;
pub mod streams;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::seed::Random;

/// Octets that wait in a socket for its reader, at most: what loopback sockets have unless told otherwise.
pub const BUFFER: usize = 212_992;

/// How long a datagram or a piece of a stream is under way, in nanoseconds: at least, and by chance more.
const WAY: (u64, u64) = (20_000, 80_000);

/// Which socket. Several descriptors can be one socket.
pub type Number = u32;

/// Why a call fails.
pub type Errno = i32;

/// A socket of the program or of an actor.
pub struct Socket {
    pub six: bool,
    /// Whether calls return at once.
    pub nonblocking: bool,
    /// How long calls that do not return at once wait, in nanoseconds.
    pub patience: Option<u64>,
    /// Whether others may be bound to its address, too (SO_REUSEPORT).
    pub shares: bool,
    /// Which of those that share its address takes what comes, by the program that was attached.
    pub steered: Option<u32>,
    /// Whether who receives wants to be told the address that a datagram went to.
    pub tells_destination: bool,
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    /// What went wrong with it and was not asked for yet.
    pub error: Errno,
    pub kind: Kind,
    /// Descriptors of it.
    descriptors: u32,
    /// Whose it is, if not the program's.
    pub actor: Option<usize>,
}

/// What a socket is for.
pub enum Kind {
    /// Datagrams: those that wait, and their octets.
    Datagrams {
        waiting: VecDeque<Datagram>,
        octets: usize,
    },
    /// A stream that is neither connected nor listens.
    Fresh,
    /// A listener: connections that wait, at most so many.
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

/// Something that happens later.
#[derive(Debug)]
pub enum Event {
    /// A datagram arrives; the sender's socket is told if nobody is there.
    Arrives {
        sender: Number,
        from: SocketAddr,
        to: SocketAddr,
        octets: Vec<u8>,
    },
    /// Somebody asks for a connection.
    Asks { who: Number, to: SocketAddr },
    /// A connection is made, or refused.
    Connects { who: Number, other: Option<Number> },
    /// Octets of a stream, for this end of it.
    Comes(Number, Vec<u8>),
    /// No more octets, for this end.
    Ends(Number),
    /// The connection is broken off, for this end.
    Breaks(Number),
    /// Streams have the room again that they usually have.
    Widens,
    /// An actor wanted to be woken, and why.
    Wakes { actor: usize, why: u64 },
}

/// What an actor is told.
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
    /// No more comes, or it was refused or broken off.
    Ended {
        actor: usize,
        socket: Number,
    },
    Wakes {
        actor: usize,
        why: u64,
    },
}

/// All of it.
pub struct Net {
    sockets: BTreeMap<Number, Socket>,
    due: BTreeMap<(u64, u64), Event>,
    /// Nanoseconds since the start, but for those in which the machine slept.
    pub now: u64,
    /// Those.
    pub slept: u64,
    /// When it last woke.
    pub woke: u64,
    order: u64,
    next: Number,
    pub chance: Random,
    /// Sockets of which something became true that was not: for who waits at an epoll instance.
    pub edges: Vec<Number>,
    /// Which addresses are whose.
    pub outside: BTreeMap<IpAddr, usize>,
    /// Octets that a stream takes and carries at a time, and until when, if that is less than usual.
    narrow: Option<(usize, u64)>,
}

impl Net {
    /// Nanoseconds since the start: for all others time goes on while the machine sleeps.
    pub fn clock(&self) -> u64 {
        self.now + self.slept
    }

    /// Lets the machine sleep: nothing happens in it, and what comes meanwhile comes when it wakes.
    pub fn sleep(&mut self, nanoseconds: u64) {
        self.slept += nanoseconds;
        self.woke = self.now;
    }

    /// An empty one.
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

    /// A new socket, of the program or of an actor.
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

    /// One more descriptor stands for a socket.
    pub fn share(&mut self, number: Number) {
        if let Some(socket) = self.sockets.get_mut(&number) {
            socket.descriptors += 1;
        }
    }

    /// A socket.
    pub fn socket(&mut self, number: Number) -> Option<&mut Socket> {
        self.sockets.get_mut(&number)
    }

    /// All of the program's that have an address.
    pub fn bound(&self) -> impl Iterator<Item = &Socket> {
        self.sockets
            .values()
            .filter(|socket| socket.actor.is_none() && socket.local.is_some())
    }

    /// A descriptor is closed, and with the last one of it the socket: whether it was.
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

    /// Binds a socket. Port 0 is any that is free.
    ///
    /// # Errors
    /// As bind(2).
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

    /// Whether another socket of that protocol has an address, and one of both does not share it.
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
            // A connection that a listener accepted has the listener's address.
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

    /// Gives a socket that has no address one for whom it speaks to.
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

    /// The program's sockets that take what goes to an address: by the socket that it is steered to, or by a hash.
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

    /// What happens after so many nanoseconds.
    pub fn after(&mut self, nanoseconds: u64, event: Event) {
        self.order += 1;
        self.due.insert((self.now + nanoseconds, self.order), event);
    }

    fn way(&mut self) -> u64 {
        WAY.0 + self.chance.below(WAY.1)
    }

    /// When something happens next.
    pub fn next_due(&self) -> Option<u64> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets happen what is due first, if it is: what an actor is to be told of it, if any.
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

    /// What a socket is ready for, as epoll says it.
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
    /// Whether it is for streams.
    pub fn is_stream(&self) -> bool {
        !matches!(self.kind, Kind::Datagrams { .. })
    }
}

/// The wildcard address.
pub fn any(six: bool) -> IpAddr {
    match six {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}
