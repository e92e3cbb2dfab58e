//! A run: every peer under every workload and load, in rotation over several rounds.

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::measure::{Plan, warm_up};
use crate::peers::{Peer, Program, Site, in_path};
use crate::process::{Scratch, Server, free_port, pin};
use crate::rotation::{FIRST_PORT, Record, SERVERS, Turn, machine, measure_in_turn, start_upstream};
use crate::sample::Load;
use crate::workload::Workload;

/// What to run.
pub struct Settings {
    /// Who is measured; those that are not installed are left out.
    pub peers: Vec<&'static Peer>,
    /// What is asked.
    pub workloads: Vec<Workload>,
    /// How much; none: what each workload says, and saturation.
    pub loads: Option<Vec<Load>>,
    /// Leave out all rates of a workload but its highest.
    pub highest: bool,
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
                let rates = workload.rates();
                let rates = match (self.highest, rates) {
                    (true, [.., highest]) => std::slice::from_ref(highest),
                    _ => rates,
                };
                let rates = rates.iter().copied().map(Load::Rate);
                rates.chain([Load::Saturation]).collect()
            }
        }
    }
}

/// Does all of it; gives the file of raw numbers.
pub fn run(settings: &Settings) -> io::Result<PathBuf> {
    fs::create_dir_all(&settings.out)?;
    let raw = settings.out.join("raw.jsonl");
    let mut record = Record::create(&raw)?;
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
    let upstream = start_upstream(settings.client_core, &scratch)?;
    let mut servers = Vec::new();
    let mut turns = Vec::new();
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
        turns.push(Turn {
            name: peer.name.to_owned(),
            workload,
            server: servers.len(),
        });
        servers.push(server);
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
            measure_in_turn(record, &mut servers, &turns, plan)?;
        }
    }
    Ok(())
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

/// Where and with what this was measured.
fn environment(settings: &Settings, peers: &[(&Peer, PathBuf)]) -> Value {
    let versions = peers
        .iter()
        .map(|(peer, program)| (peer.name.to_owned(), Value::from(peer.version(program))));
    let mut environment = machine();
    environment["server_core"] = json!(settings.server_core);
    environment["client_core"] = json!(settings.client_core);
    environment["rounds"] = json!(settings.rounds);
    environment["seconds"] = json!(settings.duration.as_secs_f64());
    environment["burst"] = json!(settings.burst);
    environment["versions"] = Value::Object(versions.collect());
    environment
}
