//! Measuring several servers in turn.
//!
//! All of them are started and warmed; then each round measures every one, starting with another one each
//! time. Servers that are not being measured are stopped with SIGSTOP. So temporary slowness of the machine
//! affects all, and the ratios within a round stay meaningful.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use crate::measure::{Plan, measure};
use crate::peers::{Peer, Site};
use crate::process::{Scratch, Server, free_port};
use crate::record::{Entry, Record};
use crate::report::FLOOR;
use crate::sample::Sample;
use crate::workload::Workload;

/// The addresses of servers and of the upstream.
pub const SERVERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const UPSTREAM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);

/// The first port that is tried.
pub const FIRST_PORT: u16 = 20_053;

/// One measurement of a round.
pub struct Turn {
    /// The name in the raw numbers of what is measured.
    pub name: String,
    /// The workload.
    pub workload: Workload,
    /// Index of the server to ask.
    pub server: usize,
    /// The server's capacity in queries per second, if measured.
    pub capacity: Option<f64>,
}

/// Measures each turn once by `plan`, but with the turn's own workload, starting with another turn in each
/// round. Returns the samples.
pub fn measure_in_turn(
    record: &mut Record,
    servers: &mut [Server],
    turns: &[Turn],
    plan: Plan,
) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for place in 0..turns.len() {
        let turn = &turns[(place + plan.round as usize) % turns.len()];
        let plan = Plan {
            workload: turn.workload,
            capacity: turn.capacity,
            ..plan
        };
        let server = &mut servers[turn.server];
        let measured = server.thaw().and_then(|()| measure(server, &turn.name, plan));
        server.freeze()?;
        let what = format!(
            "{} under {} at {}",
            turn.name,
            turn.workload.name(),
            plan.load.text()
        );
        match measured {
            Ok(sample) => {
                eprintln!(
                    "{} {what}: {:.2} us/query, {:.0} q/s, p99 {:.0} us, failed {:.3} %",
                    plan.round,
                    sample.cost().unwrap_or(f64::NAN),
                    sample.rate(),
                    sample.latency.p99 as f64 / 1000.0,
                    sample.failed() * 100.0,
                );
                record.write(&Entry::Sample(sample.clone()))?;
                samples.push(sample);
            }
            Err(error) => record.note(&format!("{what}: {error}"))?,
        }
    }
    Ok(samples)
}

/// Starts the upstream of all other servers.
pub fn start_upstream(core: usize, scratch: &Scratch) -> io::Result<Server> {
    let address = SocketAddrV4::new(UPSTREAM, free_port(UPSTREAM, FIRST_PORT)?);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["upstream", "--listen", &address.to_string()]);
    Server::start(&mut command, core, address, &scratch.folder("upstream")?)
}

/// Starts the floor, which has one fixed answer.
pub fn start_floor(core: usize, scratch: &Scratch) -> io::Result<Server> {
    let listen = SocketAddrV4::new(SERVERS, free_port(SERVERS, FIRST_PORT)?);
    let folder = scratch.folder(FLOOR)?;
    let floor = Peer::find(FLOOR).ok_or_else(|| io::Error::other("there is no floor"))?;
    let site = Site {
        folder: &folder,
        listen,
        // It has no upstreams.
        upstreams: &[],
        spare_port: 0,
        called: None,
        exists: true,
    };
    let mut command = floor.command(&std::env::current_exe()?, &site)?;
    Server::start(&mut command, core, listen, &folder)
}
