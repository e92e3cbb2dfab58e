//! One immutable, compiled configuration, and a worker's living half of it.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use crate::config::{self, Config, Diagnostic, Report};
use crate::dns::Origin;
use crate::dns::edns;
use crate::dns::name::Name;
use crate::filter::{self, ConfigError, Engine, Filter, Instance, LoadError, Place};
use crate::source::forward::{Forward, Forwarder};

use super::counters::ZoneCounters;
use super::events::Sent;
use super::gate::Gate;
use super::request::Request;
use super::response::Response;
use super::zones::Zones;
use super::{Clocks, Shared};

/// A configuration whose filters are compiled and configured, shared by all workers.
pub struct Generation {
    /// Counts up from 1 with every reload that succeeded.
    pub number: u64,
    /// What the operator wrote.
    pub config: Config,
    /// Which pipeline owns a name.
    pub zones: Zones,
    /// One for each `zone` node.
    pub pipelines: Vec<Pipeline>,
    /// One for each `filter` node.
    pub filters: Vec<Arc<Filter>>,
    /// One for each `forward` node.
    pub forwarders: Vec<Arc<Forwarder>>,
    /// Fingerprints of the `forward` nodes: those that agree in it ask the same upstreams in the same way, and share
    /// what is under way.
    pub sources: Vec<u64>,
}

/// The stages of a zone.
pub struct Pipeline {
    /// The zones that share it.
    pub zones: Vec<Name>,
    /// In the order they are written.
    pub stages: Vec<Stage>,
    /// Fingerprint of `cache` and what is below it: pipelines that agree in it share cached answers,
    /// over reloads, too.
    pub partition: u64,
    /// Filters that hear what happened.
    pub event_filters: Vec<EventFilter>,
    /// Whether a filter looks at responses.
    pub looks_at_responses: bool,
    /// Who may ask.
    pub gate: Option<Gate>,
    /// Whether upstreams are asked for ANY.
    pub asks_any: bool,
}

/// A filter with an events phase, in a pipeline.
pub struct EventFilter {
    /// Index into [`Generation::filters`].
    pub filter: usize,
    /// What is added to the index of the zone within the pipeline to get the filter's.
    pub zone_base: usize,
}

/// One stage, ready to run.
pub enum Stage {
    /// `use`
    Filter {
        /// Index into [`Generation::filters`].
        filter: usize,
        /// What is added to the index of the zone within the pipeline to get the filter's.
        zone_base: usize,
    },
    /// `cache`
    Cache(config::Cache),
    /// `forward`: index into [`Generation::forwarders`].
    Forward(usize),
}

impl Generation {
    /// Compiles and configures everything, or says in the operator's file what cannot be.
    ///
    /// Of the `previous` one stays what is the same: filters that keep their name go on counting where they left
    /// off, and `forward` stages that were not touched keep what they know of their upstreams.
    pub fn build(
        number: u64,
        config: Config,
        engine: &Engine,
        previous: Option<&Generation>,
    ) -> Result<Generation, Report> {
        let counters = previous.map(Generation::filter_counters).unwrap_or_default();
        let mut zones_of_filter: Vec<Vec<String>> = vec![Vec::new(); config.filters.len()];
        let fingerprints: Vec<u64> = config.filters.iter().map(fingerprint).collect();
        let mut pipelines = Vec::new();
        let (mut forwarders, mut sources) = (Vec::new(), Vec::new());
        for zone in &config.zones {
            let zones: Vec<Name> = zone
                .names
                .iter()
                .filter_map(|name| Name::parse(name).ok())
                .collect();
            let stages = zone.stages.iter().map(|stage| match stage {
                config::Stage::Filter(filter) => {
                    let zones = &mut zones_of_filter[*filter];
                    let zone_base = zones.len();
                    zones.extend(zone.names.iter().cloned());
                    Stage::Filter {
                        filter: *filter,
                        zone_base,
                    }
                }
                config::Stage::Cache(cache) => Stage::Cache(cache.clone()),
                config::Stage::Forward(forward) => {
                    let zone = zones.first().unwrap_or(&Name::ROOT);
                    let known = previous.map_or(&[][..], |previous| &previous.forwarders);
                    let same = known.iter().find(|known| known.is_for(forward, zone));
                    forwarders.push(match same {
                        Some(same) => Arc::clone(same),
                        None => Forwarder::new(forward, zone, config.workers),
                    });
                    sources.push(source(forward));
                    Stage::Forward(forwarders.len() - 1)
                }
            });
            let stages = stages.collect();
            pipelines.push(Pipeline {
                zones,
                stages,
                partition: partition(zone, &fingerprints),
                event_filters: Vec::new(),
                looks_at_responses: false,
                gate: zone.clients.as_ref().map(Gate::of_zone),
                asks_any: asks_any(zone),
            });
        }

        let mut filters = Vec::new();
        let mut mistakes = Vec::new();
        for (filter, zones) in config.filters.iter().zip(&zones_of_filter) {
            let counters = counters.get(&filter.name).cloned().unwrap_or_default();
            match Filter::load(engine, filter, filter::builtin, zones, counters) {
                Ok(filter) => filters.push(filter),
                Err(error) => mistakes.extend(diagnostics(filter, error)),
            }
        }
        if !mistakes.is_empty() {
            return Err(config.report(mistakes));
        }
        for pipeline in &mut pipelines {
            for stage in &pipeline.stages {
                if let Stage::Filter { filter, zone_base } = *stage {
                    let interest = filters[filter].interest();
                    pipeline.looks_at_responses |= interest.responses;
                    if interest.events {
                        pipeline.event_filters.push(EventFilter { filter, zone_base });
                    }
                }
            }
        }
        let zones = Zones::new(
            pipelines.iter().map(|pipeline| &pipeline.zones[..]),
            config.local_zones,
        );
        Ok(Generation {
            number,
            config,
            zones,
            pipelines,
            filters,
            forwarders,
            sources,
        })
    }

    /// The filters' counters by name, for the next generation to go on with.
    fn filter_counters(&self) -> HashMap<String, Arc<filter::Counters>> {
        let counters = self
            .filters
            .iter()
            .map(|filter| (filter.name().to_string(), Arc::clone(filter.counters())));
        counters.collect()
    }
}

/// What a worker needs of a generation for itself: filter instances, upstream sockets, counters.
pub struct Live {
    /// The shared half.
    pub generation: Arc<Generation>,
    /// One for each of [`Generation::filters`].
    pub instances: Vec<RefCell<Instance>>,
    /// What happened since the filter was last told; one for each of [`Generation::filters`].
    pub events: Vec<RefCell<filter::Batch<filter::Event>>>,
    /// One for each of [`Generation::forwarders`].
    pub forwards: Vec<Rc<Forward>>,
    counters: Counters,
    /// One for each listener there has ever been.
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
    /// Brings a generation to life on the calling worker. `instances` were made aside, so that nothing
    /// can fail here any more. Every listener has asked for its [`Shared::server`] before. What the worker has open
    /// to the upstreams of stages that both share is taken over from the `previous` one.
    pub fn new(
        generation: Arc<Generation>,
        instances: Vec<Instance>,
        previous: Option<&Live>,
        shared: Arc<Shared>,
        worker: usize,
    ) -> Live {
        let instances: Vec<_> = instances.into_iter().map(RefCell::new).collect();
        let events = instances.iter().map(|_| RefCell::default()).collect();
        let forwards = generation
            .forwarders
            .iter()
            .map(|forwarder| {
                let mut known = previous.iter().flat_map(|live| &live.forwards);
                match known.find(|known| Arc::ptr_eq(known.shared(), forwarder)) {
                    Some(known) => Rc::clone(known),
                    None => Forward::new(Arc::clone(forwarder), &shared.upstream_sockets),
                }
            })
            .collect();
        let mut total = 0;
        let offsets = generation.pipelines.iter().map(|pipeline| {
            total += pipeline.zones.len();
            total - pipeline.zones.len()
        });
        let offsets = offsets.collect();
        let servers = shared.servers.lock().clone();
        let gates = servers.iter().map(|server| {
            let address = server.parse::<SocketAddr>().ok()?;
            Gate::of_listener(&generation.config, address)
        });
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
            forwards,
            counters,
            gates,
        }
    }

    /// What stands between a listener and those who may not ask there; none where everybody may.
    #[inline]
    pub fn gate(&self, server: u16) -> Option<&Gate> {
        self.gates.get(usize::from(server))?.as_ref()
    }

    /// The counters of the zone that owns a query.
    // Once or twice for every query; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub fn counters(&self, request: &Request) -> &ZoneCounters {
        let at = self.counters.offsets[request.pipeline] + request.zone;
        self.counters.get(request.client.server, at, || {
            Arc::from(self.generation.pipelines[request.pipeline].zones[request.zone].to_string())
        })
    }

    /// The counters of what no zone owns.
    pub fn counters_outside(&self, server: u16) -> &ZoneCounters {
        let at = self.counters.stride - 1;
        self.counters.get(server, at, || Arc::from("dropped"))
    }

    /// Whether a name is one that the forwarder of the pipeline that owns it sent out to see whether it comes
    /// back. It was sent below the pipeline's own zone: no other forwarder has to be asked.
    pub fn is_own_probe(&self, pipeline: usize, name: &[u8]) -> bool {
        let mut stages = self.generation.pipelines[pipeline].stages.iter();
        stages.any(|stage| match stage {
            Stage::Forward(index) => self.generation.forwarders[*index].loop_found(name),
            Stage::Filter { .. } | Stage::Cache(_) => false,
        })
    }

    /// The filter's index of the zone that owns a query at its stage.
    fn zone(&self, request: &Request) -> u16 {
        match self.generation.pipelines[request.pipeline]
            .stages
            .get(request.stage)
        {
            Some(Stage::Filter { zone_base, .. }) => (zone_base + request.zone) as u16,
            _ => 0,
        }
    }

    /// A query as its stage's filter sees it.
    pub fn query_record(&self, request: &Request) -> filter::Query {
        filter::Query {
            zone: self.zone(request),
            ..query_record(request)
        }
    }

    /// A response as its stage's filter sees it.
    pub fn response_record(&self, request: &Request, response: &Response) -> filter::Response {
        filter::Response {
            query: self.query_record(request),
            rcode: response.rcode,
            source: response.origin.into(),
            answer_count: response.answer_count(),
            ttl: response.lowest_ttl(),
            message_start: 0,
            message_length: 0,
        }
    }
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

/// An address as the filter interface has it: IPv6, or v4-mapped.
fn client_halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// A query as filters see it, but for the zone, which each has its own index of.
#[inline]
fn query_record(request: &Request) -> filter::Query {
    let [client_high, client_low] = client_halves(request.client.address.ip());
    filter::Query {
        client_high,
        client_low,
        name_start: 0,
        name_length: 0,
        qtype: request.qtype,
        qclass: request.qclass,
        header: request.flags,
        udp_size: request.edns.map_or(edns::UDP_CLASSIC, |edns| edns.udp_size),
        edns_flags: request.edns.map_or(0, |edns| edns.flags),
        client_port: request.client.address.port(),
        zone: 0,
        transport: request.client.transport.into(),
        edns: request.edns.is_some(),
    }
}

/// What became of a query, but for the zone.
pub fn event_record(
    request: &Request,
    response: Option<&Response>,
    sent: Sent,
    clocks: Clocks,
) -> filter::Event {
    let microseconds = clocks.now.saturating_sub(request.client.received);
    filter::Event {
        query: query_record(request),
        time: clocks.unix_ms.saturating_sub(microseconds / 1000),
        duration: u32::try_from(microseconds).unwrap_or(u32::MAX),
        id: request.id,
        query_size: request.size,
        response_size: sent.size as u32,
        rcode: response.map_or(0, |response| response.rcode),
        response_header: sent.header,
        has_answers: response.is_some_and(|response| response.answer_count() > 0),
        source: response.map_or(Origin::Filter, |response| response.origin).into(),
    }
}

/// Underlines in the operator's file what a filter did not like.
fn diagnostics(filter: &config::Filter, error: LoadError) -> Vec<Diagnostic> {
    match error {
        LoadError::Rejected(errors) => errors.iter().map(|error| rejection(filter, error)).collect(),
        other => {
            let message = format!("filter {:?} cannot be loaded: {other}", filter.name);
            vec![Diagnostic::new(filter.module_span, message)]
        }
    }
}

fn rejection(filter: &config::Filter, error: &ConfigError) -> Diagnostic {
    let properties = error
        .node
        .and_then(|node| filter.config.get(node))
        .map(|node| &node.properties[..]);
    let place = match &error.place {
        Place::Node => config::Place::Node,
        Place::Argument(index) => config::Place::Argument(*index),
        Place::Property(index) => match properties.and_then(|properties| properties.get(*index)) {
            Some((name, _)) => config::Place::Property(name),
            None => config::Place::Node,
        },
    };
    let span = filter.config_place(error.node, place);
    let diagnostic = Diagnostic::new(span, format!("filter {:?}: {}", filter.name, error.message));
    if error.help.is_empty() {
        diagnostic
    } else {
        diagnostic.help(error.help.clone())
    }
}

/// What decides a filter's verdicts, taken once for all zones that use it: a module has megabytes.
fn fingerprint(filter: &config::Filter) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    (&filter.name, format!("{:?}{:?}", filter.on_error, filter.limits)).hash(&mut hasher);
    for node in &filter.config {
        let arguments = (&node.arguments, &node.properties);
        format!("{}{:?}{arguments:?}", node.name, node.parent).hash(&mut hasher);
    }
    match &filter.module {
        config::Module::Builtin(name) => name.hash(&mut hasher),
        config::Module::File { bytes, .. } => bytes.hash(&mut hasher),
    }
    hasher.finish()
}

/// What decides what the upstreams of a `forward` node say.
fn source(forward: &config::Forward) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    format!("{forward:?}").hash(&mut hasher);
    hasher.finish()
}

/// Whether queries for ANY go to the upstreams of a zone.
fn asks_any(zone: &config::Zone) -> bool {
    zone.stages
        .iter()
        .any(|stage| matches!(stage, config::Stage::Forward(forward) if forward.any))
}

/// What decides the answers that a zone's cache holds. `fingerprints` are those of all filters.
fn partition(zone: &config::Zone, fingerprints: &[u64]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    let below = zone
        .stages
        .iter()
        .skip_while(|stage| !matches!(stage, config::Stage::Cache(_)));
    for stage in below {
        match stage {
            config::Stage::Filter(index) => fingerprints[*index].hash(&mut hasher),
            config::Stage::Cache(cache) => format!("{cache:?}").hash(&mut hasher),
            config::Stage::Forward(forward) => format!("{forward:?}").hash(&mut hasher),
        }
    }
    hasher.finish()
}
