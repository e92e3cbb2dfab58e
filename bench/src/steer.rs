//! Measures alternatives to the kernel's hash for choosing a worker's socket, and pinning workers to
//! processors: the proxy has a worker for each processor, and the clients on all of them sleep until they are
//! answered.
//!
//! The same process is measured throughout. The program of its sockets and the affinity of its workers are
//! changed from outside between measurements, without the proxy's involvement.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::process::Command;
use std::sync::Barrier;

use clap::{Args, ValueEnum};

use crate::accounting::of_thread;
use crate::drive::{Client, Clock, Monotonic, PATIENCE, Schedule, Tally};
use crate::group::{Choice, choose};
use crate::measure::warm_up;
use crate::options::{Pace, Proxy};
use crate::process::{Scratch, Server, free_port, pin, processors, set_affinity};
use crate::rotation::{FIRST_PORT, SERVERS, start_upstream};
use crate::sample::{Load, median};
use crate::udp_client::UdpClient;
use crate::wire::Question;
use crate::workload::Workload;

/// How long clients ask before measuring.
const RUN_IN: std::time::Duration = std::time::Duration::from_millis(30);

/// What to measure.
#[derive(Args)]
pub struct Settings {
    /// What all clients together ask: queries per second, or `saturation`
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "20000,60000,saturation"
    )]
    loads: Vec<Load>,
    /// Where clients are: one on each processor, as many wherever there is time, or one on the first
    #[arg(long, value_enum, default_value_t = Clients::Each)]
    clients: Clients,
    /// Sockets of each client
    #[arg(long, value_name = "N", default_value_t = 32)]
    sockets: usize,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    proxy: Proxy,
}

/// Where clients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Clients {
    /// One on each processor.
    Each,
    /// As many, which may run anywhere.
    Anywhere,
    /// One, on the first.
    First,
}

impl Clients {
    fn count(self) -> usize {
        match self {
            Clients::Each | Clients::Anywhere => processors(),
            Clients::First => 1,
        }
    }
}

/// A way to run the proxy.
struct Way {
    name: &'static str,
    choice: Choice,
    /// Whether each worker's socket is marked as that of the processor with its number, as `by-processor`
    /// does.
    marked: bool,
    /// The offset of a worker's processor from the worker's number; `None` if workers may run anywhere.
    pinned: Option<usize>,
}

const fn way(name: &'static str, choice: Choice, marked: bool, pinned: Option<usize>) -> Way {
    Way {
        name,
        choice,
        marked,
        pinned,
    }
}

/// The others are compared with the first.
const WAYS: [Way; 7] = [
    way("by hash", Choice::Hash, false, None),
    way("by hash, pinned", Choice::Hash, false, Some(0)),
    way("by processor, a program", Choice::Cpu, false, Some(0)),
    way("by processor, marks, pinned", Choice::Hash, true, Some(0)),
    way("by processor, marks", Choice::Hash, true, None),
    way("by processor, pinned to the other", Choice::Hash, true, Some(1)),
    way("at random", Choice::Random, false, None),
];

/// One measurement.
#[derive(Clone, Copy, Default)]
struct Figures {
    /// Microseconds of CPU time per answer: of the workers, and of workers and clients.
    workers: f64,
    all: f64,
    /// The busiest worker's share of the workers' time.
    busiest: f64,
    /// Answers per second.
    rate: f64,
    /// Latency in microseconds.
    p50: f64,
    p99: f64,
    /// The share of queries without an answer, or with a wrong one.
    failed: f64,
}

/// Measures in rotation, and returns a table of medians.
///
/// # Errors
///
/// If the proxy cannot be started or looked into.
pub fn run(settings: &Settings) -> Result<String, Box<dyn Error>> {
    let scratch = Scratch::new()?;
    let upstream = start_upstream(processors() - 1, &scratch)?;
    let server = start(settings, &scratch, upstream.address)?;
    let all: Vec<usize> = (0..processors()).collect();
    server.spread(&all)?;
    warm_up(server.address, Workload::HOT)?;
    let mut table = String::from(
        "| load | | workers, µs/query | all, µs/query | × first: workers, all (half of the rounds) | busiest worker | q/s | p50 / p99 µs | unanswered |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for load in &settings.loads {
        let mut rounds = Vec::new();
        for round in 0..settings.pace.rounds as usize {
            let mut figures = [Figures::default(); WAYS.len()];
            for turn in 0..WAYS.len() {
                let at = (turn + round) % WAYS.len();
                apply(&WAYS[at], &server, &all)?;
                figures[at] = measure(settings, &server, *load)?;
            }
            rounds.push(figures);
        }
        for (at, way) in WAYS.iter().enumerate() {
            write_row(&mut table, *load, way, &rounds, at)?;
        }
    }
    Ok(table)
}

fn write_row(
    table: &mut String,
    load: Load,
    way: &Way,
    rounds: &[[Figures; WAYS.len()]],
    at: usize,
) -> std::fmt::Result {
    let of = |figure: fn(&Figures) -> f64| {
        median(rounds.iter().map(|round| figure(&round[at]))).unwrap_or(f64::NAN)
    };
    let ratios = |figure: fn(&Figures) -> f64| {
        let ratios = rounds.iter().map(|round| figure(&round[at]) / figure(&round[0]));
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let quarter = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4];
        format!("{:.2} ({:.2}–{:.2})", quarter(2), quarter(1), quarter(3))
    };
    writeln!(
        table,
        "| {} | {} | {:.2} | {:.2} | {}, {} | {:.0} % | {:.0} | {:.0} / {:.0} | {:.3} % |",
        load.text(),
        way.name,
        of(|figures| figures.workers),
        of(|figures| figures.all),
        ratios(|figures| figures.workers),
        ratios(|figures| figures.all),
        of(|figures| figures.busiest) * 100.0,
        of(|figures| figures.rate),
        of(|figures| figures.p50),
        of(|figures| figures.p99),
        of(|figures| figures.failed) * 100.0,
    )
}

fn start(settings: &Settings, scratch: &Scratch, upstream: SocketAddrV4) -> io::Result<Server> {
    let listen = SocketAddrV4::new(SERVERS, free_port(SERVERS, FIRST_PORT)?);
    let folder = scratch.folder("dnsweir")?;
    let file = folder.join("dnsweir.kdl");
    let config = format!(
        "listen \"{listen}\"\nworkers {}\nzone \".\" {{ cache; forward \"{upstream}\" }}",
        processors()
    );
    fs::write(&file, config)?;
    let mut command = Command::new(&settings.proxy.dnsweir);
    command
        .args(["run", "--log-level", "warn", "--config"])
        .arg(&file);
    Server::start(&mut command, 0, listen, &folder)
}

fn apply(way: &Way, server: &Server, all: &[usize]) -> io::Result<()> {
    let sockets = server.datagram_sockets()?;
    for (processor, socket) in all.iter().zip(&sockets) {
        // -1: no processor.
        socket.set_cpu_affinity(if way.marked { *processor } else { usize::MAX })?;
    }
    let first = sockets
        .first()
        .ok_or_else(|| io::Error::other("the proxy has no socket"))?;
    choose(first, way.choice, all.len() as u32)?;
    for (worker, thread) in server.threads("worker-")?.into_iter().enumerate() {
        match way.pinned {
            Some(distance) => set_affinity(thread, &[all[(worker + distance) % all.len()]])?,
            None => set_affinity(thread, all)?,
        }
    }
    Ok(())
}

fn measure(settings: &Settings, server: &Server, load: Load) -> io::Result<Figures> {
    let clients = settings.clients.count();
    let (threads, ready) = (server.threads("worker-")?, Barrier::new(clients + 1));
    let used = || -> io::Result<Vec<u64>> {
        threads
            .iter()
            .map(|thread| of_thread(server.id(), *thread))
            .collect()
    };
    std::thread::scope(|scope| {
        let ready = &ready;
        let asking: Vec<_> = (0..clients)
            .map(|number| scope.spawn(move || run_client(settings, server.address, load, number, ready)))
            .collect();
        ready.wait();
        let before = used();
        ready.wait();
        let mut figures = Figures::default();
        let (mut answered, mut sent, mut asked) = (0, 0, 0);
        let mut latency = Tally::new().latency;
        for thread in asking {
            let joined = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a client panicked")));
            let (tally, took) = joined?;
            (answered, sent, asked) = (answered + tally.answered, sent + tally.sent, asked + took);
            latency.add(tally.latency).map_err(io::Error::other)?;
        }
        let used: Vec<u64> = used()?
            .into_iter()
            .zip(before?)
            .map(|(after, before)| after - before)
            .collect();
        let workers: u64 = used.iter().sum();
        let each = |nanoseconds: u64| nanoseconds as f64 / 1e3 / answered.max(1) as f64;
        figures.workers = each(workers);
        figures.all = each(workers + asked);
        figures.busiest = used.iter().max().copied().unwrap_or_default() as f64 / workers.max(1) as f64;
        figures.rate = answered as f64 / settings.pace.duration.as_secs_f64();
        figures.p50 = latency.value_at_quantile(0.5) as f64 / 1e3;
        figures.p99 = latency.value_at_quantile(0.99) as f64 / 1e3;
        figures.failed = (sent - answered) as f64 / sent.max(1) as f64;
        Ok(figures)
    })
}

/// Runs a client; returns its tally, and the nanoseconds of CPU time it used. Measuring begins when all have
/// passed the barrier twice.
fn run_client(
    settings: &Settings,
    server: SocketAddrV4,
    load: Load,
    number: usize,
    ready: &Barrier,
) -> io::Result<(Tally, u64)> {
    let mut questions = Workload::HOT.questions(number as u32);
    let mut next = || questions.next();
    let mut prepare = || -> io::Result<UdpClient> {
        if settings.clients != Clients::Anywhere {
            pin(number)?;
        }
        let mut client = UdpClient::new(server, Vec::new(), settings.sockets)?;
        ask(settings, &mut client, load, RUN_IN, &mut next)?;
        Ok(client)
    };
    let prepared = prepare();
    // A client that failed must not leave the others waiting.
    ready.wait();
    ready.wait();
    let before = thread_time();
    let tally = ask(settings, &mut prepared?, load, settings.pace.duration, &mut next)?;
    Ok((tally, thread_time() - before))
}

/// Asks, and sleeps in between: at a rate, in bursts regardless of answers; saturated, a burst once the
/// previous one is answered.
fn ask(
    settings: &Settings,
    client: &mut UdpClient,
    load: Load,
    duration: std::time::Duration,
    next: &mut dyn FnMut() -> Question,
) -> io::Result<Tally> {
    let (mut clock, mut tally) = (Monotonic, Tally::new());
    let schedule = match load {
        Load::Rate(rate) => {
            let own = rate / settings.clients.count() as u32;
            Some(Schedule::new(own, settings.pace.burst, duration))
        }
        Load::Saturation => None,
        Load::Share(_) => {
            return Err(io::Error::other(
                "a share of a capacity that nobody measures here",
            ));
        }
    };
    let start = clock.now();
    let end = start + duration.as_nanos() as u64;
    let mut due = start;
    while due < end && clock.now() < end {
        let now = clock.now();
        match schedule {
            Some(schedule) if now >= due => {
                client.ask(schedule.batch, due, next, &mut tally)?;
                due += schedule.interval;
            }
            None if client.waiting() == 0 => client.ask(settings.pace.burst, now, next, &mut tally)?,
            Some(_) => client.sleep(due - now),
            None => client.sleep(end - now),
        }
        client.collect(&mut clock, &mut tally)?;
    }
    while client.waiting() > 0 && clock.now() < end + PATIENCE {
        client.sleep(PATIENCE / 10);
        client.collect(&mut clock, &mut tally)?;
    }
    client.abandon(u64::MAX, &mut tally);
    Ok(tally)
}

/// Returns the nanoseconds of CPU time of the calling thread.
fn thread_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of ours. This clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
