//! What a worker has of a generation for itself.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::cache::KeyHasher;
use crate::dns::{MESSAGE_MAXIMUM, rtype};
use crate::filter::{self, Instance, Interest};
use crate::identity::NodePods;
use crate::source::WorkerSource;
use dnsweir_answer::Question;
use dnsweir_answer::identity::Identity;

use super::counters::ZoneCounters;
use super::gate::Gate;
use super::generation::{Generation, Stage};
use super::request::Request;
use super::stores::Shared;
use super::zones::{Asker, ZoneMatch};

/// What a worker needs of a generation for itself: filter instances, upstream sockets, counters.
pub struct Live {
    /// The shared half.
    pub generation: Arc<Generation>,
    /// One for each of [`Generation::filters`]. The generation before may still use it for what is under way.
    pub instances: Vec<Rc<RefCell<Instance>>>,
    /// What happened since the filter was last told; one for each of [`Generation::filters`].
    pub events: Vec<RefCell<filter::Batch<filter::Event>>>,
    /// One for each of [`Generation::sources`].
    pub sources: Vec<WorkerSource>,
    counters: Counters,
    /// The address of each listener there has ever been.
    listeners: Vec<Option<SocketAddr>>,
    /// One for each of them.
    gates: Vec<Option<Gate>>,
}

/// This worker's counters by listener and zone, found in the table when first used.
struct Counters {
    shared: Arc<Shared>,
    worker: usize,
    servers: Vec<Arc<str>>,
    /// Of each pipeline's first zone.
    offsets: Vec<usize>,
    /// For each listener all zones, and behind them what belongs to none.
    cells: Vec<OnceCell<Arc<ZoneCounters>>>,
    /// How many belong to one listener.
    stride: usize,
}

impl Live {
    /// Brings a generation to life on the calling worker. `instances`, one for each filter that the `previous` one does not
    /// have, in order, were made aside, so that nothing can fail here any more. Every listener has asked for its
    /// [`Shared::server`] before. Instances of filters that both share go on, and so does what the worker has open for
    /// sources that both share.
    pub fn new(
        generation: Arc<Generation>,
        instances: Vec<Instance>,
        previous: Option<&Live>,
        shared: Arc<Shared>,
        worker: usize,
    ) -> Live {
        let instances = instances_of(&generation, instances, previous);
        let events = instances.iter().map(|_| RefCell::default()).collect();
        let known = previous.iter().flat_map(|live| &live.sources);
        let known: HashMap<_, _> = known
            .map(|source| (Arc::as_ptr(source.shared()), source))
            .collect();
        let sources = generation.sources.iter().map(|source| {
            let same = known.get(&Arc::as_ptr(source)).copied().cloned();
            same.unwrap_or_else(|| WorkerSource::new(source, &shared.upstream_sockets))
        });
        let sources = sources.collect();
        let mut total = 0;
        let offsets = generation.pipelines.iter().map(|pipeline| {
            total += pipeline.zones.len();
            total - pipeline.zones.len()
        });
        let offsets = offsets.collect();
        let servers = shared.servers.lock().clone();
        let listeners: Vec<Option<SocketAddr>> = servers.iter().map(|server| server.parse().ok()).collect();
        let gates = listeners.iter();
        let gates = gates.map(|address| Gate::of_listener(&generation.config, (*address)?));
        let gates = gates.collect();
        let stride = total + 1;
        let cells = vec![OnceCell::new(); servers.len() * stride];
        let counters = Counters {
            shared,
            worker,
            servers,
            offsets,
            cells,
            stride,
        };
        Live {
            generation,
            instances,
            events,
            sources,
            counters,
            listeners,
            gates,
        }
    }

    /// What stands between a listener and those who may not ask there; none where everybody may.
    #[inline]
    pub fn gate(&self, server: u16) -> Option<&Gate> {
        self.gates.get(usize::from(server))?.as_ref()
    }

    /// The owner of a query's name, on the listener that it came to.
    // As `Zones::find`.
    #[inline(always)]
    pub fn owner(&self, request: &Request) -> Option<ZoneMatch> {
        let zones = &self.generation.zones;
        zones.find(request.name.as_bytes(), || self.asker(request))
    }

    /// Who answers a query: the owner of its name, or of the name above if it is about what stands there.
    pub(crate) fn answerer(&self, request: &Request) -> Option<ZoneMatch> {
        match request.qtype {
            rtype::DS => {
                let zones = &self.generation.zones;
                zones.find_above_cut(request.name.as_bytes(), &self.asker(request))
            }
            _ => self.owner(request),
        }
    }

    #[inline(always)]
    fn asker(&self, request: &Request) -> Asker {
        Asker {
            listener: self
                .listeners
                .get(usize::from(request.asked.client.server))
                .copied()
                .flatten(),
            client: request.asked.client.address.ip(),
        }
    }

    /// The source of its pipeline that a query for DS is for, which has come to the one with this index: if that has the zone of this
    /// very name, and another one that where it is delegated, the latter. DS stands there (RFC 4035 section 3.1.4.1).
    #[cold]
    #[inline(never)]
    fn above_cut(&self, request: &Request, index: usize) -> usize {
        let sources = &self.generation.sources;
        let name = request.name.as_bytes();
        let mut stages = self.generation.pipelines[request.pipeline].stages.iter();
        let mut parent = || {
            stages.find_map(|stage| match stage {
                Stage::Source(index) => Some(*index).filter(|index| sources[*index].has_zone_above(name)),
                Stage::Filter { .. } | Stage::Cache(_) => None,
            })
        };
        match sources[index].has_zone(name) {
            true => parent().unwrap_or(index),
            false => index,
        }
    }

    /// The source that a query is for which has come to the one with this index: the one that filters have said, or the one that has
    /// its type.
    pub(crate) fn source_of(&self, request: &Request, index: usize) -> usize {
        let index = match request.routed {
            true => request.route().0.unwrap_or(index),
            false => index,
        };
        match request.qtype {
            rtype::DS => self.above_cut(request, index),
            _ => index,
        }
    }

    /// Hashes questions, for every table that is keyed by them.
    pub(crate) fn hasher(&self) -> &KeyHasher {
        &self.counters.shared.hasher
    }

    /// Who sent a query, if that is known.
    pub fn identity<'a>(&self, request: &'a Request) -> &'a Identity {
        // Where nobody is told apart, what a request has is that of the query before.
        match self.generation.pods {
            Some(_) => &request.asked.identity,
            None => &Identity::Unknown,
        }
    }

    /// What verdicts about a query are remembered by: of a filter with this interest, and with its index of the zone.
    // For every hit; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub(crate) fn memo_key<'a>(
        &self,
        request: &'a Request,
        interest: &Interest,
        zone: u16,
    ) -> filter::Key<'a> {
        filter::Key {
            hash: self.memo_hash(request, interest),
            name: request.name.as_bytes(),
            qtype: request.qtype,
            qclass: request.qclass,
            zone,
        }
    }

    /// The hash of that.
    #[inline(always)]
    pub(crate) fn memo_hash(&self, request: &Request, interest: &Interest) -> u64 {
        match interest.details.identity() {
            true => request.hash ^ filter::memo_salt(self.identity(request).number()),
            false => request.hash,
        }
    }

    /// Octets of a response that are of use to whoever gets it from this stage: above the cache, what the client takes.
    pub fn room(&self, request: &Request, stage: usize) -> usize {
        match stage < self.generation.pipelines[request.pipeline].cache_at {
            true => request.limit(),
            false => MESSAGE_MAXIMUM,
        }
    }

    /// The counters of the zone that owns a query.
    // Once or twice for every query; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub fn counters(&self, request: &Request) -> &ZoneCounters {
        let at = self.counters.offsets[request.pipeline] + request.zone;
        self.counters.get(request.asked.client.server, at, || {
            Arc::from(self.generation.pipelines[request.pipeline].zones[request.zone].to_string())
        })
    }

    /// Finds out who sent a query, if anybody wants to know, and gives the counters of the zone that owns it.
    // For every hit; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub fn enter(&self, request: &mut Request) -> &ZoneCounters {
        if let Some(pods) = &self.generation.pods {
            identify(pods, request);
        }
        self.counters(request)
    }

    /// What the metrics call a listener.
    pub fn server(&self, server: u16) -> &str {
        self.counters
            .servers
            .get(usize::from(server))
            .map_or("", |server| server)
    }

    /// The counters of what no zone owns.
    pub(crate) fn counters_outside(&self, server: u16) -> &ZoneCounters {
        let at = self.counters.stride - 1;
        self.counters.get(server, at, || Arc::from("dropped"))
    }

    /// Counts a query that the filter at its stage drops.
    pub(crate) fn count_drop(&self, request: &Request, reason: &str) {
        let stages = &self.generation.pipelines[request.pipeline].stages;
        if let Some(Stage::Filter { filter, .. }) = stages.get(request.stage) {
            self.generation.filters[*filter]
                .filter
                .counters()
                .drops
                .add(reason);
        }
    }

    /// Counts an edit of a message by the filter at a stage.
    pub(crate) fn count_edit(&self, request: &Request, stage: usize, took: Duration) {
        let stages = &self.generation.pipelines[request.pipeline].stages;
        if let Some(Stage::Filter { filter, .. }) = stages.get(stage) {
            let counters = self.generation.filters[*filter].filter.counters();
            counters.edits.fetch_add(1, Relaxed);
            counters
                .edit_nanoseconds
                .fetch_add(took.as_nanos() as u64, Relaxed);
        }
    }

    /// Whether a name is one that a source sent out to see whether it comes back, to whatever listener.
    pub(crate) fn is_own_probe(&self, name: &[u8]) -> bool {
        let mut sources = self.generation.sources.iter();
        sources.any(|source| source.is_own_probe(name))
    }

    /// What a source is asked for a query.
    pub fn question<'a>(&'a self, request: &'a Request) -> Question<'a> {
        Question {
            name: request.name.as_bytes(),
            qtype: request.qtype,
            qclass: request.qclass,
            flags: request.asked.flags,
            dnssec_ok: request.dnssec_ok(),
            subnet: request.route().1,
            signed: request.asked.signed.as_deref(),
            room: self.room(request, request.stage),
            client: request.asked.client.address.ip(),
            zone: &self.generation.pipelines[request.pipeline].zones[request.zone],
            zones: &self.generation.zones.lengths,
            tap: self.generation.tap.as_ref(),
            direct: request.depth == 0,
            traced: request.trace.is_some(),
        }
    }
}

/// Finds out who sent a query, and counts it.
#[cold]
#[inline(never)]
fn identify(pods: &NodePods, request: &mut Request) {
    request.asked.identity = pods.identify(request.asked.client.address.ip());
    pods.count(&request.asked.identity);
    if let Some(trace) = &request.trace {
        trace.identify(request.asked.identity.to_string());
    }
}

/// An instance for each filter: the one that the worker has already, or else the next of those that were made.
fn instances_of(
    generation: &Generation,
    made: Vec<Instance>,
    previous: Option<&Live>,
) -> Vec<Rc<RefCell<Instance>>> {
    let mut made = made.into_iter().map(|instance| Rc::new(RefCell::new(instance)));
    let instances = generation.filters.iter().map(|loaded| {
        let known = previous.and_then(|live| Some((live, live.generation.index_of(&loaded.filter)?)));
        match known {
            Some((live, index)) => Some(Rc::clone(&live.instances[index])),
            None => made.next(),
        }
    });
    let instances: Option<Vec<_>> = instances.collect();
    let Some(instances) = instances else {
        unreachable!("an instance was made of each filter that no worker has")
    };
    instances
}

impl Counters {
    fn get(&self, server: u16, at: usize, zone: impl FnOnce() -> Arc<str>) -> &ZoneCounters {
        let server = usize::from(server).min(self.servers.len() - 1);
        self.cells[server * self.stride + at].get_or_init(|| {
            self.shared
                .counters
                .get(&self.servers[server], &zone(), self.worker)
        })
    }
}
