//! How evenly the kernel spreads clients over a group of sockets (SO_REUSEPORT), such as those of the proxy's
//! workers: by its hash, and by programs.
//!
//! Only the server is simulated: clients send real datagrams over loopback to a group of sockets that count
//! them. Each draw has other ports, and so other hashes.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;

use crate::datagrams::{BATCH, Datagrams};
use crate::group::{Choice, bind, choose};
use crate::process::{pin, processors};
use crate::sample::median;

/// The group's address.
const GROUP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);

/// The first client's address.
const CLIENTS: u32 = 0x7f40_0000;

/// The first port of clients that all use the same few.
const FEW_PORTS: u16 = 20_000;

/// How long datagrams may take that another processor delivers.
const PATIENCE: Duration = Duration::from_secs(1);

/// What to measure.
#[derive(Args)]
pub struct Settings {
    /// Sockets of a group
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "2,4,8,16,64"
    )]
    groups: Vec<u32>,
    /// How often each population asks each group
    #[arg(long, value_name = "N", default_value_t = 11)]
    draws: u32,
    /// Queries of a draw
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    queries: u32,
    /// Send from processor 0 alone, as if all packets came from a device whose packets another one distributes
    #[arg(long)]
    one_sender: bool,
}

/// A population of clients.
struct Population {
    name: &'static str,
    /// How many sockets; `None`: a new one for each query.
    sockets: Option<u32>,
    /// Sockets per address.
    per_address: u32,
    /// Whether the socket of rank k asks in proportion to 1/k; otherwise all ask equally.
    zipf: bool,
}

const fn forwarders(name: &'static str, sockets: u32) -> Population {
    Population {
        name,
        sockets: Some(sockets),
        per_address: 1,
        zipf: false,
    }
}

const POPULATIONS: [Population; 7] = [
    Population {
        name: "stubs, a new port for each query",
        sockets: None,
        per_address: 1,
        zipf: false,
    },
    forwarders("64 sockets", 64),
    forwarders("200 sockets", 200),
    forwarders("1 000 sockets", 1_000),
    forwarders("10 000 sockets", 10_000),
    Population {
        name: "1 000 sockets, rank k with 1/k of the load",
        sockets: Some(1_000),
        per_address: 1,
        zipf: true,
    },
    Population {
        name: "1 250 addresses, the same 8 ports each",
        sockets: Some(10_000),
        per_address: 8,
        zipf: false,
    },
];

impl Population {
    /// Returns how many of `queries` come from each socket.
    fn queries(&self, queries: u32) -> Vec<u32> {
        let Some(sockets) = self.sockets else {
            return vec![1; queries as usize];
        };
        let weight = |rank: u32| if self.zipf { 1.0 / f64::from(rank) } else { 1.0 };
        let all: f64 = (1..=sockets).map(weight).sum();
        let share = |rank| f64::from(queries) * weight(rank) / all;
        // At least one: a client that never asks is none.
        (1..=sockets)
            .map(|rank| share(rank).round().max(1.0) as u32)
            .collect()
    }

    /// Opens the socket with this number.
    fn open(&self, number: u32, draw: u32, group: SocketAddrV4) -> io::Result<UdpSocket> {
        let address = match self.sockets {
            // As many as a node has pods.
            None => number % 64,
            Some(_) => number / self.per_address,
        };
        let port = match self.per_address {
            1 => 0,
            ports => FEW_PORTS + (draw * ports + number % ports) as u16,
        };
        let socket = UdpSocket::bind((Ipv4Addr::from(CLIENTS + address), port))?;
        socket.connect(group)?;
        Ok(socket)
    }
}

/// A group that counts its datagrams.
struct Counting {
    sockets: Vec<UdpSocket>,
    /// Datagrams per socket.
    counts: Vec<u64>,
    /// Datagrams received by the socket with the number of their sender's processor.
    at_home: u64,
}

impl Counting {
    fn new(sockets: Vec<UdpSocket>) -> Counting {
        Counting {
            counts: vec![0; sockets.len()],
            sockets,
            at_home: 0,
        }
    }

    /// Takes what has arrived, through these buffers.
    fn take(&mut self, received: &mut Datagrams) -> io::Result<()> {
        for (member, socket) in self.sockets.iter().enumerate() {
            loop {
                let count = received.receive(socket.as_raw_fd(), libc::MSG_DONTWAIT)?;
                self.counts[member] += count as u64;
                let senders = (0..count).map(|index| received.received(index));
                self.at_home += senders.filter(|sender| *sender == [member as u8]).count() as u64;
                if count < BATCH {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes datagrams until there are enough, or for a limited time: another processor may have to deliver
    /// them.
    fn take_until(&mut self, enough: impl Fn() -> u64, received: &mut Datagrams) -> io::Result<()> {
        let start = Instant::now();
        self.take(received)?;
        while self.total() < enough() && start.elapsed() < PATIENCE {
            self.take(received)?;
        }
        Ok(())
    }

    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The result of one draw.
struct Drawn {
    /// The busiest socket's datagrams, divided by the mean.
    busiest: f64,
    /// The share received by the socket with the number of the sender's processor.
    at_home: f64,
}

/// Measures, and returns tables.
///
/// # Errors
///
/// If a socket cannot be opened, or a datagram is lost.
pub fn run(settings: &Settings) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for (choice, title) in [
        (Choice::Hash, "by the kernel's hash"),
        (Choice::Cpu, "by processor"),
        (Choice::Random, "at random"),
    ] {
        let _ = write!(text, "the busiest socket, x the mean, {title}\n{:<44}", "");
        // With more sockets than processors, some would get nothing.
        let fits = |group: &&u32| choice != Choice::Cpu || **group as usize == processors();
        let groups: Vec<u32> = settings.groups.iter().filter(fits).copied().collect();
        for group in &groups {
            let _ = write!(text, "{group:>16}");
        }
        text.push('\n');
        for population in &POPULATIONS {
            let _ = write!(text, "{:<44}", population.name);
            for group in &groups {
                let draws =
                    (0..settings.draws).map(|number| draw(settings, population, *group, choice, number));
                let draws = draws.collect::<io::Result<Vec<_>>>()?;
                let mut busiest: Vec<f64> = draws.iter().map(|draw| draw.busiest).collect();
                busiest.sort_by(f64::total_cmp);
                let nine_tenths = busiest[(busiest.len() - 1) * 9 / 10];
                let middle = median(busiest).unwrap_or(f64::NAN);
                let _ = write!(text, "{middle:>9.2} ({nine_tenths:.2})");
                if *group as usize == processors() {
                    let home = median(draws.iter().map(|draw| draw.at_home)).unwrap_or(f64::NAN);
                    let _ = write!(text, " {:.0} %", home * 100.0);
                }
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// A draw in progress.
struct Draw<'a> {
    population: &'a Population,
    number: u32,
    group: SocketAddrV4,
    /// Queries per client.
    queries: Vec<u32>,
    senders: usize,
    /// Datagrams in whole batches.
    sent: AtomicU64,
    counting: Mutex<Counting>,
}

impl Draw<'_> {
    /// Sends the queries of one sender's clients.
    fn send(&self, sender: usize) -> io::Result<()> {
        pin(sender)?;
        let (mut datagrams, mut received) = (Datagrams::new().without_address(), Datagrams::new());
        let mut unread = 0;
        let own = self.queries.iter().enumerate().skip(sender).step_by(self.senders);
        for (client, count) in own {
            let socket = self.population.open(client as u32, self.number, self.group)?;
            let mut left = *count as usize;
            while left > 0 {
                // At most what a socket's default buffer holds, in case all go to one.
                let now = left.min(BATCH - unread);
                for index in 0..now {
                    datagrams.edit(index, |buffer, _| {
                        buffer[0] = sender as u8;
                        1
                    });
                }
                if datagrams.send(socket.as_raw_fd(), now)? != now {
                    return Err(io::Error::other("a datagram could not be sent"));
                }
                left -= now;
                unread = (unread + now) % BATCH;
                if unread == 0 {
                    self.count(&mut received)?;
                }
            }
        }
        Ok(())
    }

    /// Counts all but those that may still be in flight.
    fn count(&self, received: &mut Datagrams) -> io::Result<()> {
        self.sent.fetch_add(BATCH as u64, Ordering::Relaxed);
        let under_way = (2 * self.senders * BATCH) as u64;
        let enough = || self.sent.load(Ordering::Relaxed).saturating_sub(under_way);
        let mut counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        counting.take_until(enough, received)
    }
}

fn draw(
    settings: &Settings,
    population: &Population,
    group: u32,
    choice: Choice,
    number: u32,
) -> io::Result<Drawn> {
    let (address, sockets) = bind(GROUP, group as usize)?;
    choose(&sockets[0], choice, group)?;
    let draw = Draw {
        population,
        number,
        group: address,
        queries: population.queries(settings.queries),
        senders: if settings.one_sender { 1 } else { processors() },
        sent: AtomicU64::new(0),
        counting: Mutex::new(Counting::new(sockets)),
    };
    std::thread::scope(|scope| {
        let draw = &draw;
        let threads: Vec<_> = (0..draw.senders)
            .map(|sender| scope.spawn(move || draw.send(sender)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, io::Result<()>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a sender panicked")))
        };
        threads.into_iter().try_for_each(join)
    })?;
    let sent = draw.queries.iter().map(|count| u64::from(*count)).sum();
    let mut counting = draw.counting.into_inner().unwrap_or_else(PoisonError::into_inner);
    counting.take_until(|| sent, &mut Datagrams::new())?;
    if counting.total() != sent {
        let came = counting.total();
        return Err(io::Error::other(format!("{came} of {sent} datagrams came")));
    }
    let most = counting.counts.iter().max().copied().unwrap_or_default();
    Ok(Drawn {
        busiest: most as f64 * f64::from(group) / sent as f64,
        at_home: counting.at_home as f64 / sent as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populations_ask_as_often_as_they_are_told() {
        for population in &POPULATIONS {
            let queries = population.queries(65_536);
            let sum: u32 = queries.iter().sum();
            assert!(sum.abs_diff(65_536) < 6_000, "{}: {sum}", population.name);
            assert!(
                population
                    .sockets
                    .is_none_or(|sockets| queries.len() == sockets as usize)
            );
        }
        let zipf = POPULATIONS.iter().find(|population| population.zipf).unwrap();
        let queries = zipf.queries(65_536);
        assert!(queries[0].abs_diff(10 * queries[9]) < 10, "{:?}", &queries[..10]);
    }

    #[test]
    fn every_datagram_of_a_draw_is_counted() {
        let settings = Settings {
            groups: Vec::new(),
            draws: 1,
            queries: 2_000,
            one_sender: false,
        };
        for choice in [Choice::Hash, Choice::Random] {
            let drawn = draw(&settings, &POPULATIONS[1], 4, choice, 0).unwrap();
            assert!((1.0..4.0).contains(&drawn.busiest), "{}", drawn.busiest);
        }
    }
}
