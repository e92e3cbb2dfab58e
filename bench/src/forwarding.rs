//! A forwarder that does only what every forwarder must do for a miss: the floor of the workload `misses`.
//!
//! It reads a batch of queries, gives each a random ID on a socket with a random port, and sends it to the
//! upstream. It reads the answers, restores each ID, and sends them back. It has the proxy's entropy (RFC 5452
//! section 9.2): a socket carries 16 queries, then a new one is opened. It caches and repeats nothing. Of an
//! answer it checks only that it comes from the upstream and has an ID that was sent.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use clap::Args;
use socket2::{Domain, Socket, Type};

use crate::datagrams::{Datagrams, enlarge_buffer};
use crate::epoll::{Epoll, Trigger};
use crate::wire::HEADER;

/// Queries per socket.
const QUERIES: usize = 16;

/// Maximum open sockets. Beyond that, the oldest is closed, whatever it still waits for.
const SOCKETS: usize = 1024;

/// The listener's number in the epoll set. Sockets to the upstream are numbered by their place.
const LISTENER: u64 = SOCKETS as u64;

/// The floor of misses, on the command line.
#[derive(Args)]
pub struct Forwarder {
    /// Where to answer
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddrV4,
    /// Where to ask
    #[arg(long, value_name = "IP:PORT")]
    upstream: SocketAddrV4,
}

impl Forwarder {
    /// Forwards until the process ends.
    pub fn serve(&self) -> io::Result<()> {
        forward(&UdpSocket::bind(self.listen)?, self.upstream)
    }
}

fn forward(listener: &UdpSocket, upstream: SocketAddrV4) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    enlarge_buffer(listener)?;
    let mut epoll = Epoll::new()?;
    epoll.add(listener, LISTENER, Trigger::Level)?;
    let mut upstreams = Upstreams::new(upstream)?;
    let mut batches = Batches::new();
    loop {
        let ready: Vec<u64> = epoll.wait()?.collect();
        for number in ready {
            match usize::try_from(number) {
                Ok(place) if number != LISTENER => upstreams.answer(place, listener, &mut batches)?,
                _ => upstreams.ask(listener, &epoll, &mut batches)?,
            }
        }
    }
}

/// Buffers for datagrams received and sent.
struct Batches {
    queries: Datagrams,
    asked: Datagrams,
    answers: Datagrams,
}

impl Batches {
    fn new() -> Batches {
        Batches {
            queries: Datagrams::new(),
            asked: Datagrams::new().without_address(),
            answers: Datagrams::new(),
        }
    }
}

/// A query in flight.
#[derive(Clone, Copy)]
struct Pending {
    sent_id: [u8; 2],
    client: SocketAddrV4,
    client_id: [u8; 2],
}

/// A socket to the upstream, with its own port.
struct Upstream {
    socket: Socket,
    /// How many queries it has carried.
    carried: usize,
    pending: Vec<Pending>,
}

struct Upstreams {
    address: SocketAddrV4,
    /// A ring: a new socket replaces the oldest.
    sockets: Vec<Option<Upstream>>,
    /// The place of the socket for the next query.
    current: usize,
    random: Random,
}

impl Upstreams {
    fn new(address: SocketAddrV4) -> io::Result<Upstreams> {
        Ok(Upstreams {
            address,
            sockets: (0..SOCKETS).map(|_| None).collect(),
            current: 0,
            random: Random::new()?,
        })
    }

    /// Forwards the queries that wait at the listener.
    fn ask(&mut self, listener: &UdpSocket, epoll: &Epoll, batches: &mut Batches) -> io::Result<()> {
        let count = batches
            .queries
            .receive(listener.as_raw_fd(), libc::MSG_DONTWAIT)?;
        let mut waiting = 0;
        for index in 0..count {
            let query = batches.queries.received(index);
            let Some(&client_id) = query.first_chunk::<2>().filter(|_| query.len() >= HEADER) else {
                continue;
            };
            let random = &mut self.random;
            let upstream = match &mut self.sockets[self.current] {
                Some(upstream) if upstream.carried < QUERIES => upstream,
                full => {
                    if let Some(full) = full {
                        batches.asked.send(full.socket.as_raw_fd(), waiting)?;
                        waiting = 0;
                        self.current = (self.current + 1) % SOCKETS;
                    }
                    let new = Upstream::connect(self.address)?;
                    epoll.add(&new.socket, self.current as u64, Trigger::Level)?;
                    self.sockets[self.current].insert(new)
                }
            };
            let client = batches.queries.address(index);
            let sent_id = upstream.next(random, client, client_id);
            batches.asked.edit(waiting, |buffer, _| {
                buffer[..query.len()].copy_from_slice(query);
                buffer[..2].copy_from_slice(&sent_id);
                query.len()
            });
            waiting += 1;
        }
        if let Some(upstream) = &self.sockets[self.current] {
            batches.asked.send(upstream.socket.as_raw_fd(), waiting)?;
        }
        Ok(())
    }

    /// Sends the answers that wait at one socket to their clients.
    fn answer(&mut self, place: usize, listener: &UdpSocket, batches: &mut Batches) -> io::Result<()> {
        let Some(upstream) = &mut self.sockets[place] else {
            return Ok(());
        };
        // Connected sockets carry no addresses, so the batch for queries that were sent has room for answers, too.
        let count = batches
            .asked
            .receive(upstream.socket.as_raw_fd(), libc::MSG_DONTWAIT)?;
        let mut answered = 0;
        for index in 0..count {
            let answer = batches.asked.received(index);
            let Some(pending) = upstream.take(answer) else {
                continue;
            };
            batches.answers.edit(answered, |buffer, _| {
                buffer[..answer.len()].copy_from_slice(answer);
                buffer[..2].copy_from_slice(&pending.client_id);
                answer.len()
            });
            batches.answers.address_to(answered, pending.client);
            answered += 1;
        }
        batches.answers.send(listener.as_raw_fd(), answered)?;
        if upstream.carried == QUERIES && upstream.pending.is_empty() {
            self.sockets[place] = None;
        }
        Ok(())
    }
}

impl Upstream {
    /// Opens a socket on a port that the kernel draws.
    fn connect(address: SocketAddrV4) -> io::Result<Upstream> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM.nonblocking().cloexec(), None)?;
        socket.connect(&address.into())?;
        Ok(Upstream {
            socket,
            carried: 0,
            pending: Vec::with_capacity(QUERIES),
        })
    }

    /// Records a query. Returns the ID to send it with, which no other query in flight on this socket has.
    fn next(&mut self, random: &mut Random, client: SocketAddrV4, client_id: [u8; 2]) -> [u8; 2] {
        let sent_id = loop {
            let id = random.id();
            if self.pending.iter().all(|pending| pending.sent_id != id) {
                break id;
            }
        };
        self.carried += 1;
        self.pending.push(Pending {
            sent_id,
            client,
            client_id,
        });
        sent_id
    }

    /// Removes and returns the query that this answers.
    fn take(&mut self, answer: &[u8]) -> Option<Pending> {
        let id = answer.first_chunk::<2>().filter(|_| answer.len() >= HEADER)?;
        let at = self.pending.iter().position(|pending| pending.sent_id == *id)?;
        Some(self.pending.swap_remove(at))
    }
}

/// Xorshift, seeded by the kernel: the cheapest numbers that differ.
struct Random(u32);

impl Random {
    fn new() -> io::Result<Random> {
        let mut seed = [0; 4];
        // SAFETY: the buffer is ours and as long as the call is told.
        match unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) } {
            4 => Ok(Random(u32::from_ne_bytes(seed) | 1)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn id(&mut self) -> [u8; 2] {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        [(self.0 >> 8) as u8, (self.0 >> 16) as u8]
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use super::*;

    fn v4(socket: &UdpSocket) -> SocketAddrV4 {
        match socket.local_addr() {
            Ok(SocketAddr::V4(address)) => address,
            other => panic!("{other:?}"),
        }
    }

    /// A query with this ID: only a header, which names the client.
    fn query(id: u8, client: u8) -> [u8; HEADER] {
        let mut query = [0; HEADER];
        query[..2].copy_from_slice(&[7, id]);
        query[HEADER - 1] = client;
        query
    }

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }

    #[test]
    fn each_gets_its_own_answer_and_a_socket_carries_sixteen() {
        let (listener, upstream) = (socket(), socket());
        let (listen, ask) = (v4(&listener), v4(&upstream));
        std::thread::spawn(move || forward(&listener, ask).unwrap());
        let clients = [socket(), socket()];
        let mut ports = Vec::new();
        for id in 0..40 {
            // Both queries have the same ID, and are answered in reverse order.
            for (number, client) in clients.iter().enumerate() {
                client.send_to(&query(id, number as u8), listen).unwrap();
            }
            let mut buffer = [0; 64];
            let asked = [(); 2].map(|()| {
                let (length, from) = upstream.recv_from(&mut buffer).unwrap();
                ports.push(from.port());
                (buffer[..length].to_vec(), from)
            });
            for (message, from) in asked.into_iter().rev() {
                upstream.send_to(&message, from).unwrap();
            }
            for (number, client) in clients.iter().enumerate() {
                let (length, from) = client.recv_from(&mut buffer).unwrap();
                assert_eq!(buffer[..length], query(id, number as u8));
                assert_eq!(from, SocketAddr::V4(listen));
            }
        }
        ports.dedup();
        assert_eq!(ports.len(), 80 / QUERIES, "{ports:?}");
    }
}
