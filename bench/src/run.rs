//! A run: every peer under every workload and load, in rotation over several rounds.

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::measure::{Plan, warm_up};
use crate::options::{Called, Pace, Proxy, absolute, seconds};
use crate::peers::{PEERS, Peer, Program, Site, in_path};
use crate::process::{Scratch, Server, free_port, pin};
use crate::record::{Entry, Environment, Record};
use crate::rotation::{FIRST_PORT, SERVERS, Turn, measure_in_turn, start_upstream};
use crate::sample::{Load, Sample, median};
use crate::workload::Workload;

/// What to run.
#[derive(Args)]
pub struct Settings {
    /// Who is measured, in the order of the table; those that are not installed are left out [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = Peer::named)]
    pub peers: Vec<&'static Peer>,
    /// What is asked: hot zipf misses nxdomain pairs tcp sources, hot-N, sources-N [default: all but the last two]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub workloads: Vec<Workload>,
    /// Queries per second, shares of each one's capacity such as 50%, and `saturation` [default: by workload]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub loads: Vec<Load>,
    /// Which of the rates that a workload is asked by default
    #[arg(long, value_enum, default_value = "all")]
    rates: Rates,
    #[command(flatten)]
    pub pace: Pace,
    /// Begin nothing after this many seconds
    #[arg(long, value_name = "S", default_value = "7200", value_parser = seconds)]
    limit: Duration,
    #[command(flatten)]
    proxy: Proxy,
    /// The program of CoreDNS, if it is not in PATH
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    coredns: Option<PathBuf>,
    /// The program of NodeLocal DNSCache, if it is not in PATH
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    node_cache: Option<PathBuf>,
    #[command(flatten)]
    called: Called,
    /// For raw.jsonl, report.md, picture.svg and latency.svg
    #[arg(long, value_name = "FOLDER", default_value = crate::output::FOLDER)]
    pub out: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rates {
    All,
    Highest,
}

impl Settings {
    /// Returns the program of `peer`, if it is installed.
    fn program(&self, peer: &Peer) -> Option<PathBuf> {
        let path = match peer.program {
            Program::Bench => std::env::current_exe().ok()?,
            Program::Dnsweir => self.proxy.dnsweir.clone(),
            Program::DnsweirCalled => self.called.modules.as_ref().map(|_| self.proxy.dnsweir.clone())?,
            Program::Named(name) => {
                let named = match name {
                    "coredns" => &self.coredns,
                    "node-cache" => &self.node_cache,
                    _ => &None,
                };
                return named.clone().or_else(|| in_path(name));
            }
        };
        path.is_file().then_some(path)
    }

    fn loads(&self, workload: Workload) -> Vec<Load> {
        if !self.loads.is_empty() {
            return self.loads.clone();
        }
        let rates = match (self.rates, workload.rates()) {
            (Rates::Highest, [.., highest]) => std::slice::from_ref(highest),
            (_, all) => all,
        };
        let rates = rates.iter().copied().map(Load::Rate);
        rates.chain([Load::Saturation]).collect()
    }

    fn over(&self, begin: Instant) -> bool {
        begin.elapsed() > self.limit
    }
}

/// Runs all measurements.
pub fn run(settings: &Settings) -> io::Result<()> {
    fs::create_dir_all(&settings.out)?;
    let mut record = Record::create(&settings.out.join("raw.jsonl"))?;
    pin(settings.pace.cores.client)?;
    let begin = Instant::now();

    let mut peers = Vec::new();
    let mut environment = Environment::of(&settings.pace);
    let chosen = match &settings.peers[..] {
        [] => PEERS.iter().collect(),
        chosen => chosen.to_vec(),
    };
    for peer in chosen {
        let Some(program) = settings.program(peer) else {
            eprintln!("{}: not installed, left out", peer.name);
            continue;
        };
        let version = peer.version(&program);
        environment.versions.insert(peer.name.to_owned(), version);
        peers.push((peer, program));
    }
    record.write(&Entry::Environment(environment))?;

    let workloads = match &settings.workloads[..] {
        [] => &Workload::ALL[..],
        chosen => chosen,
    };
    for workload in workloads {
        if settings.over(begin) {
            record.note(&format!("{}: left out, the time was over", workload.name()))?;
        } else {
            run_workload(settings, *workload, &peers, begin, &mut record)?;
        }
    }
    Ok(())
}

fn run_workload(
    settings: &Settings,
    workload: Workload,
    peers: &[(&Peer, PathBuf)],
    begin: Instant,
    record: &mut Record,
) -> io::Result<()> {
    let scratch = Scratch::new()?;
    let upstream = start_upstream(settings.pace.cores.client, &scratch)?;
    let (mut servers, mut turns) = start_each(settings, workload, peers, &scratch, upstream.address, record)?;
    let loads = settings.loads(workload);
    let in_shares = loads.iter().any(|load| matches!(load, Load::Share(_)));
    let mut rates = vec![Vec::new(); turns.len()];
    for round in 0..settings.pace.rounds {
        if settings.over(begin) {
            let name = workload.name();
            record.note(&format!("{name}: {round} rounds, then the time was over"))?;
            break;
        }
        if in_shares {
            let plan = Plan::of(
                &settings.pace,
                round,
                u32::MAX - round,
                workload,
                Load::Saturation,
            );
            measure_capacity(record, &mut servers, &mut turns, &mut rates, plan)?;
        }
        for (place, load) in loads.iter().enumerate() {
            let seed = round * loads.len() as u32 + place as u32;
            let plan = Plan::of(&settings.pace, round, seed, workload, *load);
            measure_in_turn(record, &mut servers, &turns, plan)?;
        }
    }
    Ok(())
}

/// Starts and warms every server that can be started, and freezes it until its turn.
fn start_each(
    settings: &Settings,
    workload: Workload,
    peers: &[(&Peer, PathBuf)],
    scratch: &Scratch,
    upstream: SocketAddrV4,
    record: &mut Record,
) -> io::Result<(Vec<Server>, Vec<Turn>)> {
    let mut servers = Vec::new();
    let mut turns = Vec::new();
    let mut port = FIRST_PORT;
    for (peer, program) in peers.iter().filter(|(peer, _)| peer.answers(workload)) {
        let name = format!("{} under {}", peer.name, workload.name());
        let upstreams = [upstream];
        let server = match start(settings, peer, program, workload, scratch, &upstreams, &mut port) {
            Ok(server) => server,
            Err(error) => {
                record.note(&format!("{name}: {error}"))?;
                continue;
            }
        };
        let failed = warm_up(server.address, workload)?;
        if failed > 0 {
            record.note(&format!("{name}: {failed} queries of the warm-up failed"))?;
        }
        server.freeze()?;
        turns.push(Turn {
            name: peer.name.to_owned(),
            workload,
            server: servers.len(),
            capacity: None,
        });
        servers.push(server);
    }
    Ok((servers, turns))
}

/// Measures each server's capacity once more: the median of all rounds so far, so that temporary slowness of
/// the machine affects it as well.
fn measure_capacity(
    record: &mut Record,
    servers: &mut [Server],
    turns: &mut [Turn],
    rates: &mut [Vec<f64>],
    plan: Plan,
) -> io::Result<()> {
    let samples = measure_in_turn(record, servers, turns, plan)?;
    for (turn, rates) in turns.iter_mut().zip(rates) {
        let own = samples.iter().filter(|sample| sample.peer == turn.name);
        rates.extend(own.map(Sample::rate));
        turn.capacity = median(rates.iter().copied());
    }
    Ok(())
}

fn start(
    settings: &Settings,
    peer: &Peer,
    program: &Path,
    workload: Workload,
    scratch: &Scratch,
    upstreams: &[SocketAddrV4],
    port: &mut u16,
) -> io::Result<Server> {
    let listen = SocketAddrV4::new(SERVERS, free_port(SERVERS, *port)?);
    let spare_port = free_port(SERVERS, listen.port() + 1)?;
    *port = spare_port + 1;
    let folder = scratch.folder(peer.name)?;
    let site = Site {
        folder: &folder,
        listen,
        upstreams,
        spare_port,
        called: settings.called.modules.as_deref(),
        exists: workload.exists(),
    };
    let mut command = peer.command(program, &site)?;
    Server::start(&mut command, settings.pace.cores.server, listen, &folder)
}
