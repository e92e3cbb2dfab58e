//! How the cost of a query grows with the number of entries, zones, filters, rules, clients, workers.
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

use clap::Args;

use crate::growth::{DIMENSIONS, Dimension, Line, Point, Source};
use crate::hit;
use crate::measure::{Plan, warm_up};
use crate::options::{Called, Cores, Pace, Proxy};
use crate::process::{Scratch, Server, free_port, pin, processors};
use crate::record::{Entry, Environment, Record};
use crate::report::FLOOR;
use crate::rotation::{FIRST_PORT, SERVERS, Turn, measure_in_turn, start_floor, start_upstream};
use crate::sample::Load;

/// Figures in the raw numbers. Nanoseconds per hit, without sockets.
pub const INSIDE_NS: &str = "inside_ns";
/// Milliseconds to build a generation of its configuration.
pub const BUILT_MS: &str = "built_ms";
/// Milliseconds from the start of the process to the first answer.
pub const START_MS: &str = "start_ms";

/// The least number of queries in a round from inside.
const INSIDE: u64 = 200_000;
/// The time limit of a round, for expensive queries.
const INSIDE_LIMIT: Duration = Duration::from_millis(500);
/// Queries in a batch from inside: as many as a busy worker finds.
const INSIDE_BATCH: usize = 32;

/// What to run.
#[derive(Args)]
pub struct Settings {
    /// What grows: entries zones filters rules clients workers [default: all]
    #[arg(long = "only", value_name = "A,B", value_delimiter = ',')]
    dimensions: Vec<Dimension>,
    /// Queries per second
    #[arg(long, value_name = "N", default_value_t = 60_000)]
    rate: u32,
    #[command(flatten)]
    pub pace: Pace,
    #[command(flatten)]
    proxy: Proxy,
    #[command(flatten)]
    called: Called,
    /// For scale-*.jsonl, scale.md and scale.svg
    #[arg(long, value_name = "FOLDER", default_value = crate::output::FOLDER)]
    pub out: PathBuf,
}

/// Returns the path of a dimension's raw numbers.
pub fn raw(out: &Path, dimension: Dimension) -> PathBuf {
    out.join(format!("scale-{}.jsonl", dimension.name))
}

/// Runs all measurements.
///
/// # Errors
///
/// If something cannot be started or written.
pub fn run(settings: &Settings) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(&settings.out)?;
    let dimensions = match &settings.dimensions[..] {
        [] => &DIMENSIONS[..],
        chosen => chosen,
    };
    for dimension in dimensions {
        let mut record = Record::create(&raw(&settings.out, *dimension))?;
        record.write(&Entry::Environment(Environment::of(&settings.pace)))?;
        let scratch = Scratch::new()?;
        for line in dimension.lines() {
            if points(settings, line).is_empty() {
                eprintln!("{}: left out: it needs --called-modules", line.name);
            }
        }
        inside(settings, *dimension, &scratch, &mut record)?;
        outside(settings, *dimension, &scratch, &mut record)?;
    }
    Ok(())
}

/// Returns the points of a curve that can be measured here.
fn points(settings: &Settings, line: &Line) -> Vec<(u32, Point)> {
    let mut points: Vec<_> = line.points(processors()).collect();
    points.retain(|(_, point)| !point.called || settings.called.modules.is_some());
    points
}

/// Returns the processors for a point: the server's first, the client's last.
fn cores(settings: &Settings, point: &Point) -> Vec<usize> {
    let Cores { server, client } = settings.pace.cores;
    let others = (0..processors()).filter(|core| ![server, client].contains(core));
    let all = [server].into_iter().chain(others).chain([client]);
    all.take(point.cores).collect()
}

/// Measures without sockets.
fn inside(
    settings: &Settings,
    dimension: Dimension,
    scratch: &Scratch,
    record: &mut Record,
) -> Result<(), Box<dyn Error>> {
    let compiled = scratch.0.join("compiled");
    for line in dimension.lines().filter(|line| line.from_inside) {
        for (value, point) in points(settings, line) {
            let setup = hit::Setup::at(
                &point,
                cores(settings, &point),
                Some(compiled.clone()),
                settings.called.modules.as_deref(),
            )?;
            let (names, _) = point.workload.warm_up();
            let plan = hit::Plan {
                // Each name at least once in a round.
                count: INSIDE.max(names.into()),
                limit: INSIDE_LIMIT,
                batch: INSIDE_BATCH,
                rounds: settings.pace.rounds,
            };
            let hits = hit::measure(&setup, plan)?;
            let name = line.point_name(value);
            let built = hits.built.as_secs_f64() * 1e3;
            eprintln!("{name}: {:.0} ns each, built in {built:.1} ms", hits.each);
            record.figure(&name, INSIDE_NS, hits.each)?;
            record.figure(&name, BUILT_MS, built)?;
        }
    }
    Ok(())
}

/// Measures with sockets.
fn outside(
    settings: &Settings,
    dimension: Dimension,
    scratch: &Scratch,
    record: &mut Record,
) -> io::Result<()> {
    pin(settings.pace.cores.client)?;
    let upstream = start_upstream(settings.pace.cores.client, scratch)?;
    let mut servers = vec![start_floor(settings.pace.cores.server, scratch)?];
    servers[0].freeze()?;
    let mut turns: Vec<Turn> = Vec::new();
    for line in dimension.lines().filter(|line| line.from_outside) {
        for (value, point) in points(settings, line) {
            let name = line.point_name(value);
            let server = start(settings, scratch, upstream.address, line, value, &point)?;
            record.figure(&name, START_MS, server.start.as_secs_f64() * 1e3)?;
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
                    capacity: None,
                });
            }
            turns.push(Turn {
                name,
                workload,
                server: servers.len(),
                capacity: None,
            });
            servers.push(server);
        }
    }
    for round in 0..settings.pace.rounds {
        // Each turn has its own workload.
        let (any, load) = (turns[0].workload, Load::Rate(settings.rate));
        let plan = Plan::of(&settings.pace, round, round, any, load);
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
    let (source, called) = (
        Source::Upstream(upstream.into()),
        settings.called.modules.as_deref(),
    );
    let config = point
        .config(listen.into(), &source, called)
        .map_err(io::Error::other)?;
    fs::write(&file, config)?;
    let mut command = Command::new(&settings.proxy.dnsweir);
    command
        .args(["run", "--log-level", "warn", "--config"])
        .arg(&file);
    let server = Server::start(&mut command, settings.pace.cores.server, listen, &folder)?;
    server.spread(&cores(settings, point))?;
    Ok(server)
}
