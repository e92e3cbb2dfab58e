//! One measurement of one running server.

use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

use crate::accounting::{Memory, Processor, core_busy};
use crate::drive::{Client, Clock, Monotonic, Schedule, Tally, as_fast_as_answered, on_schedule};
use crate::options::Pace;
use crate::process::Server;
use crate::sample::{Latency, Load, Sample};
use crate::tcp_client::TcpClient;
use crate::udp_client::UdpClient;
use crate::wire::Question;
use crate::workload::Workload;

/// TCP connections of the workload that uses them.
const CONNECTIONS: usize = 8;

/// How long a server is asked before its costs are counted: it may have been frozen for a while.
pub const RUN_IN: Duration = Duration::from_millis(200);

/// How long filling a cache may take: the minimum in all, and per name.
const WARM_UP: Duration = Duration::from_secs(10);
const WARM_UP_EACH: Duration = Duration::from_micros(100);

/// What to measure.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The round, from 0.
    pub round: u32,
    /// The workload.
    pub workload: Workload,
    /// The load.
    pub load: Load,
    /// The server's capacity in queries per second, for a load that is a share of it.
    pub capacity: Option<f64>,
    /// The duration.
    pub duration: Duration,
    /// Queries sent together at a fixed rate.
    pub burst: usize,
    /// Determines the questions; different for every measurement of a server.
    pub seed: u32,
    /// The server's processor.
    pub core: usize,
}

impl Plan {
    /// One measurement of a rotation.
    pub fn of(pace: &Pace, round: u32, seed: u32, workload: Workload, load: Load) -> Plan {
        Plan {
            round,
            workload,
            load,
            capacity: None,
            duration: pace.duration,
            burst: pace.burst,
            seed,
            core: pace.cores.server,
        }
    }
}

/// Asks for everything that should be in the cache. Returns the number of queries without a right answer.
pub fn warm_up(server: SocketAddrV4, workload: Workload) -> io::Result<u64> {
    let mut client = UdpClient::new(server, Vec::new(), 8)?;
    let mut failed = 0;
    // Twice: the second pass repeats what a full queue dropped, and some caches keep a name only when it is
    // asked for again.
    for _ in 0..2 {
        let (count, mut next) = workload.warm_up();
        let patience = WARM_UP.max(WARM_UP_EACH * count);
        let tally = as_fast_as_answered(&mut client, &mut Monotonic, patience, count.into(), &mut next)?;
        failed = tally.wrong + tally.lost;
    }
    Ok(failed)
}

/// Measures `server`.
pub fn measure(server: &Server, name: &str, plan: Plan) -> io::Result<Sample> {
    server.forget_output()?;
    if plan.workload.over_tcp() {
        let mut client = TcpClient::new(server.address, CONNECTIONS)?;
        with_client(&mut client, server, name, plan)
    } else {
        let (addresses, sockets) = plan.workload.sources();
        let mut client = UdpClient::new(server.address, addresses, sockets)?;
        with_client(&mut client, server, name, plan)
    }
}

fn with_client(client: &mut impl Client, server: &Server, name: &str, plan: Plan) -> io::Result<Sample> {
    let mut questions = plan.workload.questions(plan.seed);
    let mut next = || questions.next();
    ask(client, plan, RUN_IN, &mut next)?;

    let processor = Processor::of(server.id())?;
    let busy = core_busy(plan.core)?;
    let start = Monotonic.now();
    let tally = ask(client, plan, plan.duration, &mut next)?;
    let counted = Monotonic.now() - start;
    let busy = core_busy(plan.core)?.saturating_sub(busy);
    let processor = Processor::of(server.id())?.since(processor);
    let memory = Memory::of(server.id())?;

    let at = |part| tally.latency.value_at_quantile(part);
    Ok(Sample {
        round: plan.round,
        peer: name.to_owned(),
        workload: plan.workload,
        load: plan.load,
        seconds: plan.duration.as_secs_f64(),
        counted: counted as f64 / 1e9,
        sent: tally.sent,
        answered: tally.answered,
        wrong: tally.wrong,
        lost: tally.lost,
        reconnects: tally.reconnects,
        processor: processor.scheduled,
        ticked: processor.ticked,
        // Both in ticks: the difference of two clocks would be noise.
        foreign: busy.saturating_sub(processor.ticked),
        latency: Latency {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: tally.latency.max(),
        },
        client_late: tally.late.value_at_quantile(0.99),
        resident: memory.resident,
        proportional: memory.proportional,
    })
}

fn ask(
    client: &mut impl Client,
    plan: Plan,
    duration: Duration,
    next: &mut dyn FnMut() -> Question,
) -> io::Result<Tally> {
    let rate = match (plan.load, plan.capacity) {
        (Load::Saturation, _) => {
            return as_fast_as_answered(client, &mut Monotonic, duration, u64::MAX, next);
        }
        (Load::Rate(rate), _) => rate,
        (Load::Share(share), Some(capacity)) => (capacity * f64::from(share) / 100.0) as u32,
        (Load::Share(_), None) => return Err(io::Error::other("a share of a capacity that is not known")),
    };
    let schedule = Schedule::new(rate.max(1), plan.burst, duration);
    on_schedule(client, &mut Monotonic, schedule, next)
}
