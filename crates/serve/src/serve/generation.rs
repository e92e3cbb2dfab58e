//! One immutable, compiled configuration.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cases;
use crate::config::{self, Config, Diagnostic, Report, SourceConfig};
use crate::dns::name::Name;
use crate::dnstap::Tap;
use crate::filter::{Engine, Filter, Outcomes};
use crate::identity::NodePods;
use crate::source::{self, Served, Source};

use super::asked::Keeps;
use super::fingerprint;
use super::gate::Gate;
use super::zones::{OfPipeline, Zones};

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
    pub filters: Vec<Loaded>,
    /// One for each source that a zone names, and behind them those with names of their own.
    pub sources: Vec<Arc<Source>>,
    /// Where those begin.
    pub first_named: usize,
    /// Who asks, if the configuration wants to know.
    pub pods: Option<Arc<NodePods>>,
    /// Who is told of messages.
    pub tap: Option<Arc<Tap>>,
    /// What of queries is kept on their way.
    pub keeps: Keeps,
    /// Whether a filter or the tap hears of responses' messages.
    pub hears_messages: bool,
}

/// The stages of a zone.
pub struct Pipeline {
    /// The zones that share it.
    pub zones: Vec<Name>,
    /// In the order they are written.
    pub stages: Vec<Stage>,
    /// Where `cache` is among them; behind them if there is none.
    pub cache_at: usize,
    /// Fingerprint of `cache` and what is below it: pipelines that agree in it share cached answers,
    /// over reloads, too.
    pub partition: u64,
    /// Filters that hear what happened.
    pub event_filters: Vec<EventFilter>,
    /// The queries of which anybody hears what happened: these, or the tap.
    pub tells: Outcomes,
    /// Whether a filter looks at responses.
    pub looks_at_responses: bool,
    /// Who may ask.
    pub gate: Option<Gate>,
    /// Whether a source is asked for ANY.
    pub wants_any: bool,
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
    /// Whatever else answers: index into [`Generation::sources`].
    Source(usize),
}

impl Generation {
    /// The one before the first, which serves nothing.
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
            hears_messages: false,
        }
    }

    /// Where it has this very filter, loaded once.
    pub fn index_of(&self, filter: &Arc<Filter>) -> Option<usize> {
        let mut filters = self.filters.iter();
        filters.position(|known| Arc::ptr_eq(&known.filter, filter))
    }

    /// The pipeline that has a zone of this very name, and which of its zones that is.
    pub fn zone(&self, name: &Name) -> Option<(usize, usize)> {
        let mut pipelines = self.pipelines.iter().enumerate();
        pipelines.find_map(|(index, pipeline)| {
            let zone = pipeline.zones.iter().position(|zone| zone == name)?;
            Some((index, zone))
        })
    }

    /// Compiles and configures everything, or says in the operator's file what cannot be.
    ///
    /// Of the `previous` one stays what is the same: sources and filters of which nothing changed, with all that they
    /// know and keep; and filters that keep their name go on with their counters and tables where they left off. So does a
    /// `former` filter that is wanted again.
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
        let of_filters: Vec<u64> = config.filters.iter().map(fingerprint::of_filter).collect();
        let (known, mut sources) = (KnownSources::new(previous), Vec::new());
        let named = fingerprint::of_named(&config.sources);
        let pipelines = config.zones.iter().map(|zone| {
            pipeline(
                &config,
                zone,
                fingerprint::of_cache(zone, &of_filters, named),
                &mut zones_of_filter,
                &mut sources,
                &known,
            )
        });
        let mut pipelines: Vec<Pipeline> = pipelines.collect();
        let first_named = sources.len();
        sources.extend(known.named(&config));
        check_zones(&config, &zones_of_filter)?;
        let mut filters = load(&config, &zones_of_filter, engine, previous, former)?;
        find_routes(&config, &mut filters, first_named)?;
        check_places(&config, &filters)?;
        let tap = tap(&config, previous);
        let taps_clients = tap.as_ref().is_some_and(|tap| tap.wants_clients());
        for pipeline in &mut pipelines {
            pipeline.note_phases(&filters, taps_clients);
        }
        let of_pipelines = pipelines.iter().zip(&config.zones);
        let of_pipelines = of_pipelines.map(|(pipeline, zone)| OfPipeline {
            names: &pipeline.zones,
            on: &zone.on,
            from: &zone.from,
        });
        let zones = Zones::new(of_pipelines, config.local_zones);
        let (keeps, hears_messages) = of_messages(&filters, taps_clients);
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
            hears_messages,
        })
    }
}

/// Who is to be told apart, if anybody is.
fn node_pods(config: &Config, previous: Option<&Generation>) -> Option<Arc<NodePods>> {
    let pods = config.pods.as_ref()?;
    let known = previous.and_then(|previous| previous.pods.as_ref());
    let same = known.filter(|known| known.is_for(pods)).cloned();
    Some(same.unwrap_or_else(|| NodePods::new(pods)))
}

/// The stages of a zone. What they need of filters and sources is noted; those that `previous` has are kept.
fn pipeline(
    config: &Config,
    zone: &config::Zone,
    partition: u64,
    zones_of_filter: &mut [Vec<String>],
    sources: &mut Vec<Arc<Source>>,
    known: &KnownSources<'_>,
) -> Pipeline {
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
        config::Stage::Source(source) => {
            let zone = zones.first().unwrap_or(&Name::ROOT);
            let key = source::Key::of_zone(source, zone);
            sources.push(known.source(source, key, config.workers));
            Stage::Source(sources.len() - 1)
        }
    });
    let stages: Vec<Stage> = stages.collect();
    let cache_at = stages.iter().position(|stage| matches!(stage, Stage::Cache(_)));
    Pipeline {
        zones,
        cache_at: cache_at.unwrap_or(stages.len()),
        stages,
        partition,
        event_filters: Vec::new(),
        tells: Outcomes::NONE,
        looks_at_responses: false,
        gate: zone.clients.as_ref().map(Gate::of_zone),
        wants_any: zone
            .stages
            .iter()
            .any(|stage| matches!(stage, config::Stage::Source(source) if source.wants_any())),
    }
}

/// What of queries is kept, and whether anybody hears of responses' messages.
fn of_messages(filters: &[Loaded], taps_clients: bool) -> (Keeps, bool) {
    let interests = || filters.iter().map(|loaded| loaded.filter.interest());
    let keeps = Keeps {
        options: interests().any(|interest| interest.details.options()),
        message: taps_clients,
    };
    let hears = interests().any(|interest| interest.events != Outcomes::NONE && interest.messages);
    (keeps, taps_clients || hears)
}

/// The tap of this configuration: with its connection, if it has not changed.
fn tap(config: &Config, previous: Option<&Generation>) -> Option<Arc<Tap>> {
    let wanted = config.dnstap.as_ref()?;
    let known = previous.and_then(|previous| previous.tap.as_ref());
    Some(match known {
        Some(known) if known.is_for(wanted) => Arc::clone(known),
        _ => Tap::new(wanted),
    })
}

/// The sources of the generation before.
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

    /// The one with this key, or a new one.
    fn source(&self, config: &SourceConfig, key: source::Key, workers: usize) -> Arc<Source> {
        match self.by_key.get(&key) {
            Some(same) => Arc::clone(same),
            None => Source::new(config, key, workers, &self.served),
        }
    }

    /// Those that have names.
    fn named(&self, config: &Config) -> Vec<Arc<Source>> {
        let sources = config.sources.iter().map(|named| {
            let key = source::Key::named(&named.source, &named.name);
            self.source(&named.source, key, config.workers)
        });
        sources.collect()
    }
}

/// Finds for each filter the sources that it wants to send queries to; the first of those with names has the index `first`.
fn find_routes(config: &Config, filters: &mut [Loaded], first: usize) -> Result<(), Report> {
    let mut mistakes = Vec::new();
    for (loaded, block) in filters.iter_mut().zip(&config.filters) {
        loaded.routes.clear();
        for name in loaded.filter.interest().sources.iter() {
            match config.sources.iter().position(|named| *named.name == **name) {
                Some(index) => loaded.routes.push(first + index),
                None => {
                    let problem = format!(
                        "filter {:?} sends queries to source {name:?}, which is not there",
                        block.name
                    );
                    let help = format!("define it: source {name:?} {{ forward \"ADDRESS\" }}");
                    mistakes.push(Diagnostic::new(block.span, problem).help(help));
                }
            }
        }
    }
    if mistakes.is_empty() {
        Ok(())
    } else {
        Err(config.report(mistakes))
    }
}

/// Names of zones that one filter may stand in: the filter interface counts them in 16 bits.
const ZONES_OF_FILTER: usize = 1 << 16;

/// Refuses filters that stand in more zones than they could tell apart.
fn check_zones(config: &Config, zones_of_filter: &[Vec<String>]) -> Result<(), Report> {
    let filters = config.filters.iter().zip(zones_of_filter);
    let beyond = filters.filter(|(_, zones)| zones.len() > ZONES_OF_FILTER);
    let mistakes: Vec<Diagnostic> = beyond
        .map(|(filter, zones)| {
            let problem = format!(
                "filter {:?} is used in zones with {} names; the maximum is {ZONES_OF_FILTER}",
                filter.name,
                zones.len()
            );
            Diagnostic::new(filter.span, problem).help("define it twice, and use each in some of the zones")
        })
        .collect();
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(config.report(mistakes)),
    }
}

/// Refuses filters that tell clients apart by who they are where their answers would be kept for others.
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
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(config.report(mistakes)),
    }
}

/// A filter, loaded for this generation or one before.
#[derive(Clone)]
pub struct Loaded {
    /// It.
    pub filter: Arc<Filter>,
    /// What it was made from.
    identity: u64,
    /// How many test cases it has passed.
    pub test_cases: usize,
    /// Where the sources are that its manifest names: indices into [`Generation::sources`].
    pub routes: Vec<usize>,
}

/// Has failed calls of filters blamed on the networks that rates are for.
fn tell_clients_apart(config: &Config, filters: &[Loaded]) {
    let rate = config.clients.as_ref().and_then(|clients| clients.queries);
    let bits = rate.map_or(config::CLIENT_BITS, |rate| (rate.ipv4, rate.ipv6));
    for loaded in filters {
        loaded.filter.tell_clients_apart_by(bits);
    }
}

/// Loads each filter, unless `previous` has the very same, or it is the `former`: what is compiled and tested is not compiled
/// and tested again.
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
        let identity = fingerprint::of_loaded(filter, zones);
        if let Some(same) = loaded.iter().find(|known| known.identity == identity) {
            filters.push(Loaded::clone(same));
            continue;
        }
        let before = known.iter().find(|known| known.filter.name() == filter.name);
        match cases::load_filter(engine, filter, zones, before.map(|before| &*before.filter)) {
            Ok((filter, test_cases)) => filters.push(Loaded {
                filter,
                identity,
                test_cases,
                routes: Vec::new(),
            }),
            Err(found) => mistakes.extend(found),
        }
    }
    tell_clients_apart(config, &filters);
    if mistakes.is_empty() {
        Ok(filters)
    } else {
        Err(config.report(mistakes))
    }
}

impl Pipeline {
    /// Notes which of its filters look at responses and hear of events, and whether anybody hears.
    fn note_phases(&mut self, filters: &[Loaded], taps_clients: bool) {
        for stage in &self.stages {
            if let Stage::Filter { filter, zone_base } = *stage {
                let interest = filters[filter].filter.interest();
                self.looks_at_responses |= interest.responses;
                if interest.events != Outcomes::NONE {
                    self.event_filters.push(EventFilter { filter, zone_base });
                    self.tells = self.tells.and(interest.events);
                }
            }
        }
        if taps_clients {
            self.tells = Outcomes::ALL;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// With more, a query of one zone reached the filter as another's.
    #[test]
    fn a_filter_stands_in_no_more_zones_than_it_can_tell_apart() {
        let text = "listen \"127.0.0.1\"\nfilter \"log\" { module \"builtin:log\" }\nzone \".\" { use \"log\"; forward \"192.0.2.1\" }\n";
        let config = config::parse("test.kdl", text, Path::new("/"), crate::filter::BUILTINS);
        let config = config.unwrap_or_else(|report| panic!("{report}"));
        let zones = |count: usize| vec![vec![String::new(); count]];
        assert!(check_zones(&config, &zones(65_536)).is_ok());
        let refused = check_zones(&config, &zones(65_537)).unwrap_err().to_string();
        assert!(
            refused.contains("filter \"log\" is used in zones with 65537 names"),
            "{refused}"
        );
    }

    /// What stays the same goes on, found by what it is made of, and what was written twice is two at first.
    #[test]
    fn a_source_that_stays_is_found_once() {
        let build = |text: &str, previous: Option<&Generation>| {
            let config = config::parse("test.kdl", text, Path::new("/"), crate::filter::BUILTINS);
            let config = config.unwrap_or_else(|report| panic!("{report}"));
            let engine = Engine::new().unwrap();
            Generation::build(1, config, &engine, previous, None).unwrap_or_else(|report| panic!("{report}"))
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
