//! A hit without sockets: the proxy's own work for a query that its cache can answer, in one process and one
//! thread, from the bytes of the query to those of the reply. The rest of a hit is the kernel's work.
//!
//! Made for callgrind: count [`answer`], and only that.

use std::cell::Cell;
use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use dnsweir_config as config;
use dnsweir_engine::filter::{BUILTINS, CompiledCache, Engine};
use dnsweir_os::private_folder::PrivateFolder;
use dnsweir_serve::serve::generation::Generation;
use dnsweir_serve::serve::{Admission, Batch, Client, DeferredReply, Live, Replies, Shared, Worker};
use dnsweir_wire::dns::Transport;
use tokio::runtime::LocalRuntime;

use crate::growth::{Line, Point, Source};
use crate::options::Called;
use crate::peers::{ALL, NODECACHE, REWRITE, USE_FILTERS, filters};
use crate::process::pin;

/// Names asked in turn, as in the workload `hot`.
const NAMES: usize = 64;

/// Another name, which filters may redirect to.
pub const OTHER: &str = "other.bench.example.net";

/// Room for a reply: the limit for a client without EDNS.
const LIMIT: usize = 512;

/// The address the proxy would listen on.
pub const ADDRESS: &str = "127.0.0.1:53";
/// The limit of its cache.
pub const CACHE: usize = 1 << 30;

/// What to measure, on the command line.
#[derive(Args)]
pub struct Settings {
    /// Which filters see every query [default: all that can be]
    #[arg(long, value_enum)]
    filters: Option<Filters>,
    /// Queries in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    count: u64,
    /// Queries of a batch
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: usize,
    #[command(flatten)]
    called: Called,
    /// Where compiled filters are kept: one that is there need not be compiled
    #[arg(long, value_name = "FOLDER")]
    compiled: Option<PathBuf>,
    /// Not that, but a point of a curve of `scale`, such as zones=1000
    #[arg(long, value_name = "CURVE=N", value_parser = Line::find_point)]
    at: Option<(&'static Line, u32)>,
}

/// Which filters see every query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Filters {
    /// None.
    Bare,
    /// `log`, which prints a line for each, `rewrite` and `nodecache`, as they are: the last two let their verdicts be
    /// remembered.
    Remembered,
    /// The same, with modules of `rewrite` and `nodecache` whose verdicts are not.
    Called,
}

impl Filters {
    /// Returns their blocks and the stages that use them. `called` is the folder of modules that remember nothing.
    pub fn configuration(self, called: Option<&Path>) -> (String, &'static str) {
        let folder = called.unwrap_or(Path::new(""));
        let module = |name: &str| folder.join(name).display().to_string();
        match self {
            Filters::Bare => (String::new(), ""),
            Filters::Remembered => (filters(ALL, REWRITE, NODECACHE), USE_FILTERS),
            Filters::Called => (
                filters(ALL, &module("rewrite.wasm"), &module("nodecache.wasm")),
                USE_FILTERS,
            ),
        }
    }
}

/// Measures, and prints the results.
pub fn run(settings: &Settings) -> Result<(), Box<dyn Error>> {
    let plan = Plan {
        count: settings.count,
        limit: Duration::MAX,
        batch: settings.batch,
        rounds: 1,
    };
    let print = |name: &str, setup: Setup| -> Result<(), Box<dyn Error>> {
        let compiled = settings.compiled.clone();
        let hits = measure(&Setup { compiled, ..setup }, plan)?;
        println!("{name}: {} hits, {:.0} ns each", plan.count, hits.each);
        Ok(())
    };
    let called = settings.called.modules.as_deref();
    if let Some((line, value)) = settings.at {
        let setup = Setup::at(&line.at(value), Vec::new(), None, called)?;
        return print(&line.point_name(value), setup);
    }
    if settings.filters == Some(Filters::Called) && called.is_none() {
        return Err("--filters called needs --called-modules".into());
    }
    let all = [
        ("bare", Filters::Bare),
        ("remembered", Filters::Remembered),
        ("called", Filters::Called),
    ];
    for (name, filters) in all {
        let chosen = settings.filters.is_none_or(|chosen| chosen == filters);
        if chosen && (filters != Filters::Called || called.is_some()) {
            print(name, Setup::with(filters, called))?;
        }
    }
    Ok(())
}

/// The setup to measure.
pub struct Setup {
    config: String,
    /// Asked in turn.
    queries: Vec<Vec<u8>>,
    common: Common,
    /// The processors to measure on, each with a thread of its own; if empty, the calling thread measures.
    cores: Vec<usize>,
    /// The folder of compiled filters, if any.
    compiled: Option<PathBuf>,
    expected: Expected,
}

/// What several threads share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Common {
    /// The cache and the names.
    Names,
    /// The cache; each thread has its part of the names.
    Cache,
    /// Nothing: each thread has its own proxy.
    Nothing,
}

/// The expected replies.
#[derive(Clone, Copy)]
pub struct Expected {
    pub rcode: u8,
    /// How many records the answer section has.
    pub answers: u8,
    /// Whether they arrive later, because something is asked first. Such work is then awaited after each
    /// batch.
    pub deferred: bool,
    /// Whether there are no replies.
    pub silent: bool,
}

impl Expected {
    /// One record, immediately.
    pub const ONE_RECORD: Expected = Expected {
        rcode: 0,
        answers: 1,
        deferred: false,
        silent: false,
    };

    fn met(self, reply: &[u8]) -> bool {
        reply.len() > 12 && reply[3] & 0xf == self.rcode && reply[6..8] == [0, self.answers]
    }
}

/// How to measure.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Queries in a round, for each thread.
    pub count: u64,
    /// A round ends early after this time.
    pub limit: Duration,
    /// Queries in a batch.
    pub batch: usize,
    /// How many rounds.
    pub rounds: u32,
}

/// The results.
pub struct Hits {
    /// Nanoseconds per query in the fastest round, which was not disturbed; with several threads, those of
    /// the slowest.
    pub each: f64,
    /// How long it took to build another generation of the configuration, as a reload does.
    pub built: Duration,
}

impl Setup {
    /// 64 names, behind these filters.
    fn with(which: Filters, called: Option<&Path>) -> Setup {
        let (filters, stages) = which.configuration(called);
        Setup::behind(&filters, stages, Expected::ONE_RECORD)
    }

    /// 64 names behind these stages, with the replies to expect.
    pub fn behind(filters: &str, stages: &str, expected: Expected) -> Setup {
        // Misses are answered by a filter, so that no upstream is needed.
        let mut hosts = format!("host \"{OTHER}\" \"192.0.2.1\"\n");
        let mut queries = Vec::new();
        for index in 0..NAMES {
            let _ = writeln!(hosts, "host \"n{index}.bench.example.net\" \"192.0.2.1\"");
            let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in [&format!("n{index}"), "bench", "example", "net"] {
                query.push(label.len() as u8);
                query.extend(label.as_bytes());
            }
            query.extend([0, 0, 1, 0, 1]);
            queries.push(query);
        }
        let config = format!(
            "listen \"{ADDRESS}\"; workers 1; {filters}\n\
             filter \"hosts\" {{ module \"builtin:hosts\"; limits time=\"1s\"; config {{ {hosts} }} }}\n\
             zone \".\" {{ {stages}\n cache; use \"hosts\"; forward \"192.0.2.53\" }}"
        );
        Setup {
            config,
            queries,
            common: Common::Names,
            cores: Vec::new(),
            compiled: None,
            expected,
        }
    }

    /// The first `names` of 64 names, asked by a thread on each of these processors.
    pub fn shared(cores: &[usize], names: usize, common: Common) -> Setup {
        let mut setup = Setup::behind("", "", Expected::ONE_RECORD);
        setup.queries.truncate(names);
        setup.cores = cores.to_vec();
        setup.common = common;
        setup
    }

    /// Returns the queries of a thread.
    fn queries_of(&self, worker: usize) -> &[Vec<u8>] {
        match self.common {
            Common::Names | Common::Nothing => &self.queries,
            Common::Cache => {
                let part = self.queries.len() / self.cores.len();
                &self.queries[worker * part..(worker + 1) * part]
            }
        }
    }

    /// A point of a curve, on these processors, with a folder for compiled filters and one of modules to be
    /// called.
    pub fn at(
        point: &Point,
        cores: Vec<usize>,
        compiled: Option<PathBuf>,
        called: Option<&Path>,
    ) -> Result<Setup, Box<dyn Error>> {
        Ok(Setup {
            config: point.config(ADDRESS.parse()?, &Source::Filter, called)?,
            queries: point.queries(),
            common: Common::Names,
            cores,
            compiled,
            expected: Expected::ONE_RECORD,
        })
    }
}

/// Returns the engine that filters run in, with a folder for compiled ones if given.
///
/// # Errors
///
/// If it cannot be created.
pub fn engine(compiled: Option<&Path>) -> Result<Engine, Box<dyn Error>> {
    let engine = Engine::printing_to(io::sink())?;
    Ok(match compiled {
        Some(folder) => engine.with_compiled_cache(CompiledCache::new(PrivateFolder::open(folder)?)?),
        None => engine,
    })
}

/// Queries a proxy that has the answers in its cache.
///
/// # Errors
///
/// If the proxy cannot be set up, or a reply is late or wrong.
pub fn measure(setup: &Setup, plan: Plan) -> Result<Hits, Box<dyn Error>> {
    let engine = engine(setup.compiled.as_deref())?;
    let build = || -> Result<Generation, config::Report> {
        let config = config::parse("the benchmark", &setup.config, Path::new("/"), BUILTINS)?;
        Generation::build(1, config, &engine, None, None)
    };
    let generation = Arc::new(build()?);
    // Like a reload: everything is compiled already.
    let begin = Instant::now();
    drop(build()?);
    let built = begin.elapsed();
    let shared = Shared::new(CACHE, None);

    let all = Barrier::new(setup.cores.len().max(1));
    let alone = |worker: usize| {
        let shared = match setup.common {
            Common::Nothing => Shared::new(CACHE, None),
            Common::Names | Common::Cache => Arc::clone(&shared),
        };
        let path = || HitPath::new(&shared, &generation, worker, setup, plan.batch);
        // The error crosses to the waiting thread as text.
        rounds(path, plan, setup.expected, &all).map_err(|error| error.to_string())
    };
    let took = if setup.cores.is_empty() {
        vec![alone(0)]
    } else {
        std::thread::scope(|scope| {
            let thread = |(worker, core): (usize, &usize)| {
                let (core, alone) = (*core, &alone);
                scope.spawn(move || pin(core).map_err(|error| error.to_string()).and(alone(worker)))
            };
            let threads: Vec<_> = setup.cores.iter().enumerate().map(thread).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a thread panicked".to_owned()))
            };
            threads.into_iter().map(join).collect()
        })
    };
    let took = took.into_iter().collect::<Result<Vec<_>, String>>()?;
    let slowest = |round: usize| took.iter().map(|rounds| rounds[round]).fold(0.0, f64::max);
    Ok(Hits {
        each: (0..plan.rounds as usize).map(slowest).fold(f64::MAX, f64::min),
        built,
    })
}

/// Returns the nanoseconds per query for each round; rounds begin when all threads are ready.
fn rounds<'a>(
    path: impl FnOnce() -> Result<HitPath<'a>, Box<dyn Error>>,
    plan: Plan,
    expected: Expected,
    all: &Barrier,
) -> Result<Vec<f64>, Box<dyn Error>> {
    LocalRuntime::new()?.block_on(async {
        let path = async {
            let mut path = path()?;
            // Fill the cache, and let buffers reach their final size.
            let once = path.queries.len().div_ceil(plan.batch);
            for round in 0..2 * once + 10 * NAMES {
                path.answer(plan.batch as u64);
                path.worker.drained().await;
                if round > once + 2 * NAMES && path.outbox.late == 0 {
                    break;
                }
                path.outbox.late = 0;
            }
            path.step = 1;
            Ok::<_, Box<dyn Error>>(path)
        };
        let path = path.await;
        // A thread that failed must not leave the others waiting.
        all.wait();
        let mut path = path?;
        let mut took = Vec::new();
        // Whole batches, and few reads of the clock.
        let batches = plan.count.div_ceil(plan.batch as u64);
        let part = match expected.deferred {
            true => plan.batch as u64,
            false => batches.div_ceil(16) * plan.batch as u64,
        };
        for _ in 0..plan.rounds {
            path.outbox.answered.set(0);
            path.outbox.late = 0;
            let mut asked = 0;
            let start = Instant::now();
            while asked < batches * plan.batch as u64 && start.elapsed() < plan.limit {
                let now = part.min(batches * plan.batch as u64 - asked);
                path.answer(now);
                asked += now;
                if expected.deferred {
                    path.worker.drained().await;
                }
            }
            took.push(start.elapsed().as_nanos() as f64 / asked as f64);
            let (answered, late) = (path.outbox.answered.get(), path.outbox.late);
            let replies = if expected.silent { 0 } else { asked };
            if answered != replies || (late > 0 && !expected.deferred) {
                return Err(format!(
                    "{answered} of {asked} queries were answered rightly, {late} of them late"
                )
                .into());
            }
        }
        Ok(took)
    })
}

/// Returns a step that visits every query, in an order unrelated to theirs. The cache is filled in another
/// order: entries that lie in memory in the order of queries would be found too easily.
fn step(count: usize) -> usize {
    let shares =
        |step: &usize| (2..=*step).any(|part| step.is_multiple_of(part) && count.is_multiple_of(part));
    (count * 5 / 8..count)
        .find(|step| !shares(step))
        .unwrap_or(1)
        .max(1)
}

/// Starts the worker with this number, and its instances of all filters.
///
/// # Errors
///
/// If a filter cannot be started.
pub fn begin(
    shared: &Arc<Shared>,
    generation: &Arc<Generation>,
    number: usize,
) -> Result<Rc<Worker>, Box<dyn Error>> {
    // A generation counts queries by listener, of those that exist when it starts.
    shared.server(ADDRESS.parse::<SocketAddr>()?);
    let instances = generation
        .filters
        .iter()
        .map(|loaded| loaded.filter.instantiate());
    let instances = instances.collect::<Result<Vec<_>, _>>()?;
    let live = Live::new(
        Arc::clone(generation),
        instances,
        None,
        Arc::clone(shared),
        number,
    );
    Ok(Worker::new(Arc::clone(shared), live))
}

/// A client of that worker over UDP, without EDNS.
///
/// # Errors
///
/// Never: the addresses are valid.
pub fn client(shared: &Shared, worker: &Worker) -> Result<Client, Box<dyn Error>> {
    Ok(Client {
        address: "127.0.0.2:40000".parse()?,
        server: shared.server(ADDRESS.parse::<SocketAddr>()?),
        transport: Transport::Udp,
        received: worker.now(),
        limit: LIMIT,
        keepalive: None,
    })
}

struct HitPath<'a> {
    worker: Rc<Worker>,
    batch: Batch,
    /// Queries per batch.
    size: usize,
    queries: &'a [Vec<u8>],
    /// The index of the next query.
    next: usize,
    /// The distance to the one after it.
    step: usize,
    outbox: Outbox,
    client: Client,
}

impl<'a> HitPath<'a> {
    fn new(
        shared: &Arc<Shared>,
        generation: &Arc<Generation>,
        worker: usize,
        setup: &'a Setup,
        size: usize,
    ) -> Result<HitPath<'a>, Box<dyn Error>> {
        let queries = setup.queries_of(worker);
        let worker = begin(shared, generation, worker)?;
        let client = client(shared, &worker)?;
        Ok(HitPath {
            worker,
            batch: Batch::default(),
            size,
            queries,
            next: 0,
            step: step(queries.len()),
            outbox: Outbox::new(setup.expected),
            client,
        })
    }

    /// Does what the UDP listener does, without the system calls.
    #[inline(never)]
    fn answer(&mut self, count: u64) {
        let mut asked = 0;
        while asked < count {
            self.client.received = self.worker.now();
            for _ in 0..self.size {
                let query = &self.queries[self.next];
                self.next += self.step;
                if self.next >= self.queries.len() {
                    self.next -= self.queries.len();
                }
                let admitted =
                    self.worker
                        .admit(&mut self.batch, query, self.client, &mut self.outbox.buffer);
                debug_assert!(matches!(admitted, Admission::Travelling));
            }
            self.worker.run(&mut self.batch, &mut self.outbox);
            self.worker.tell_if_many();
            asked += self.size as u64;
        }
    }
}

/// Discards replies, and counts them.
pub struct Outbox {
    buffer: [u8; LIMIT],
    expected: Expected,
    /// Replies as expected.
    pub answered: Rc<Cell<u64>>,
    /// Replies that were deferred.
    pub late: u64,
}

impl Outbox {
    /// An empty one.
    pub fn new(expected: Expected) -> Outbox {
        Outbox {
            buffer: [0; LIMIT],
            expected,
            answered: Rc::default(),
            late: 0,
        }
    }
}

impl Replies for Outbox {
    fn buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }

    fn reply(&mut self, _: usize, length: usize) {
        count(&self.answered, self.expected.met(&self.buffer[..length]));
    }

    fn defer(&mut self, _: usize) -> Box<dyn DeferredReply> {
        self.late += 1;
        Box::new(Late {
            expected: self.expected,
            answered: Rc::clone(&self.answered),
        })
    }
}

struct Late {
    expected: Expected,
    answered: Rc<Cell<u64>>,
}

impl DeferredReply for Late {
    fn send(self: Box<Self>, reply: &[u8]) {
        count(&self.answered, self.expected.met(reply));
    }
}

fn count(answered: &Cell<u64>, met: bool) {
    answered.set(answered.get() + u64::from(met));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn steps_come_to_each_query() {
        for count in [1_usize, 2, 3, 64, 100, 1000, 1001] {
            let step = step(count);
            let places: HashSet<_> = (0..count).map(|number| number * step % count).collect();
            assert_eq!(places.len(), count, "{step} of {count}");
            assert!(step <= count);
        }
    }
}
