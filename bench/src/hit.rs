//! A hit without a socket: what the proxy itself does for a query that its cache can answer, in one process and
//! one thread, from the octets of the query to those of the reply. What is left of a hit is the kernel's.
//!
//! Made to be counted by callgrind: [`answer`] is the part that counts, and only that.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dnsweir::config;
use dnsweir::filter::{Engine, Filter, Transport};
use dnsweir::serve::generation::{Generation, Live};
use dnsweir::serve::{Admission, Arrival, Batch, LateReply, Replies, Shared, Worker};
use tokio::task::LocalSet;

use crate::peers::{USE_FILTERS, filters};

/// Names that are asked for in turn, as in the workload `hot`.
const NAMES: usize = 64;

/// Room for a reply, which is what a client without EDNS takes.
const LIMIT: usize = 512;

/// Which filters see every query.
pub enum Filters {
    /// None.
    Bare,
    /// `log`, `rewrite` and `nodecache`, as they are: the last two let their verdicts be remembered.
    Remembered,
    /// The same, with modules of `rewrite` and `nodecache` from this folder, whose verdicts are not.
    Called(std::path::PathBuf),
}

/// What was measured.
pub struct Hits {
    /// How many.
    pub count: u64,
    /// What they took together, without what was done before.
    pub took: Duration,
}

/// Asks `count` queries, `batch` at once, of a proxy that has the answers in its cache.
///
/// # Errors
///
/// When the proxy cannot be set up, or does not answer a query at once and rightly.
pub fn measure(which: &Filters, count: u64, batch: usize) -> Result<Hits, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut path = HitPath::new(which, batch)?;
        // Everything into the cache, and whatever grows to its size.
        for round in 0..1000 {
            path.answer(batch as u64);
            path.worker.drained().await;
            if round > 2 * NAMES && path.outbox.late == 0 {
                break;
            }
            path.outbox.late = 0;
        }
        path.outbox.answered = 0;
        let start = Instant::now();
        path.answer(count);
        let took = start.elapsed();
        let asked = count.div_ceil(batch as u64) * batch as u64;
        if (path.outbox.answered, path.outbox.late) != (asked, 0) {
            let answered = path.outbox.answered;
            return Err(format!("{answered} of {asked} queries were answered from the cache").into());
        }
        Ok(Hits { count: asked, took })
    })
}

struct HitPath {
    worker: Rc<Worker>,
    batch: Batch,
    /// Queries of one batch.
    size: usize,
    queries: Vec<Vec<u8>>,
    /// The next of them.
    next: usize,
    outbox: Outbox,
    arrival: Arrival,
}

impl HitPath {
    fn new(which: &Filters, size: usize) -> Result<HitPath, Box<dyn Error>> {
        let module = |folder: &Path, name: &str| folder.join(name).display().to_string();
        let (filters, stages) = match which {
            Filters::Bare => (String::new(), ""),
            Filters::Remembered => (filters("builtin:rewrite", "builtin:nodecache"), USE_FILTERS),
            Filters::Called(folder) => (
                filters(&module(folder, "rewrite.wasm"), &module(folder, "nodecache.wasm")),
                USE_FILTERS,
            ),
        };
        let address: SocketAddr = "127.0.0.1:53".parse()?;
        // Misses are answered by a filter, so that no upstream is needed.
        let mut hosts = String::new();
        let mut queries = Vec::new();
        for index in 0..NAMES {
            writeln!(hosts, "host \"n{index}.bench.example.net\" \"192.0.2.1\"")?;
            let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in [&format!("n{index}"), "bench", "example", "net"] {
                query.push(label.len() as u8);
                query.extend(label.as_bytes());
            }
            query.extend([0, 0, 1, 0, 1]);
            queries.push(query);
        }
        let text = format!(
            "listen \"{address}\"; workers 1; {filters}\n\
             filter \"hosts\" {{ module \"builtin:hosts\"; limits time=\"1s\"; config {{ {hosts} }} }}\n\
             zone \".\" {{ {stages}\n cache; use \"hosts\"; forward \"192.0.2.53\" }}"
        );
        let builtins: Vec<_> = dnsweir::filter::BUILTINS.iter().map(|(name, _)| *name).collect();
        let config = config::parse("the benchmark", &text, Path::new("/"), &builtins)?;
        let engine = Engine::printing_to(io::sink())?;
        let generation = Arc::new(Generation::build(1, config, &engine, &Default::default())?);
        let instances = generation.filters.iter().map(Filter::instantiate);
        let instances = instances.collect::<Result<Vec<_>, _>>()?;
        let shared = Shared::new(32 << 20, None);
        let server = shared.server(address);
        let live = Live::new(generation, instances, Arc::clone(&shared), 0);
        let worker = Worker::new(shared, live);
        let arrival = Arrival {
            client: "127.0.0.2:40000".parse()?,
            server,
            transport: Transport::Udp,
            received: worker.now(),
            limit: LIMIT,
            keepalive: None,
        };
        Ok(HitPath {
            worker,
            batch: Batch::default(),
            size,
            queries,
            next: 0,
            outbox: Outbox {
                buffer: [0; LIMIT],
                answered: 0,
                late: 0,
            },
            arrival,
        })
    }

    /// As the UDP listener does it, but for the system calls.
    #[inline(never)]
    fn answer(&mut self, count: u64) {
        let mut asked = 0;
        while asked < count {
            self.arrival.received = self.worker.now();
            for _ in 0..self.size {
                let query = &self.queries[self.next % NAMES];
                self.next += 1;
                let admitted =
                    self.worker
                        .admit(&mut self.batch, query, self.arrival, &mut self.outbox.buffer);
                debug_assert!(matches!(admitted, Admission::Travelling));
            }
            self.worker.run(&mut self.batch, &mut self.outbox);
            self.worker.tell_if_many();
            asked += self.size as u64;
        }
    }
}

/// Replies that go nowhere.
struct Outbox {
    buffer: [u8; LIMIT],
    /// With one record, at once.
    answered: u64,
    /// Not at once.
    late: u64,
}

impl Replies for Outbox {
    fn reply(&mut self, _: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let length = write(&mut self.buffer);
        let one_record = length > 12 && self.buffer[3] & 0xf == 0 && self.buffer[6..8] == [0, 1];
        self.answered += u64::from(one_record);
    }

    fn later(&mut self, _: usize) -> Box<dyn LateReply> {
        self.late += 1;
        Box::new(Nobody)
    }
}

struct Nobody;

impl LateReply for Nobody {
    fn send(self: Box<Self>, _: &[u8]) {}
}
