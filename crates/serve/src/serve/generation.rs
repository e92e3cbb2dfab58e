//! An immutable, compiled configuration.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cases;
use crate::config::{self, Config, Diagnostic, Rate, Report, SourceConfig};
use crate::dns::name::Name;
use crate::dnstap::Tap;
use crate::filter::{Engine, Filter, Outcomes};
use crate::identity::NodePods;
use crate::source::{self, Served, Source};

use super::asked::Keeps;
use super::fingerprint;
use super::gate::Gate;
use super::zones::{OfPipeline, Zones};

/// A configuration with its filters compiled and configured, shared by all workers.
pub struct Generation {
    /// Starts at 1. Grows with every successful reload, when a former filter is put back, and when the running
    /// configuration takes other addresses of its upstreams after a failed reload.
    pub number: u64,
    /// The configuration as written.
    pub config: Config,
    /// Maps a name to the pipeline that owns it.
    pub zones: Zones,
    /// One for each `zone` node.
    pub pipelines: Vec<Pipeline>,
    /// One for each `filter` node.
    pub filters: Vec<Loaded>,
    /// One for each source in a zone, followed by the named ones.
    pub sources: Vec<Arc<Source>>,
    /// Index of the first named source.
    pub first_named: usize,
    /// The pods of the node, if clients are to be identified.
    pub pods: Option<Arc<NodePods>>,
    /// The dnstap logger, if any.
    pub tap: Option<Arc<Tap>>,
    /// Which parts of queries are kept while they are processed.
    pub keeps: Keeps,
}

/// The stages of a zone.
pub struct Pipeline {
    /// The zones that use it.
    pub zones: Vec<Name>,
    /// In the order of the configuration.
    pub stages: Vec<Stage>,
    /// Index of `cache` in `stages`; their number if there is none.
    pub cache_at: usize,
    /// Fingerprint of `cache` and everything below it: pipelines with the same one share cached answers,
    /// across reloads, too.
    pub partition: u64,
    /// Filters with an events phase.
    pub event_filters: Vec<UsedFilter>,
    /// The outcomes reported to these filters or to the tap.
    pub tells: Outcomes,
    /// Whether a filter looks at responses.
    pub looks_at_responses: bool,
    /// The clients that may ask, and their limits.
    pub gate: Option<Gate>,
    /// Whether sources are asked for ANY.
    pub wants_any: bool,
    /// Whether all clients get the same answers. What stands below `cache` does not count: it decides for all
    /// clients.
    pub answers_alike: bool,
}

/// A filter in a pipeline.
#[derive(Clone, Copy)]
pub struct UsedFilter {
    /// Index into [`Generation::filters`].
    pub filter: usize,
    /// Added to a zone's index in the pipeline, gives its index in the filter.
    zone_base: usize,
}

impl UsedFilter {
    /// The filter's index of one of the pipeline's zones.
    #[inline]
    pub fn zone(self, zone: usize) -> u16 {
        (self.zone_base + zone) as u16
    }
}

/// One stage, ready to run.
pub enum Stage {
    /// `use`
    Filter(UsedFilter),
    /// `cache`
    Cache(config::Cache),
    /// Anything else that answers: index into [`Generation::sources`].
    Source(usize),
}

impl Generation {
    /// The generation before the first; it serves nothing.
    pub fn nothing(workers: usize) -> Generation {
        Generation {
            number: 0,
            config: Config::nothing(workers),
            zones: Zones::default(),
            pipelines: Vec::new(),
            filters: Vec::new(),
            sources: Vec::new(),
            first_named: 0,
            pods: None,
            tap: None,
            keeps: Keeps::default(),
        }
    }

    /// The index of this filter, compared by pointer.
    pub fn index_of(&self, filter: &Arc<Filter>) -> Option<usize> {
        let mut filters = self.filters.iter();
        filters.position(|known| Arc::ptr_eq(&known.filter, filter))
    }

    /// The pipeline that has a zone of exactly this name, and the zone's index in it.
    pub fn zone(&self, name: &Name) -> Option<(usize, usize)> {
        let mut pipelines = self.pipelines.iter().enumerate();
        pipelines.find_map(|(index, pipeline)| {
            let zone = pipeline.zones.iter().position(|zone| zone == name)?;
            Some((index, zone))
        })
    }

    /// Compiles and configures everything, or reports in the operator's file what cannot be.
    ///
    /// What has not changed is taken over from `previous`: sources and filters with all their state. A
    /// changed filter that keeps its name takes over its counters and tables. A `former` filter that is
    /// configured again is reused, too.
    ///
    /// # Errors
    /// Every mistake that only a filter could find.
    pub fn build(
        number: u64,
        config: Config,
        engine: &Engine,
        previous: Option<&Generation>,
        former: Option<&Loaded>,
    ) -> Result<Generation, Report> {
        let mut zones_of_filter: Vec<Vec<String>> = vec![Vec::new(); config.filters.len()];
        let (known, mut sources) = (KnownSources::new(previous), Vec::new());
        let zones = config.zones.iter();
        let stages = zones.map(|zone| stages(&config, zone, &mut zones_of_filter, &mut sources, &known));
        let stages: Vec<Vec<Stage>> = stages.collect();
        let first_named = sources.len();
        sources.extend(known.named(&config));
        check_zones(&config, &zones_of_filter)?;
        let mut filters = load(&config, &zones_of_filter, engine, previous, former)?;
        find_routes(&config, &mut filters, first_named)?;
        check_places(&config, &filters)?;
        let tap = tap(&config, previous);
        let taps_clients = tap.as_ref().is_some_and(|tap| tap.wants_clients());
        let of_filters: Vec<u64> = config.filters.iter().map(fingerprint::of_filter).collect();
        let named = fingerprint::of_named(&config.sources);
        let pipelines = stages.into_iter().zip(&config.zones).map(|(stages, zone)| {
            let partition = fingerprint::of_cache(zone, &of_filters, named);
            Pipeline::new(zone, stages, partition, &filters, taps_clients)
        });
        let pipelines: Vec<Pipeline> = pipelines.collect();
        let of_pipelines = pipelines.iter().zip(&config.zones);
        let of_pipelines = of_pipelines.map(|(pipeline, zone)| OfPipeline {
            names: &pipeline.zones,
            on: &zone.on,
            from: &zone.from,
        });
        let zones = Zones::new(of_pipelines, config.local_zones);
        let keeps = Keeps {
            options: filters
                .iter()
                .any(|loaded| loaded.filter.interest().details.options()),
            message: taps_clients,
        };
        Ok(Generation {
            number,
            pods: node_pods(&config, previous),
            config,
            zones,
            pipelines,
            filters,
            sources,
            first_named,
            tap,
            keeps,
        })
    }
}

/// The identification of pods, if it is configured.
fn node_pods(config: &Config, previous: Option<&Generation>) -> Option<Arc<NodePods>> {
    let pods = config.pods.as_ref()?;
    let known = previous.and_then(|previous| previous.pods.as_ref());
    let same = known.filter(|known| known.is_for(pods)).cloned();
    Some(same.unwrap_or_else(|| NodePods::new(pods)))
}

/// The stages of a zone. Collects the zones of its filters and its sources; sources of the previous
/// generation are reused.
fn stages(
    config: &Config,
    zone: &config::Zone,
    zones_of_filter: &mut [Vec<String>],
    sources: &mut Vec<Arc<Source>>,
    known: &KnownSources<'_>,
) -> Vec<Stage> {
    let stages = zone.stages.iter().map(|stage| match stage {
        config::Stage::Filter(filter) => {
            let zones = &mut zones_of_filter[*filter];
            let zone_base = zones.len();
            zones.extend(zone.names.iter().cloned());
            Stage::Filter(UsedFilter {
                filter: *filter,
                zone_base,
            })
        }
        config::Stage::Cache(cache) => Stage::Cache(cache.clone()),
        config::Stage::Source(source) => {
            let first = names(zone).next().unwrap_or(Name::ROOT);
            let key = source::Key::of_zone(source, &first);
            sources.push(known.source(source, key, config.workers));
            Stage::Source(sources.len() - 1)
        }
    });
    stages.collect()
}

/// The names of a zone.
fn names(zone: &config::Zone) -> impl Iterator<Item = Name> {
    zone.names.iter().filter_map(|name| Name::parse(name).ok())
}

/// The dnstap logger: the existing one with its connection, if its configuration has not changed.
fn tap(config: &Config, previous: Option<&Generation>) -> Option<Arc<Tap>> {
    let wanted = config.dnstap.as_ref()?;
    let known = previous.and_then(|previous| previous.tap.as_ref());
    Some(match known {
        Some(known) if known.is_for(wanted) => Arc::clone(known),
        _ => Tap::new(wanted),
    })
}

/// The sources of the previous generation.
struct KnownSources<'p> {
    /// By what they are made of.
    by_key: HashMap<&'p source::Key, &'p Arc<Source>>,
    served: Served<'p>,
}

impl<'p> KnownSources<'p> {
    fn new(previous: Option<&'p Generation>) -> KnownSources<'p> {
        let sources = previous.map_or(&[][..], |previous| &previous.sources);
        KnownSources {
            by_key: sources.iter().map(|source| (source.key(), source)).collect(),
            served: Source::served(sources),
        }
    }

    /// Returns the source with this key, or a new one.
    fn source(&self, config: &SourceConfig, key: source::Key, workers: usize) -> Arc<Source> {
        match self.by_key.get(&key) {
            Some(same) => Arc::clone(same),
            None => Source::new(config, key, workers, &self.served),
        }
    }

    /// Returns the named sources.
    fn named(&self, config: &Config) -> Vec<Arc<Source>> {
        let sources = config.sources.iter().map(|named| {
            let key = source::Key::named(&named.source, &named.name);
            self.source(&named.source, key, config.workers)
        });
        sources.collect()
    }
}

/// Resolves the names of sources to which filters send queries; `first` is the index of the first named
/// source.
fn find_routes(config: &Config, filters: &mut [Loaded], first: usize) -> Result<(), Report> {
    let mut mistakes = Vec::new();
    for (loaded, block) in filters.iter_mut().zip(&config.filters) {
        loaded.routes.clear();
        for name in loaded.filter.interest().sources.iter() {
            match config.sources.iter().position(|named| *named.name == **name) {
                Some(index) => loaded.routes.push(first + index),
                None => {
                    let problem = format!(
                        "filter {:?} sends queries to source {name:?}, which does not exist",
                        block.name
                    );
                    let help = format!("define it: source {name:?} {{ forward \"ADDRESS\" }}");
                    mistakes.push(Diagnostic::new(block.span, problem).help(help));
                }
            }
        }
    }
    reported(config, mistakes)
}

/// Reports all mistakes together, if there are any.
fn reported(config: &Config, mistakes: Vec<Diagnostic>) -> Result<(), Report> {
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(config.report(mistakes)),
    }
}

/// Maximum number of zone names that may use a filter: the filter interface numbers them in 16 bits.
const ZONES_OF_FILTER: usize = 1 << 16;

/// Rejects filters that are used in more zones than they could tell apart.
fn check_zones(config: &Config, zones_of_filter: &[Vec<String>]) -> Result<(), Report> {
    let filters = config.filters.iter().zip(zones_of_filter);
    let beyond = filters.filter(|(_, zones)| zones.len() > ZONES_OF_FILTER);
    let mistakes = beyond.map(|(filter, zones)| {
        let problem = format!(
            "filter {:?} is used in zones with {} names; the maximum is {ZONES_OF_FILTER}",
            filter.name,
            zones.len()
        );
        Diagnostic::new(filter.span, problem).help("define it twice, and use each in some of the zones")
    });
    reported(config, mistakes.collect())
}

/// Rejects filters below `cache` that decide by client identity: their answers would be cached for other
/// clients.
fn check_places(config: &Config, filters: &[Loaded]) -> Result<(), Report> {
    let mut mistakes = Vec::new();
    for zone in &config.zones {
        let stages = zone.stages.iter();
        let below = stages.skip_while(|stage| !matches!(stage, config::Stage::Cache(_)));
        for stage in below {
            let config::Stage::Filter(filter) = *stage else {
                continue;
            };
            let interest = filters[filter].filter.interest();
            if interest.details.identity() && (interest.queries || interest.responses) {
                let name = &config.filters[filter].name;
                let problem = format!(
                    "filter {name:?} decides by client, but is below `cache`, which shares answers among all clients"
                );
                let help = format!("write `use {name:?}` above `cache`");
                mistakes.push(Diagnostic::new(zone.span, problem).help(help));
            }
        }
    }
    reported(config, mistakes)
}

/// A filter that was loaded for this generation or an earlier one.
#[derive(Clone)]
pub struct Loaded {
    /// The filter.
    pub filter: Arc<Filter>,
    /// What it was made from: its configuration, and the zones that use it.
    made_from: (config::Filter, Vec<String>),
    /// How many of its test cases have passed.
    pub test_cases: usize,
    /// The sources named in its manifest: indices into [`Generation::sources`].
    pub routes: Vec<usize>,
}

/// Makes filters attribute failed calls to networks of the size that rates apply to.
fn tell_clients_apart(config: &Config, filters: &[Loaded]) {
    let rate = config.clients.as_ref().and_then(|clients| clients.queries);
    let Rate { ipv4, ipv6, .. } = rate.unwrap_or_default();
    for loaded in filters {
        loaded.filter.tell_clients_apart_by((ipv4, ipv6));
    }
}

/// Loads each filter. One that `previous` has unchanged, or that is the `former` one, is reused and not
/// compiled and tested again.
fn load(
    config: &Config,
    zones_of_filter: &[Vec<String>],
    engine: &Engine,
    previous: Option<&Generation>,
    former: Option<&Loaded>,
) -> Result<Vec<Loaded>, Report> {
    let known = previous.map_or(&[][..], |previous| &previous.filters);
    let loaded: Vec<&Loaded> = known.iter().chain(former).collect();
    let (mut filters, mut mistakes) = (Vec::new(), Vec::new());
    for (filter, zones) in config.filters.iter().zip(zones_of_filter) {
        let made_from = (filter.clone(), zones.clone());
        let same = loaded.iter().find(|known| {
            let (before, of) = &known.made_from;
            of == zones && before.makes_the_same_as(filter)
        });
        if let Some(same) = same {
            // With the code as read now, or it would stay in memory as read before, too.
            filters.push(Loaded {
                made_from,
                ..Loaded::clone(same)
            });
            continue;
        }
        let before = known.iter().find(|known| known.filter.name() == filter.name);
        match cases::load_filter(engine, filter, zones, before.map(|before| &*before.filter)) {
            Ok((filter, test_cases)) => filters.push(Loaded {
                filter,
                made_from,
                test_cases,
                routes: Vec::new(),
            }),
            Err(found) => mistakes.extend(found),
        }
    }
    tell_clients_apart(config, &filters);
    reported(config, mistakes)?;
    Ok(filters)
}

impl Pipeline {
    /// Builds the pipeline of a zone. If dnstap logs clients' messages, every outcome is reported.
    fn new(
        zone: &config::Zone,
        stages: Vec<Stage>,
        partition: u64,
        filters: &[Loaded],
        taps_clients: bool,
    ) -> Pipeline {
        let interest = |used: &UsedFilter| filters[used.filter].filter.interest();
        let used = stages.iter().filter_map(|stage| match stage {
            Stage::Filter(used) => Some(*used),
            Stage::Cache(_) | Stage::Source(_) => None,
        });
        let used: Vec<UsedFilter> = used.collect();
        let looks_at_responses = used.iter().any(|used| interest(used).responses);
        let of_events = |used: &UsedFilter| interest(used).events != Outcomes::NONE;
        let event_filters: Vec<UsedFilter> = used.into_iter().filter(of_events).collect();
        let heard = event_filters.iter().map(|used| interest(used).events);
        let tells = match taps_clients {
            true => Outcomes::ALL,
            false => heard.fold(Outcomes::NONE, Outcomes::and),
        };
        let cache_at = stages.iter().position(|stage| matches!(stage, Stage::Cache(_)));
        let cache_at = cache_at.unwrap_or(stages.len());
        // What may answer clients differently: `clients`, or a filter or source above `cache`.
        let alike = |stage: &config::Stage| match stage {
            config::Stage::Filter(filter) => {
                let interest = filters[*filter].filter.interest();
                !interest.queries && !interest.responses
            }
            config::Stage::Source(source) => !source.decides_by_client(),
            config::Stage::Cache(_) => true,
        };
        let wants_any =
            |stage: &config::Stage| matches!(stage, config::Stage::Source(source) if source.wants_any());
        Pipeline {
            zones: names(zone).collect(),
            stages,
            cache_at,
            partition,
            event_filters,
            tells,
            looks_at_responses,
            gate: zone.clients.as_ref().map(Gate::of_zone),
            wants_any: zone.stages.iter().any(wants_any),
            answers_alike: zone.clients.is_none() && zone.stages.iter().take(cache_at).all(alike),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        let config = config::parse("test.kdl", text, Path::new("/"), crate::filter::BUILTINS);
        config.unwrap_or_else(|report| panic!("{report}"))
    }

    /// With more zones, a query of one would reach the filter as another's.
    #[test]
    fn a_filter_stands_in_no_more_zones_than_it_can_tell_apart() {
        let text = "listen \"127.0.0.1\"\nfilter \"log\" { module \"builtin:log\" }\nzone \".\" { use \"log\"; forward \"192.0.2.1\" }\n";
        let config = config(text);
        let zones = |count: usize| vec![vec![String::new(); count]];
        assert!(check_zones(&config, &zones(65_536)).is_ok());
        let refused = check_zones(&config, &zones(65_537)).unwrap_err().to_string();
        assert!(
            refused.contains("filter \"log\" is used in zones with 65537 names"),
            "{refused}"
        );
    }

    /// A source is matched by what it is made from, and one that is written twice is first two sources.
    #[test]
    fn a_source_that_stays_is_found_once() {
        let build = |text: &str, previous: Option<&Generation>| {
            let built = Generation::build(1, config(text), &Engine::new().unwrap(), previous, None);
            built.unwrap_or_else(|report| panic!("{report}"))
        };
        let text = |zones: &[(&str, &str)]| {
            let zones = zones.iter();
            let zones: String = zones
                .map(|(name, upstream)| format!("zone \"{name}\" {{ forward \"{upstream}\" }}\n"))
                .collect();
            format!("listen \"127.0.0.1\"\nsource \"a\" {{ forward \"192.0.2.1\" }}\n{zones}")
        };
        let before = build(
            &text(&[("a", "192.0.2.1"), ("b", "192.0.2.1"), ("c", "192.0.2.1")]),
            None,
        );
        let after = build(
            &text(&[
                ("c", "192.0.2.1"),
                ("b", "192.0.2.2"),
                ("a", "192.0.2.1"),
                ("d", "192.0.2.1"),
            ]),
            Some(&before),
        );
        let is = |one: usize, other: usize| Arc::ptr_eq(&after.sources[one], &before.sources[other]);
        assert!(
            is(0, 2) && is(2, 0) && is(4, 3),
            "a, c and the one with a name stay"
        );
        let is_known = |one: usize| (0..4).any(|other| is(one, other));
        assert!(!is_known(1) && !is_known(3), "b is another, d is new");
    }
}
