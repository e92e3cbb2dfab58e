//! Latency of misses while a tenth of the datagrams to upstreams is lost.
//!
//! An upstream in this process leaves one datagram in ten unanswered, chosen by a seeded sequence, the same
//! for every server. Each server is asked for new names at a fixed rate, first with one such upstream, then
//! with two. Nothing is lost over TCP here; in practice the kernel retransmits.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;

use crate::answering::{Answers, serve_tcp};
use crate::datagrams::enlarge_buffer;
use crate::drive::{Monotonic, Schedule, on_schedule};
use crate::options::{Cores, Proxy, absolute, seconds};
use crate::peers::{Peer, Program, Site, in_path};
use crate::process::{Scratch, Server, free_port, pin};
use crate::udp_client::UdpClient;
use crate::wire;
use crate::workload::Workload;

const SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const UPSTREAMS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 78), Ipv4Addr::new(127, 0, 0, 79)];
const FIRST_PORT: u16 = 22_053;

/// The servers to measure, if installed.
const SERVERS: [&str; 5] = ["dnsweir", "unbound", "dnsdist", "pdns-recursor", "coredns"];

/// The percentiles of the table.
const PARTS: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// What to run.
#[derive(Args)]
pub struct Settings {
    #[command(flatten)]
    proxy: Proxy,
    /// The program of CoreDNS, if it is not in PATH
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    coredns: Option<PathBuf>,
    /// One datagram in so many is lost
    #[arg(long, value_name = "N", default_value_t = 10)]
    one_in: u64,
    /// Queries per second
    #[arg(long, value_name = "N", default_value_t = 500)]
    rate: u32,
    /// How long each server is asked
    #[arg(long = "seconds", value_name = "S", default_value = "20", value_parser = seconds)]
    duration: Duration,
    #[command(flatten)]
    cores: Cores,
}

/// Measures all servers, and returns the table.
pub fn run(settings: &Settings) -> io::Result<String> {
    pin(settings.cores.client)?;
    let scratch = Scratch::new()?;
    let mut table = String::from(
        "| server | upstreams | p50 ms | p90 | p99 | p99.9 | unanswered after 1 s | upstream queries for each |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for peer in SERVERS.into_iter().filter_map(Peer::find) {
        let Some(program) = program(settings, peer) else {
            eprintln!("{}: not installed, left out", peer.name);
            continue;
        };
        for count in 1..=UPSTREAMS.len() {
            let row = measure(settings, &scratch, peer, &program, count)?;
            eprintln!("{row}");
            let _ = writeln!(table, "{row}");
        }
    }
    Ok(table)
}

fn program(settings: &Settings, peer: &Peer) -> Option<PathBuf> {
    match peer.program {
        Program::Dnsweir => Some(settings.proxy.dnsweir.clone()),
        Program::Named("coredns") if settings.coredns.is_some() => settings.coredns.clone(),
        Program::Named(name) => in_path(name),
        Program::Bench | Program::DnsweirCalled => None,
    }
}

fn measure(
    settings: &Settings,
    scratch: &Scratch,
    peer: &Peer,
    program: &Path,
    count: usize,
) -> io::Result<String> {
    let asked = Arc::new(AtomicU64::new(0));
    let mut upstreams = Vec::new();
    for (seed, address) in UPSTREAMS.into_iter().take(count).enumerate() {
        upstreams.push(lossy(address, settings.one_in, seed as u64, &asked)?);
    }
    let listen = SocketAddrV4::new(SERVER, free_port(SERVER, FIRST_PORT)?);
    let folder = scratch.folder(&format!("{}-{count}", peer.name))?;
    let site = Site {
        folder: &folder,
        listen,
        upstreams: &upstreams,
        spare_port: 0,
        called: None,
        exists: true,
    };
    let mut command = peer.command(program, &site)?;
    let server = Server::start(&mut command, settings.cores.server, listen, &folder)?;

    let mut client = UdpClient::new(server.address, Vec::new(), 8)?;
    let mut questions = Workload::Misses.questions(count as u32);
    let mut ask = |duration| {
        let schedule = Schedule::new(settings.rate, 2, duration);
        on_schedule(&mut client, &mut Monotonic, schedule, &mut || questions.next())
    };
    // Servers first learn how long an upstream takes to answer.
    ask(Duration::from_secs(2))?;
    asked.store(0, Ordering::Relaxed);
    let tally = ask(settings.duration)?;
    let sent = tally.sent.max(1) as f64;
    let answered = tally.answered as f64;
    let mut row = format!("| {} | {count} |", peer.name);
    for part in PARTS {
        // Of all queries sent: unanswered ones count as the slowest.
        let latency = Some(part * sent / answered).filter(|part| *part <= 1.0);
        match latency.map(|part| tally.latency.value_at_quantile(part)) {
            Some(latency) => row += &format!(" {:.1} |", latency as f64 / 1e6),
            None => row += " – |",
        }
    }
    let unanswered = 100.0 * (sent - answered) / sent;
    let each = asked.load(Ordering::Relaxed) as f64 / sent;
    let _ = write!(row, " {unanswered:.2} % | {each:.2} |");
    Ok(row)
}

/// Starts an upstream that ends with this process, and returns its address.
fn lossy(ip: Ipv4Addr, one_in: u64, seed: u64, asked: &Arc<AtomicU64>) -> io::Result<SocketAddrV4> {
    let address = SocketAddrV4::new(ip, free_port(ip, FIRST_PORT)?);
    let (udp, tcp) = (UdpSocket::bind(address)?, TcpListener::bind(address)?);
    enlarge_buffer(&udp)?;
    let asked = Arc::clone(asked);
    std::thread::spawn(move || serve_tcp(&tcp, &Answers::Authoritative));
    std::thread::spawn(move || -> io::Result<()> {
        let mut buffer = [0; 4096];
        let mut random = 0x9e37_79b9_7f4a_7c15 ^ (seed << 17);
        loop {
            let (length, from) = udp.recv_from(&mut buffer)?;
            asked.fetch_add(1, Ordering::Relaxed);
            // Xorshift64*, whose upper bits are the good ones.
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            let lost = (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).is_multiple_of(one_in);
            if !lost && let Some(end) = wire::question_end(&buffer[..length]) {
                let length = wire::authoritative(&buffer[..length], end).answer(&mut buffer, end);
                udp.send_to(&buffer[..length], from)?;
            }
        }
    });
    Ok(address)
}
