//! What a hostile filter, or one that asks, costs the zones that do not use it: latency there, and memory of
//! the process.
//!
//! The calm zone is asked at a fixed rate, from the cache, while another zone is asked at a lower one. That
//! zone uses, in turn, a filter that does nothing and each hostile one. Then the hostile one is asked as fast
//! as it answers, to see how the process's memory behaves. Its own latency is reported to 2 ms, the client's
//! polling interval.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::accounting::Memory;
use crate::measure::{Plan, measure, warm_up};
use crate::options::{Cores, Proxy, absolute, seconds};
use crate::process::{Scratch, Server, free_port, pin};
use crate::sample::{Load, median};
use crate::workload::Workload;

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FIRST_PORT: u16 = 21_053;

/// Queries per second for the calm zone, and for the other.
const CALM: u32 = 20_000;
const BESIDE: u32 = 500;

/// Queries of the flood in flight.
const WINDOW: usize = 64;

/// What to run.
#[derive(Args)]
pub struct Settings {
    #[command(flatten)]
    proxy: Proxy,
    /// The hostile modules
    #[arg(long, value_name = "FOLDER", default_value = "target/hostile/wasm32-unknown-unknown/release", value_parser = absolute)]
    guests: PathBuf,
    /// Only filters whose description holds this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Measurements of each filter
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// How long each takes
    #[arg(long = "seconds", value_name = "S", default_value = "4", value_parser = seconds)]
    duration: Duration,
    /// Hostile queries of the flood
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    flood: u32,
    #[command(flatten)]
    cores: Cores,
}

/// A filter, and the first label of a name that triggers its behaviour.
struct Hostile {
    what: &'static str,
    module: &'static str,
    label: &'static str,
    /// One in this many queries of the flood goes to it.
    share: u32,
}

/// The upstreams of what is not cached.
#[derive(Clone, Copy)]
struct Upstreams {
    answering: SocketAddrV4,
    silent: SocketAddr,
}

/// The module of a filter that looks at every query, and passes it.
const NONE: &str = "builtin:rewrite";

const fn hostile(what: &'static str, module: &'static str, label: &'static str) -> Hostile {
    Hostile {
        what,
        module,
        label,
        share: 1,
    }
}

/// The filter that asks for names below one zone or another.
const ASKER: &str = "asker";
/// The label at which it asks for a name below [`QUIET`], and waits a fifth of a second.
const SLOW: &str = "slow";
/// A zone whose upstream never answers.
const QUIET: &str = "quiet.test";

const HOSTILE: [Hostile; 13] = [
    // Compared with itself: shows the effect of the machine's own noise on the ratio.
    hostile("does nothing, too", NONE, "calm"),
    hostile("traps", "trap", "trap"),
    hostile("traps at one call in ten", "trap", "tenth"),
    hostile("recurses without end", "trap", "deep"),
    hostile("loops", "spin", "spin"),
    hostile("allocates without end", "bomb", "bomb"),
    hostile("returns 100 000 verdicts", "garbage", "many.garbage"),
    hostile("returns a name of a mebibyte", "garbage", "huge-name.garbage"),
    hostile("returns what is no name", "garbage", "pointer.garbage"),
    hostile("returns 5 000 records", "garbage", "many-records.garbage"),
    hostile("returns data of a wrong shape", "garbage", "short-a.garbage"),
    hostile("asks for two names", ASKER, "two"),
    Hostile {
        share: 1000,
        ..hostile("asks for a name that never answers", ASKER, SLOW)
    },
];

/// Runs all measurements, and returns the table.
///
/// # Errors
///
/// If something cannot be started, or does not answer.
pub fn run(settings: &Settings) -> io::Result<String> {
    pin(settings.cores.client)?;
    let scratch = Scratch::new()?;
    let upstream = SocketAddrV4::new(LOCAL, free_port(LOCAL, FIRST_PORT)?);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["upstream", "--listen", &upstream.to_string()]);
    let _upstream = Server::start(
        &mut command,
        settings.cores.client,
        upstream,
        &scratch.folder("upstream")?,
    )?;
    // Nothing reads from this socket.
    let silent = UdpSocket::bind((LOCAL, 0))?;
    let upstreams = Upstreams {
        answering: upstream,
        silent: silent.local_addr()?,
    };
    let mut table = String::from(
        "| the filter | calm zone, p99 µs | ÷ a filter that does nothing | in half of the rounds | unanswered | its own queries, median and slowest ms | RSS MiB before / after the flood | answered |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for hostile in HOSTILE
        .iter()
        .filter(|hostile| hostile.what.contains(&settings.only))
    {
        let calm = start(settings, &scratch, upstreams, &HOSTILE[0])?;
        let server = start(settings, &scratch, upstreams, hostile)?;
        let row = row(settings, hostile, calm, &server)?;
        eprintln!("{row}");
        let _ = writeln!(table, "{row}");
    }
    Ok(table)
}

/// Measures a filter on `server` in comparison with one that does nothing, on `calm`.
fn row(settings: &Settings, hostile: &Hostile, calm: Server, server: &Server) -> io::Result<String> {
    let mut ratios = Vec::new();
    let mut latencies = Vec::new();
    let mut failed = 0.0_f64;
    let mut own = Vec::new();
    for round in 0..settings.rounds {
        // The name has no effect on a filter that does nothing. The first of the two alternates, lest the
        // order show.
        let measure = |server: &Server| beside(settings, server, hostile, round);
        let ((reference, _), (sample, took)) = if round % 2 == 0 {
            let reference = measure(&calm)?;
            (reference, measure(server)?)
        } else {
            let sample = measure(server)?;
            (measure(&calm)?, sample)
        };
        own.extend(took);
        ratios.push(sample.latency.p99 as f64 / reference.latency.p99.max(1) as f64);
        latencies.push(sample.latency.p99 as f64 / 1000.0);
        failed = failed.max(sample.failed());
    }
    drop(calm);
    // The one-time memory of the first queries is not growth.
    let count = settings.flood / hostile.share;
    flood(server.address, hostile, count / 100)?;
    let before = Memory::of(server.id())?.resident;
    let answered = flood(server.address, hostile, count)?;
    let after = Memory::of(server.id())?.resident;
    let mebibytes = |kibibytes: u64| kibibytes as f64 / 1024.0;
    let (low, high) = middle_half(&ratios);
    let slowest = own.iter().copied().fold(f64::NAN, f64::max);
    Ok(format!(
        "| {} | {:.0} | {:.2} | {low:.2}–{high:.2} | {:.3} % | {:.0}; {slowest:.0} | {:.1} / {:.1} | {answered} of {count} |",
        hostile.what,
        median(latencies).unwrap_or(f64::NAN),
        median(ratios).unwrap_or(f64::NAN),
        failed * 100.0,
        median(own).unwrap_or(f64::NAN),
        mebibytes(before),
        mebibytes(after),
    ))
}

/// Returns the range of the middle half of the values, without the lowest and highest quarter.
fn middle_half(values: &[f64]) -> (f64, f64) {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let quarter = values.len() / 4;
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(quarter), at(values.len().saturating_sub(quarter + 1)))
}

/// Starts a proxy with one worker.
fn start(
    settings: &Settings,
    scratch: &Scratch,
    upstreams: Upstreams,
    hostile: &Hostile,
) -> io::Result<Server> {
    let upstream = upstreams.answering;
    let listen = SocketAddrV4::new(LOCAL, free_port(LOCAL, FIRST_PORT + 1)?);
    let folder = scratch.folder(&format!("{}", listen.port()))?;
    let module = match hostile.module {
        NONE => PathBuf::from(NONE),
        module => settings.guests.join(format!("hostile_{module}.wasm")),
    };
    let config = match (hostile.module, hostile.label) {
        (NONE, _) => "config { type \"ANY\" \"HINFO\" }".to_owned(),
        (ASKER, SLOW) => format!("config {{ under \"{QUIET}\" }}"),
        (ASKER, _) => "config { under \"plain.test\" }".to_owned(),
        _ => String::new(),
    };
    let text = format!(
        r#"listen "{listen}"
workers 1
filter "guest" {{ module "{}"; on-error "refuse"; {config} }}
zone "hostile.test" {{ use "guest"; cache; forward "{upstream}" }}
zone "{QUIET}" {{ forward "{}" }}
zone "." {{ cache; forward "{upstream}" }}
"#,
        module.display(),
        upstreams.silent
    );
    let file = folder.join("dnsweir.kdl");
    std::fs::write(&file, text)?;
    let mut command = Command::new(&settings.proxy.dnsweir);
    command
        .args(["run", "--log-level", "error", "--config"])
        .arg(&file);
    let server = Server::start(&mut command, settings.cores.server, listen, &folder)?;
    warm_up(listen, Workload::HOT)?;
    Ok(server)
}

/// Measures the calm zone while the other is asked.
fn beside(
    settings: &Settings,
    server: &Server,
    hostile: &Hostile,
    round: u32,
) -> io::Result<(crate::sample::Sample, Vec<f64>)> {
    let plan = Plan {
        round,
        workload: Workload::HOT,
        load: Load::Rate(CALM),
        capacity: None,
        duration: settings.duration,
        burst: 2,
        seed: round,
        core: settings.cores.server,
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let tormentor = scope.spawn(|| ask_steadily(server.address, hostile, &done));
        let sample = measure(server, "dnsweir", plan);
        done.store(true, Ordering::Relaxed);
        let took = tormentor
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the hostile client panicked")))?;
        Ok((sample?, took))
    })
}

/// Returns the latency of each query in milliseconds.
fn ask_steadily(server: SocketAddrV4, hostile: &Hostile, done: &AtomicBool) -> io::Result<Vec<f64>> {
    let socket = UdpSocket::bind((LOCAL, 0))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    let mut buffer = [0; 4096];
    let mut sent = Vec::new();
    let mut took = Vec::new();
    for number in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        sent.push(Instant::now());
        socket.send(&query(hostile, number))?;
        while socket.recv(&mut buffer).is_ok() {
            // There are fewer queries than IDs.
            let id = u16::from_be_bytes([buffer[0], buffer[1]]);
            took.extend(
                sent.get(usize::from(id))
                    .map(|sent| sent.elapsed().as_secs_f64() * 1e3),
            );
        }
        std::thread::sleep(Duration::from_secs(1) / BESIDE);
    }
    Ok(took)
}

/// Asks this many times, a few at a time, as fast as it is answered. Returns the number of answers.
fn flood(server: SocketAddrV4, hostile: &Hostile, count: u32) -> io::Result<u32> {
    let socket = UdpSocket::bind((LOCAL, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut buffer = [0; 4096];
    let (mut sent, mut answered, mut waiting) = (0, 0, 0);
    let begun = Instant::now();
    while sent < count || waiting > 0 {
        while sent < count && waiting < WINDOW {
            socket.send(&query(hostile, sent))?;
            sent += 1;
            waiting += 1;
        }
        match socket.recv(&mut buffer) {
            Ok(_) => {
                answered += 1;
                waiting -= 1;
            }
            // Those in flight were lost.
            Err(_) => waiting = 0,
        }
        if begun.elapsed() > Duration::from_secs(300) {
            return Err(io::Error::other(format!(
                "{answered} of {sent} answers in five minutes"
            )));
        }
    }
    Ok(answered)
}

/// Builds a query for `LABEL.nNNNN.hostile.test`: always new names, so that nothing is remembered or cached.
fn query(hostile: &Hostile, number: u32) -> Vec<u8> {
    let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query[..2].copy_from_slice(&(number as u16).to_be_bytes());
    let name = format!("{}.n{number}.hostile.test", hostile.label);
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    query
}
