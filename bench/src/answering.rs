//! Servers reduced to the minimum: receive, write an answer in place, send.
//!
//! The floor and the upstream are these loops with different answers. They parse only what the answer needs,
//! count nothing, and check only what could overrun a buffer.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;

use clap::{Args, ValueEnum};

use crate::datagrams::{BATCH, DATAGRAM, Datagrams, enlarge_buffer};
use crate::epoll::{Epoll, Trigger};
use crate::wire::{self, Tail};

/// How to answer.
#[derive(Clone)]
pub enum Answers {
    /// The same bytes after every question: the floor.
    Fixed(std::sync::Arc<Tail>),
    /// What the name and type require: the upstream.
    Authoritative,
}

impl Answers {
    /// Turns the query of `length` bytes in `buffer` into its answer. Returns the length.
    fn write(&self, buffer: &mut [u8], length: usize) -> usize {
        let Some(end) = wire::question_end(&buffer[..length]) else {
            // No query of the benchmark. Something must go back: the header, as an answer.
            buffer[2] |= 0x80;
            return wire::HEADER.min(length);
        };
        match self {
            Answers::Fixed(tail) => tail.answer(buffer, end),
            Answers::Authoritative => wire::authoritative(&buffer[..length], end).answer(buffer, end),
        }
    }
}

/// The floor, on the command line.
#[derive(Args)]
pub struct Floor {
    /// Where to answer
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddrV4,
    /// What to answer
    #[arg(long, value_enum, default_value = "address")]
    answer: FixedAnswer,
    /// How to wait for queries
    #[arg(long, value_enum, default_value = "receive")]
    wait: Wait,
}

#[derive(Clone, Copy, ValueEnum)]
enum FixedAnswer {
    Address,
    Nxdomain,
}

impl Floor {
    /// Answers until the process ends.
    pub fn serve(&self) -> io::Result<()> {
        let tail = match self.answer {
            FixedAnswer::Address => Tail::address(wire::A, 0x0a00_0001),
            FixedAnswer::Nxdomain => Tail::denial(wire::NXDOMAIN, &[]),
        };
        serve(self.listen, Answers::Fixed(tail.into()), self.wait)
    }
}

/// The upstream, on the command line.
#[derive(Args)]
pub struct Upstream {
    /// Where to answer
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddrV4,
}

impl Upstream {
    /// Answers until the process ends.
    pub fn serve(&self) -> io::Result<()> {
        serve(self.listen, Answers::Authoritative, Wait::Receive)
    }
}

/// How a loop waits for queries over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// In the call that receives them.
    Receive,
    /// For the socket to be ready, as whoever has other things to wait for, too, must.
    Epoll,
}

/// Answers on `address`, over UDP and TCP, until the process ends.
fn serve(address: SocketAddrV4, answers: Answers, wait: Wait) -> io::Result<()> {
    let udp = UdpSocket::bind(address)?;
    enlarge_buffer(&udp)?;
    let tcp = TcpListener::bind(address)?;
    let for_tcp = answers.clone();
    std::thread::spawn(move || {
        if let Err(error) = serve_tcp(&tcp, &for_tcp) {
            eprintln!("TCP on {address}: {error}");
        }
    });
    let epoll = match wait {
        Wait::Receive => None,
        Wait::Epoll => {
            let epoll = Epoll::new()?;
            epoll.add(&udp, 0, Trigger::Edge)?;
            Some(epoll)
        }
    };
    serve_udp(&udp, &answers, epoll)
}

fn serve_udp(socket: &UdpSocket, answers: &Answers, mut epoll: Option<Epoll>) -> io::Result<()> {
    let mut batch = Datagrams::new();
    let flags = match epoll {
        Some(_) => libc::MSG_DONTWAIT,
        None => libc::MSG_WAITFORONE,
    };
    let mut received = 0;
    loop {
        // A batch that is not full has emptied the socket.
        if let Some(epoll) = &mut epoll
            && received < BATCH
        {
            drop(epoll.wait()?);
        }
        received = batch.receive(socket.as_raw_fd(), flags)?;
        for index in 0..received.min(BATCH) {
            batch.edit(index, |buffer, length| answers.write(buffer, length));
        }
        batch.send(socket.as_raw_fd(), received)?;
    }
}

struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// Serves all connections from one thread, with poll(2): there are eight.
pub fn serve_tcp(listener: &TcpListener, answers: &Answers) -> io::Result<()> {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let watch = |socket| libc::pollfd {
            fd: socket,
            events: libc::POLLIN,
            revents: 0,
        };
        let streams = connections.iter().map(|c| watch(c.stream.as_raw_fd()));
        let mut sockets: Vec<_> = streams.chain([watch(listener.as_raw_fd())]).collect();
        // SAFETY: pointer and length are those of a vector of ours.
        if unsafe { libc::poll(sockets.as_mut_ptr(), sockets.len() as libc::nfds_t, -1) } < 0 {
            continue;
        }
        let mut ready = sockets.iter().map(|socket| socket.revents != 0);
        connections.retain_mut(|connection| !ready.next().unwrap_or(false) || connection.turn(answers));
        if sockets.last().is_some_and(|socket| socket.revents != 0) {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            connections.push(Connection {
                stream,
                unread: Vec::new(),
            });
        }
    }
}

impl Connection {
    /// Answers all complete queries received, in one write. Returns false if the connection is over.
    fn turn(&mut self, answers: &Answers) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(read) => self.unread.extend_from_slice(&buffer[..read]),
        }
        let mut replies = Vec::new();
        let mut at = 0;
        while let Some(prefix) = self.unread[at..].first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*prefix));
            if !(wire::HEADER..=DATAGRAM).contains(&length) {
                return false;
            }
            let Some(query) = self.unread.get(at + 2..at + 2 + length) else {
                break;
            };
            let mut message = [0; 2 * DATAGRAM];
            message[..length].copy_from_slice(query);
            let reply = answers.write(&mut message, length);
            replies.extend((reply as u16).to_be_bytes());
            replies.extend_from_slice(&message[..reply]);
            at += 2 + length;
        }
        self.unread.drain(..at);
        self.stream.write_all(&replies).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Client, Monotonic, as_fast_as_answered};
    use crate::tcp_client::TcpClient;
    use crate::udp_client::UdpClient;
    use crate::workload::Workload;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    /// Starts a server on a free port, until the test process ends.
    fn start(answers: Answers, wait: Wait) -> SocketAddrV4 {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = probe.local_addr().unwrap() else {
            unreachable!()
        };
        drop(probe);
        std::thread::spawn(move || serve(address, answers, wait).unwrap());
        while TcpStream::connect(address).is_err() {
            std::thread::yield_now();
        }
        address
    }

    fn ask(client: &mut impl Client, workload: Workload) {
        let mut questions = workload.questions(1);
        let mut next = || questions.next();
        let tally =
            as_fast_as_answered(client, &mut Monotonic, Duration::from_secs(10), 2000, &mut next).unwrap();
        assert_eq!((tally.sent, tally.answered), (2000, 2000), "{}", workload.name());
    }

    #[test]
    fn the_upstream_answers_every_workload() {
        let server = start(Answers::Authoritative, Wait::Receive);
        for workload in Workload::ALL {
            if workload.over_tcp() {
                ask(&mut TcpClient::new(server, 3).unwrap(), workload);
            } else {
                let (addresses, sockets) = workload.sources();
                ask(&mut UdpClient::new(server, addresses, sockets).unwrap(), workload);
            }
        }
    }

    #[test]
    fn the_floor_says_one_thing() {
        for wait in [Wait::Receive, Wait::Epoll] {
            let server = start(Answers::Fixed(Tail::address(wire::A, 1).into()), wait);
            ask(
                &mut UdpClient::new(server, Vec::new(), 2).unwrap(),
                Workload::Pairs,
            );
            ask(&mut TcpClient::new(server, 2).unwrap(), Workload::Tcp);
        }
    }

    #[test]
    fn sources_are_as_many_as_promised() {
        for promised in [1, 7, 10, 100, 10_000] {
            let (addresses, sockets) = Workload::Sources(promised).sources();
            assert_eq!(addresses.len() * sockets, promised as usize);
            assert!(addresses.iter().all(Ipv4Addr::is_loopback));
        }
    }
}
