//! How the cost of a query grows with what there is: entries, zones, filters, rules, clients, workers.
//!
//! Each point of a curve is a proxy of its own. All points of a dimension are measured in rotation at one fixed
//! load, with the floor under the same workload beside them. What the noise of sockets hides shows from inside:
//! the same configurations without sockets, in this process.

use std::error::Error;
use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::growth::{Dimension, Line, Point, Source};
use crate::hit;
use crate::measure::{Plan, warm_up};
use crate::process::{Scratch, Server, free_port, pin};
use crate::report::{FLOOR, figure};
use crate::rotation::{
    FIRST_PORT, Record, SERVERS, Turn, machine, measure_in_turn, start_floor, start_upstream,
};
use crate::sample::Load;

/// What the raw numbers call figures of a point.
pub const INSIDE_NS: &str = "inside_ns";
/// Milliseconds to make a generation of its configuration.
pub const BUILT_MS: &str = "built_ms";
/// Milliseconds from the start of the process to the first answer.
pub const START_MS: &str = "start_ms";

/// Queries of a round from inside, at least.
const INSIDE: u64 = 200_000;
/// Where they are dear, no longer than this.
const INSIDE_LIMIT: Duration = Duration::from_millis(500);
/// Queries of a batch from inside: as many as a worker that has a lot to do finds.
const INSIDE_BATCH: usize = 32;

/// What to run.
pub struct Settings {
    /// The proxy's program.
    pub dnsweir: PathBuf,
    /// What grows.
    pub dimensions: Vec<Dimension>,
    /// Queries per second.
    pub rate: u32,
    /// Queries sent at once.
    pub burst: usize,
    /// How often.
    pub rounds: u32,
    /// For how long each time.
    pub duration: Duration,
    /// The processor of the server.
    pub server_core: usize,
    /// The processor of the load generator and the upstream.
    pub client_core: usize,
    /// For results.
    pub out: PathBuf,
}

/// Where the raw numbers of a dimension are.
pub fn raw(out: &Path, dimension: Dimension) -> PathBuf {
    out.join(format!("scale-{}.jsonl", dimension.name))
}

/// Does all of it.
///
/// # Errors
///
/// When something cannot be started, or cannot be written.
pub fn run(settings: &Settings) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(&settings.out)?;
    for dimension in &settings.dimensions {
        let mut record = Record::create(&raw(&settings.out, *dimension))?;
        let mut environment = machine();
        environment["server_core"] = json!(settings.server_core);
        environment["client_core"] = json!(settings.client_core);
        environment["rounds"] = json!(settings.rounds);
        environment["seconds"] = json!(settings.duration.as_secs_f64());
        environment["burst"] = json!(settings.burst);
        record.write(&environment)?;
        let scratch = Scratch::new()?;
        inside(settings, *dimension, &scratch, &mut record)?;
        outside(settings, *dimension, &scratch, &mut record)?;
    }
    Ok(())
}

/// The processors for a point: the server's first, the client's last.
fn cores(settings: &Settings, point: &Point) -> Vec<usize> {
    let others =
        (0..processors()).filter(|core| ![settings.server_core, settings.client_core].contains(core));
    let all = [settings.server_core]
        .into_iter()
        .chain(others)
        .chain([settings.client_core]);
    all.take(point.cores).collect()
}

fn processors() -> usize {
    // All there are: the calling thread is pinned.
    // SAFETY: takes a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1)
}

/// Without sockets.
fn inside(
    settings: &Settings,
    dimension: Dimension,
    scratch: &Scratch,
    record: &mut Record,
) -> Result<(), Box<dyn Error>> {
    let compiled = scratch.0.join("compiled");
    for line in dimension.lines().filter(|line| line.from_inside) {
        for (value, point) in line.points(processors()) {
            let setup = hit::Setup::at(&point, cores(settings, &point), Some(compiled.clone()))?;
            let (names, _) = point.workload.warm_up();
            let plan = hit::Plan {
                // Each name at least once in a round.
                count: INSIDE.max(names.into()),
                limit: INSIDE_LIMIT,
                batch: INSIDE_BATCH,
                rounds: settings.rounds,
            };
            let hits = hit::measure(&setup, plan)?;
            let name = line.point_name(value);
            let built = hits.built.as_secs_f64() * 1e3;
            eprintln!("{name}: {:.0} ns each, built in {built:.1} ms", hits.each);
            record.write(&figure(&name, INSIDE_NS, hits.each))?;
            record.write(&figure(&name, BUILT_MS, built))?;
        }
    }
    Ok(())
}

/// With sockets.
fn outside(
    settings: &Settings,
    dimension: Dimension,
    scratch: &Scratch,
    record: &mut Record,
) -> io::Result<()> {
    pin(settings.client_core)?;
    let upstream = start_upstream(settings.client_core, scratch)?;
    let mut servers = vec![start_floor(settings.server_core, scratch)?];
    servers[0].freeze()?;
    let mut turns: Vec<Turn> = Vec::new();
    for line in dimension.lines().filter(|line| line.from_outside) {
        for (value, point) in line.points(processors()) {
            let name = line.point_name(value);
            let server = start(settings, scratch, upstream.address, line, value, &point)?;
            record.write(&figure(&name, START_MS, server.start.as_secs_f64() * 1e3))?;
            let failed = warm_up(server.address, point.workload)?;
            if failed > 0 {
                record.note(&format!("{name}: {failed} queries of the warm-up failed"))?;
            }
            server.freeze()?;
            let workload = point.workload;
            let with_floor = |turn: &Turn| turn.server == 0 && turn.workload == workload;
            if !turns.iter().any(with_floor) {
                turns.push(Turn {
                    name: FLOOR.to_owned(),
                    workload,
                    server: 0,
                });
            }
            turns.push(Turn {
                name,
                workload,
                server: servers.len(),
            });
            servers.push(server);
        }
    }
    for round in 0..settings.rounds {
        let plan = Plan {
            round,
            // Each turn has its own.
            workload: turns[0].workload,
            load: Load::Rate(settings.rate),
            duration: settings.duration,
            burst: settings.burst,
            seed: round,
            core: settings.server_core,
        };
        measure_in_turn(record, &mut servers, &turns, plan)?;
    }
    Ok(())
}

fn start(
    settings: &Settings,
    scratch: &Scratch,
    upstream: SocketAddrV4,
    line: &Line,
    value: u32,
    point: &Point,
) -> io::Result<Server> {
    let listen = SocketAddrV4::new(SERVERS, free_port(SERVERS, FIRST_PORT)?);
    let folder = scratch.folder(&line.point_name(value))?;
    let file = folder.join("dnsweir.kdl");
    fs::write(
        &file,
        point.config(listen.into(), &Source::Upstream(upstream.into())),
    )?;
    let mut command = Command::new(&settings.dnsweir);
    command
        .args(["run", "--log-level", "warn", "--config"])
        .arg(&file);
    let server = Server::start(&mut command, settings.server_core, listen, &folder)?;
    server.spread(&cores(settings, point))?;
    Ok(server)
}
