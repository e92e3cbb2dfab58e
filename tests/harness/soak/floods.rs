//! What clients do that must not silence others. Each flood has its own client addresses.

mod encrypted;
mod own_answers;
mod stages;

pub use stages::Stage;

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::client::{frame, try_connect_from};
use super::query;

/// A flood, which goes on until `stop` is set.
#[derive(Clone, Copy)]
pub struct Flood {
    /// Its name in the table.
    pub name: &'static str,
    /// The flood itself.
    pub run: fn(&Stage, &AtomicBool),
}

/// All floods.
pub const ALL: [Flood; 16] = [
    flood("pointer chains", pointer_chains),
    flood("pipelining without reading", pipelining),
    flood("20 silent names", few_silent_names),
    flood("2 000 silent names a second", many_silent_names),
    flood("10 000 idle connections", idle_connections),
    flood("one byte per second", octets),
    flood("random names", random_names),
    flood("spoofed sources", spoofed_sources),
    flood(
        "1 500 SRV records whose targets have 1 500 addresses each",
        own_answers::srv_sets,
    ),
    flood(
        "a service of 1 000 endpoints and 1 000 ports",
        own_answers::wide_slices,
    ),
    flood(
        "a cached set of 2 000 addresses, put in another order",
        own_answers::edits,
    ),
    flood("names that a filter traps at", own_answers::traps),
    flood("reloads, every other one refused", own_answers::reloads),
    flood("forged first datagrams of QUIC", encrypted::first_datagrams),
    flood("POST requests whose bodies never come", encrypted::bodies),
    flood("silent connections to the webhook", encrypted::webhook),
];

const fn flood(name: &'static str, run: fn(&Stage, &AtomicBool)) -> Flood {
    Flood { name, run }
}

/// The address of a client of this flood.
fn client(flood: u8, number: usize) -> IpAddr {
    let [_, _, high, low] = (number as u32 + 1).to_be_bytes();
    Ipv4Addr::new(127, 0x40 + flood, high, low).into()
}

fn socket(from: IpAddr) -> UdpSocket {
    UdpSocket::bind((from, 0)).expect("a UDP socket")
}

/// Acts this many times per second, in small groups, until `stop` is set.
fn at_rate(per_second: u32, stop: &AtomicBool, mut act: impl FnMut(u64)) {
    const GROUPS: u32 = 100;
    let begun = Instant::now();
    let mut number = 0;
    for group in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..per_second / GROUPS {
            act(number);
            number += 1;
        }
        let due = begun + Duration::from_secs(1) * (group + 1) / GROUPS;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Builds a query with useless records whose names are pointers to pointers to pointers.
fn chained(octets: usize) -> Vec<u8> {
    let mut message = query("chain.test", "A");
    let mut target = 12_u16;
    let mut count = 0_u16;
    while message.len() + 12 <= octets {
        let here = message.len();
        message.extend((0xc000 | target).to_be_bytes());
        // An empty TXT record.
        message.extend([0, 16, 0, 1, 0, 0, 0, 0, 0, 0]);
        // The largest offset that a pointer can hold.
        if here < 1 << 14 {
            target = here as u16;
        }
        count += 1;
    }
    message[10..12].copy_from_slice(&count.to_be_bytes());
    message
}

fn pointer_chains(stage: &Stage, stop: &AtomicBool) {
    let server = stage.address();
    let udp = socket(client(1, 0));
    let (datagram, message) = (chained(4096), frame(&chained(65_535)));
    let mut streams: Vec<Option<TcpStream>> = (0..8).map(|_| None).collect();
    at_rate(1000, stop, |number| {
        let _ = udp.send_to(&datagram, server);
        if number % 20 == 0 {
            let stream = &mut streams[(number / 20 % 8) as usize];
            push(stream, client(1, 1), server, &message);
        }
    });
}

/// Writes as much as the connection accepts without waiting, to a new one if the old one is closed.
fn push(stream: &mut Option<TcpStream>, from: IpAddr, server: SocketAddr, octets: &[u8]) {
    if stream.is_none() {
        *stream = try_connect_from(from, server).ok();
        if let Some(stream) = stream {
            let _ = stream.set_nonblocking(true);
        }
    }
    let written = stream.as_mut().map(|stream| stream.write(octets));
    if let Some(Err(error)) = written
        && error.kind() != std::io::ErrorKind::WouldBlock
    {
        *stream = None;
    }
}

fn pipelining(stage: &Stage, stop: &AtomicBool) {
    let server = stage.address();
    let queries = frame(&query("big.test", "TXT")).repeat(200);
    let mut streams: Vec<Option<TcpStream>> = (0..200).map(|_| None).collect();
    at_rate(1000, stop, |number| {
        let at = number as usize % streams.len();
        push(&mut streams[at], client(2, at % 20), server, &queries);
    });
}

fn ask_for(stage: &Stage, stop: &AtomicBool, flood: u8, per_second: u32, name: impl Fn(u64) -> String) {
    let server = stage.address();
    let socket = socket(client(flood, 0));
    socket.set_nonblocking(true).expect("a socket");
    at_rate(per_second, stop, |number| {
        let _ = socket.send_to(&query(&name(number), "A"), server);
        while socket.recv(&mut [0; 512]).is_ok() {}
    });
}

fn few_silent_names(stage: &Stage, stop: &AtomicBool) {
    ask_for(stage, stop, 3, 19_000, |number| {
        format!("few{}.silent.test", number % 20)
    });
}

/// Returns a value that differs between runs, so that no name is cached.
fn salt() -> u128 {
    std::time::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_millis())
}

fn many_silent_names(stage: &Stage, stop: &AtomicBool) {
    let salt = salt();
    ask_for(stage, stop, 4, 2000, |number| {
        format!("many{number}.{salt}.silent.test")
    });
}

fn idle_connections(stage: &Stage, stop: &AtomicBool) {
    let server = stage.address();
    // As many as this process may have, minus a reserve.
    let most = raise_descriptors().saturating_sub(2000).clamp(100, 10_000);
    let mut open = VecDeque::new();
    at_rate(2000, stop, |number| {
        if open.len() >= most {
            open.pop_front();
        }
        open.extend(try_connect_from(client(5, number as usize % 100), server).ok());
    });
}

/// Raises this process's soft limit of descriptors to the hard limit, and returns that.
fn raise_descriptors() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit, and reads it.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    usize::try_from(limit.rlim_max).unwrap_or(usize::MAX)
}

fn octets(stage: &Stage, stop: &AtomicBool) {
    let server = stage.address();
    let mut streams: Vec<Option<TcpStream>> = (0..500).map(|_| None).collect();
    at_rate(500, stop, |number| {
        let at = number as usize % streams.len();
        push(&mut streams[at], client(6, at % 10), server, &[0]);
    });
}

fn random_names(stage: &Stage, stop: &AtomicBool) {
    let salt = salt();
    ask_for(stage, stop, 7, 2000, |number| {
        format!("{number}.{salt}.random.test")
    });
}

fn spoofed_sources(stage: &Stage, stop: &AtomicBool) {
    let server = stage.address();
    let sockets: Vec<UdpSocket> = (0..250).map(|number| socket(client(8, number))).collect();
    // Their replies are never read.
    let query = query("hit0.calm.test", "A");
    at_rate(4000, stop, |number| {
        let _ = sockets[number as usize % sockets.len()].send_to(&query, server);
    });
}
