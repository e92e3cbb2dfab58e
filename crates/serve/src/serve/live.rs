//! A worker's part of a generation.

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

use super::asked::Client;
use super::counters::ZoneCounters;
use super::gate::{Gate, Ledger, Refusal};
use super::generation::{Generation, Stage};
use super::request::Request;
use super::stores::Shared;
use super::zones::{Asker, ZoneMatch};

/// A worker's part of a generation: filter instances, upstream sockets, counters.
pub struct Live {
    /// The part that all workers share.
    pub generation: Arc<Generation>,
    /// One for each of [`Generation::filters`]. The previous generation may still use it for queries in
    /// progress.
    pub instances: Vec<Rc<RefCell<Instance>>>,
    /// Events since the filter was last called; one for each of [`Generation::filters`].
    pub events: Vec<RefCell<filter::Batch<filter::Event>>>,
    /// One for each of [`Generation::sources`].
    pub sources: Vec<WorkerSource>,
    shared: Arc<Shared>,
    /// The number of this worker.
    worker: usize,
    /// All listeners there have ever been.
    listeners: Vec<Listener>,
    /// Index of each pipeline's first zone among all zones.
    offsets: Vec<usize>,
}

/// A listener, and what a worker counts there.
struct Listener {
    /// Its name in metrics.
    name: Arc<str>,
    address: Option<SocketAddr>,
    /// `None` if every client may ask there without a limit.
    gate: Option<Gate>,
    /// Counters of all zones, followed by those of queries that no zone owns; looked up in the table on first
    /// use.
    counters: Box<[OnceCell<Arc<ZoneCounters>>]>,
}

impl Live {
    /// Puts a generation into service on the calling worker. `instances` has one for each filter that
    /// `previous` does not have, in order; they were created in the background, so that nothing can fail
    /// here. Every listener has called [`Shared::server`] before. Instances of filters that both generations
    /// share are kept, and so are the sockets for sources that both share.
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
        let listeners = servers.into_iter().map(|name| {
            let address: Option<SocketAddr> = name.parse().ok();
            Listener {
                gate: address.and_then(|address| Gate::of_listener(&generation.config, address)),
                name,
                address,
                counters: vec![OnceCell::new(); total + 1].into(),
            }
        });
        Live {
            listeners: listeners.collect(),
            generation,
            instances,
            events,
            sources,
            shared,
            worker,
            offsets,
        }
    }

    /// The gate of a listener; `None` if every client may ask there without a limit.
    #[inline]
    pub fn gate(&self, server: u16) -> Option<&Gate> {
        self.listeners.get(usize::from(server))?.gate.as_ref()
    }

    /// The owner of a query's name, on the listener that received it.
    // Inlined like `Zones::find`.
    #[inline(always)]
    pub fn owner(&self, request: &Request) -> Option<ZoneMatch> {
        let zones = &self.generation.zones;
        zones.find(request.name.as_bytes(), || self.asker(request))
    }

    /// The zone that answers a query: the owner of its name, or for DS, which belongs to the parent, of the
    /// name above.
    pub(crate) fn answerer(&self, request: &Request) -> Option<ZoneMatch> {
        match request.qtype {
            rtype::DS => {
                let zones = &self.generation.zones;
                zones.find_above_cut(request.name.as_bytes(), &self.asker(request))
            }
            _ => self.owner(request),
        }
    }

    /// Whether all clients get the same answer to this internal query.
    pub(crate) fn answers_alike(&self, request: &Request) -> bool {
        let zones = &self.generation.zones;
        let (name, qtype) = request.first_question();
        self.generation.pipelines[request.pipeline].answers_alike
            && !zones.depends_on_asker(name.as_bytes(), qtype)
    }

    /// Whether a source above the cache may answer clients differently for the name of an internal query. What
    /// filters decide there does not count.
    pub(crate) fn tells_clients_apart(&self, request: &Request) -> bool {
        let pipeline = &self.generation.pipelines[request.pipeline];
        let mut above = pipeline.stages.iter().take(pipeline.cache_at);
        above.any(|stage| match stage {
            Stage::Source(index) => {
                let source = self.generation.sources[*index].upkeep();
                source.tells_clients_apart(request.name.as_bytes())
            }
            Stage::Filter(_) | Stage::Cache(_) => false,
        })
    }

    /// The rejection of a query by `clients` in a pipeline, if it is rejected there.
    // Inlined like `owner`.
    #[inline(always)]
    pub(crate) fn refusal(&self, request: &Request, pipeline: usize, ledger: &Ledger) -> Option<Refusal> {
        let gate = self.generation.pipelines[pipeline].gate.as_ref()?;
        gate.refusal(ledger, &request.asked.client)
    }

    /// Whether `clients` of the zone that answers this internal query turn its client away.
    pub(crate) fn turns_away(&self, request: &Request, ledger: &Ledger) -> bool {
        match self.answerer(request) {
            Some(ZoneMatch::Pipeline { pipeline, .. }) => self.refusal(request, pipeline, ledger).is_some(),
            Some(ZoneMatch::Special(_)) | None => false,
        }
    }

    #[inline(always)]
    fn asker(&self, request: &Request) -> Asker {
        let client = &request.asked.client;
        let listener = self.listeners.get(usize::from(client.server));
        Asker {
            listener: listener.and_then(|listener| listener.address),
            client: client.address.ip(),
        }
    }

    /// The source of the pipeline for a DS query that has reached source `index`. If that has the zone of
    /// exactly this name, and another source the zone that delegates it, the latter: DS is there (RFC 4035
    /// section 3.1.4.1).
    #[cold]
    #[inline(never)]
    fn above_cut(&self, request: &Request, index: usize) -> usize {
        let sources = &self.generation.sources;
        let name = request.name.as_bytes();
        let mut stages = self.generation.pipelines[request.pipeline].stages.iter();
        let mut parent = || {
            stages.find_map(|stage| match stage {
                Stage::Source(index) => Some(*index).filter(|index| sources[*index].has_zone_above(name)),
                Stage::Filter(_) | Stage::Cache(_) => None,
            })
        };
        match sources[index].has_zone(name) {
            true => parent().unwrap_or(index),
            false => index,
        }
    }

    /// The source for a query that has reached source `index`: filters may have set another, and DS may
    /// belong to another.
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

    /// Hashes questions, for all tables keyed by them.
    pub(crate) fn hasher(&self) -> &KeyHasher {
        &self.shared.hasher
    }

    /// The key under which a filter with this interest remembers its verdict on a query; `zone` is the
    /// filter's index of the zone.
    // Runs for every hit; without the hint, the compiler does not inline it.
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

    /// The hash of that key.
    #[inline(always)]
    pub(crate) fn memo_hash(&self, request: &Request, interest: &Interest) -> u64 {
        match interest.details.identity() {
            true => request.hash ^ filter::memo_salt(request.asked.identity.number()),
            false => request.hash,
        }
    }

    /// Size in bytes up to which a response from this stage is useful: above the cache, what the client
    /// accepts.
    pub fn room(&self, request: &Request, stage: usize) -> usize {
        match stage < self.generation.pipelines[request.pipeline].cache_at {
            true => request.limit(),
            false => MESSAGE_MAXIMUM,
        }
    }

    /// The counters of the zone that owns a query.
    // Runs once or twice for every query; without the hint, the compiler does not inline it.
    #[inline(always)]
    pub fn counters(&self, request: &Request) -> &ZoneCounters {
        let at = self.offsets[request.pipeline] + request.zone;
        let listener = self.listener(request.asked.client.server);
        listener.counters[at].get_or_init(|| {
            let zone = self.generation.pipelines[request.pipeline].zones[request.zone].to_string();
            self.find_counters(listener, zone.into())
        })
    }

    /// Identifies the client if the configuration asks for it, and counts the query.
    // Runs for every hit; without the hint, the compiler does not inline it.
    #[inline(always)]
    pub fn enter(&self, request: &mut Request) {
        if let Some(pods) = &self.generation.pods {
            identify(pods, &self.generation.config.listen.addresses, request);
        }
        self.counters(request)
            .request(&request.asked.client, request.qtype);
    }

    /// Counts a query that enters no pipeline; returns the counters for its outcome.
    pub(crate) fn enter_outside(&self, client: &Client, qtype: u16) -> &ZoneCounters {
        let counters = self.counters_outside(client.server);
        counters.request(client, qtype);
        counters
    }

    /// The name of a listener in metrics.
    pub fn server(&self, server: u16) -> &str {
        let listener = self.listeners.get(usize::from(server));
        listener.map_or("", |listener| &listener.name)
    }

    /// The counters of queries that no zone owns.
    pub(crate) fn counters_outside(&self, server: u16) -> &ZoneCounters {
        let listener = self.listener(server);
        let last = listener.counters.len() - 1;
        listener.counters[last].get_or_init(|| self.find_counters(listener, "dropped".into()))
    }

    #[inline]
    fn listener(&self, server: u16) -> &Listener {
        &self.listeners[usize::from(server).min(self.listeners.len() - 1)]
    }

    #[cold]
    fn find_counters(&self, listener: &Listener, zone: Arc<str>) -> Arc<ZoneCounters> {
        self.shared.counters.get(&listener.name, &zone, self.worker)
    }

    /// A stage of a query's pipeline.
    #[inline]
    pub(crate) fn stage(&self, request: &Request, at: usize) -> Option<&Stage> {
        self.generation.pipelines[request.pipeline].stages.get(at)
    }

    /// Counts a message edited by the filter at a stage.
    pub(crate) fn count_edit(&self, request: &Request, stage: usize, took: Duration) {
        if let Some(Stage::Filter(used)) = self.stage(request, stage) {
            let counters = self.generation.filters[used.filter].filter.counters();
            counters.edits.fetch_add(1, Relaxed);
            counters
                .edit_nanoseconds
                .fetch_add(took.as_nanos() as u64, Relaxed);
        }
    }

    /// Whether a name is a loop probe that one of the sources sent, on whichever listener it arrives.
    pub(crate) fn is_own_probe(&self, name: &[u8]) -> bool {
        let mut sources = self.generation.sources.iter();
        sources.any(|source| source.upkeep().is_own_probe(name))
    }

    /// The question to a source for a query.
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
            identity: &request.asked.identity,
            zone: &self.generation.pipelines[request.pipeline].zones[request.zone],
            zones: &self.generation.zones.lengths,
            tap: self.generation.tap.as_ref(),
            direct: request.depth == 0,
            traced: request.trace.is_some(),
        }
    }
}

/// Identifies the client of a query, and counts the query.
#[cold]
#[inline(never)]
fn identify(pods: &NodePods, own: &[SocketAddr], request: &mut Request) {
    request.asked.identity = pods.identify(request.asked.client.address.ip(), own);
    pods.count(&request.asked.identity);
}

/// Returns an instance for each filter: the one that the worker has already, or else the next of those that
/// were made.
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
