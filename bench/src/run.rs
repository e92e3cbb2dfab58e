//! A run: every peer under every workload and load, in rotation over several rounds.
//!
//! For one workload all peers are started and warmed; then each round measures all of them, beginning
//! with another one each time, under one load after the other. Whoever is not being measured is
//! stopped with SIGSTOP. So a machine that is slower for a while is so for all, and the ratios of a
//! round mean something even then.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::measure::{Plan, measure, warm_up};
use crate::peers::{Peer, Program, Site, in_path};
use crate::process::{Scratch, Server, free_port, pin};
use crate::sample::Load;
use crate::workload::Workload;

/// Where servers answer, and where the upstream does.
const SERVERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const UPSTREAM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);

/// The first port that is tried.
const FIRST_PORT: u16 = 20_053;

/// What to run.
pub struct Settings {
    /// Who is measured; those that are not installed are left out.
    pub peers: Vec<&'static Peer>,
    /// What is asked.
    pub workloads: Vec<Workload>,
    /// How much; none: what each workload says, and saturation.
    pub loads: Option<Vec<Load>>,
    /// How often.
    pub rounds: u32,
    /// For how long each time.
    pub duration: Duration,
    /// Queries sent at once under a fixed load.
    pub burst: usize,
    /// No round begins after this.
    pub limit: Duration,
    /// The processor of the server.
    pub server_core: usize,
    /// The processor of the load generator and the upstream.
    pub client_core: usize,
    /// The proxy's program.
    pub dnsweir: PathBuf,
    /// Programs that are not in `PATH`, by name.
    pub programs: Vec<(&'static str, PathBuf)>,
    /// Modules of filters that remember nothing.
    pub called: Option<PathBuf>,
    /// For results.
    pub out: PathBuf,
}

impl Settings {
    /// The program of `peer`, if there is one.
    fn program(&self, peer: &Peer) -> Option<PathBuf> {
        let path = match peer.program {
            Program::Bench => std::env::current_exe().ok()?,
            Program::Dnsweir => self.dnsweir.clone(),
            Program::DnsweirCalled => self.called.as_ref().map(|_| self.dnsweir.clone())?,
            Program::Named(name) => {
                let named = self.programs.iter().find(|(known, _)| *known == name);
                return named.map(|(_, path)| path.clone()).or_else(|| in_path(name));
            }
        };
        path.is_file().then_some(path)
    }

    fn loads(&self, workload: Workload) -> Vec<Load> {
        match &self.loads {
            Some(loads) => loads.clone(),
            None => {
                let rates = workload.rates().iter().copied().map(Load::Rate);
                rates.chain([Load::Saturation]).collect()
            }
        }
    }
}

/// Does all of it; gives the file of raw numbers.
pub fn run(settings: &Settings) -> io::Result<PathBuf> {
    fs::create_dir_all(&settings.out)?;
    let raw = settings.out.join("raw.jsonl");
    let mut record = Record(File::create(&raw)?);
    pin(settings.client_core)?;
    let begin = Instant::now();

    let mut peers = Vec::new();
    for peer in &settings.peers {
        match settings.program(peer) {
            Some(program) => peers.push((*peer, program)),
            None => eprintln!("{}: not installed, left out", peer.name),
        }
    }
    record.write(&environment(settings, &peers))?;

    for workload in &settings.workloads {
        if begin.elapsed() > settings.limit {
            record.note(&format!("{}: left out, the time was over", workload.name()))?;
            continue;
        }
        run_workload(settings, *workload, &peers, begin, &mut record)?;
    }
    Ok(raw)
}

fn run_workload(
    settings: &Settings,
    workload: Workload,
    peers: &[(&'static Peer, PathBuf)],
    begin: Instant,
    record: &mut Record,
) -> io::Result<()> {
    let scratch = Scratch::new()?;
    let upstream = start_upstream(settings, &scratch)?;
    let mut servers = Vec::new();
    let mut port = FIRST_PORT;
    for (peer, program) in peers {
        let started = start(
            settings,
            peer,
            program,
            workload,
            &scratch,
            upstream.address,
            &mut port,
        );
        let server = match started {
            Ok(server) => server,
            Err(error) => {
                record.note(&format!("{} under {}: {error}", peer.name, workload.name()))?;
                continue;
            }
        };
        let failed = warm_up(server.address, workload)?;
        if failed > 0 {
            let name = workload.name();
            record.note(&format!(
                "{} under {name}: {failed} queries of the warm-up failed",
                peer.name
            ))?;
        }
        server.freeze()?;
        servers.push((*peer, server));
    }

    let loads = settings.loads(workload);
    for round in 0..settings.rounds {
        if begin.elapsed() > settings.limit {
            record.note(&format!(
                "{}: {round} rounds, then the time was over",
                workload.name()
            ))?;
            break;
        }
        for (place, load) in loads.iter().enumerate() {
            let plan = Plan {
                round,
                workload,
                load: *load,
                duration: settings.duration,
                burst: settings.burst,
                seed: round * loads.len() as u32 + place as u32,
                core: settings.server_core,
            };
            for turn in 0..servers.len() {
                let place = (turn + round as usize) % servers.len();
                let (peer, server) = &mut servers[place];
                let measured = server.thaw().and_then(|()| measure(server, peer.name, plan));
                server.freeze()?;
                match measured {
                    Ok(sample) => {
                        record.write(&sample.to_json())?;
                        eprintln!(
                            "{} {} {:>16} {:>10}: {:6.2} us/query, {:7.0} q/s, p99 {:5.0} us, failed {:.3} %",
                            workload.name(),
                            round,
                            peer.name,
                            load.text(),
                            sample.cost().unwrap_or(f64::NAN),
                            sample.rate(),
                            sample.latency.p99 as f64 / 1000.0,
                            sample.failed() * 100.0,
                        );
                    }
                    Err(error) => {
                        let (name, load) = (workload.name(), load.text());
                        record.note(&format!("{} under {name} at {load}: {error}", peer.name))?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn start_upstream(settings: &Settings, scratch: &Scratch) -> io::Result<Server> {
    let address = SocketAddrV4::new(UPSTREAM, free_port(UPSTREAM, FIRST_PORT)?);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["upstream", "--listen", &address.to_string()]);
    let folder = scratch.folder("upstream")?;
    Server::start(&mut command, settings.client_core, address, &folder)
}

fn start(
    settings: &Settings,
    peer: &Peer,
    program: &Path,
    workload: Workload,
    scratch: &Scratch,
    upstream: SocketAddrV4,
    port: &mut u16,
) -> io::Result<Server> {
    let listen = SocketAddrV4::new(SERVERS, free_port(SERVERS, *port)?);
    let spare_port = free_port(SERVERS, listen.port() + 1)?;
    *port = spare_port + 1;
    let folder = scratch.folder(peer.name)?;
    let site = Site {
        folder: &folder,
        listen,
        upstream,
        spare_port,
        called: settings.called.as_deref(),
        exists: workload.exists(),
    };
    let mut command = peer.command(program, &site)?;
    Server::start(&mut command, settings.server_core, listen, &folder)
}

/// The raw numbers, each written when it is known.
struct Record(File);

impl Record {
    fn write(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.0, "{value}")
    }

    /// Something the report has to mention.
    fn note(&mut self, text: &str) -> io::Result<()> {
        eprintln!("{text}");
        self.write(&json!({"kind": "note", "text": text}))
    }
}

/// Where and with what this was measured.
fn environment(settings: &Settings, peers: &[(&Peer, PathBuf)]) -> Value {
    let line = |path: &str, prefix: &str| -> String {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix(prefix));
        let value = found.unwrap_or_default();
        value
            .trim_matches(|c: char| c == ':' || c.is_whitespace())
            .to_owned()
    };
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let average = line("/proc/loadavg", "");
    let average: Vec<&str> = average.split(' ').take(3).collect();
    let versions = peers
        .iter()
        .map(|(peer, program)| (peer.name.to_owned(), Value::from(peer.version(program))));
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    json!({
        "kind": "environment",
        "unix_time": since_epoch.map_or(0, |time| time.as_secs()),
        "processor": line("/proc/cpuinfo", "model name"),
        "processors": cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        "kernel": line("/proc/sys/kernel/osrelease", ""),
        "load_average_before": average.join(" "),
        "server_core": settings.server_core,
        "client_core": settings.client_core,
        "rounds": settings.rounds,
        "seconds": settings.duration.as_secs_f64(),
        "burst": settings.burst,
        "versions": versions.collect::<serde_json::Map<_, _>>(),
    })
}
