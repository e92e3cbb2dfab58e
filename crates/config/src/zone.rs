//! `zone`: names and the stages that their queries pass.

use std::collections::HashMap;
use std::net::SocketAddr;

use kdl::KdlNode;

use super::cache::{self, Cache};
use super::clients::{self, Clients};
use super::decode::{Decoder, block, child, head, nearest, suggestion, text, value_span};
use super::encrypted;
use super::error::{Diagnostic, Span};
use super::filters::Filters;
use super::forward;
use super::kubernetes::{self, DOMAIN};
use super::lists;
use super::name::zone_name;
use super::network::Network;
use super::secondary;
use super::service_entries;
use super::source::{self, SourceConfig};
use super::words::{Form, Table, words};
use super::zone_file;

/// A step of a zone's pipeline.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a zone has a few, which are read once")]
pub enum Stage {
    /// `use "NAME"`: index into [`Config::filters`](crate::Config::filters).
    Filter(usize),
    /// `cache { … }`
    Cache(Cache),
    /// A source of answers.
    Source(SourceConfig),
}

words! {
    /// `zone "NAME"… { … }`: the same pipeline for one or more zones. Names are in presentation format, in lower
    /// case and with a final dot; `.` is the root. If `on` or `from` is empty, all; but a zone of the same name
    /// that is `from` the client comes first.
    #[derive(Debug, Clone)]
    pub struct Zone in ZONE(1..=256): r#"zone "cluster.local" { cache; forward "10.96.0.11" }"#;

    /// The names whose queries it gets, with everything below them.
    values "NAME" names: Vec<String> = ("required"), "names";
    /// Restricts the zone to some listeners; before the stages.
    table "on" on: Vec<SocketAddr> = ("all") in ON, "addresses";
    /// Restricts the zone to some clients; before the stages.
    table "from" from: Vec<Network> = ("all") in FROM, "networks";
    /// Which clients may ask; before the stages.
    hand "clients" clients: Option<Clients> = ("all that the listener allows") in clients::OF_ZONE;
    by hand {
        /// Runs a filter; may be repeated, but each filter only once.
        stage "use" = none in USE, "the name of a filter";
        /// Answers from the cache, and stores answers of the stages below; at most once.
        stage "cache" = none in cache::CACHE;
        /// Asks other servers; last unless it has `except` or `next`.
        stage "forward" = none in forward::FORWARD, "addresses and paths";
        /// Answers from a Kubernetes cluster; last unless it has `fallthrough`.
        stage "kubernetes" = none in kubernetes::KUBERNETES;
        /// Answers for the hosts of Istio's service entries.
        stage "service-entries" = none in service_entries::SERVICE_ENTRIES;
        /// Answers from a zone file; last unless it has `fallthrough` or an `origin` below the zone.
        stage "file" = none in zone_file::FILE, "a path";
        /// Answers from a zone of other servers; last unless it has `fallthrough`.
        stage "secondary" = none in secondary::SECONDARY, "addresses";
        /// Blocks names of lists, or answers for them; leaves others to the next stage.
        stage "lists" = none in lists::LISTS;
    }
    besides {
        /// In the order written; at most one `cache`, and nothing below a source that answers everything.
        stages: Vec<Stage>;
        /// Its span, without its block.
        span: Span;
    }
}

/// The words that restrict a zone's listeners and clients: all that are no stages.
fn restrictions() -> impl Iterator<Item = &'static str> {
    let words = ZONE.words.iter().filter(|word| word.form == Form::Node);
    words.map(|word| word.name)
}

fn is_stage(node: &KdlNode) -> bool {
    restrictions().all(|name| node.name().value() != name)
}

const USE: Table<()> = Table::plain(1..=1, r#"use "access-log""#);

const ON: Table<Vec<SocketAddr>> = Table::of_values(1..=64, r#"on "127.0.0.1:5300""#, read_on);

const FROM: Table<Vec<Network>> = Table::of_values(1..=256, r#"from "10.0.0.0/8""#, read_from);

/// The names of all zones so far, with their audiences.
#[derive(Default)]
pub(super) struct Names(HashMap<String, Vec<(Audience, Span)>>);

/// The listeners and clients that a zone is for; if empty, all.
#[derive(Debug, Clone)]
struct Audience {
    on: Vec<SocketAddr>,
    from: Vec<Network>,
}

impl Audience {
    /// Whether a query could match two zones with no rule to choose between them.
    fn is_shared(&self, other: &Audience) -> bool {
        let on = self.on.is_empty() || other.on.is_empty() || self.on.iter().any(|on| other.on.contains(on));
        // Between nested networks, the smaller one decides.
        let from = match (self.from.is_empty(), other.from.is_empty()) {
            (true, true) => true,
            (false, false) => self.from.iter().any(|network| other.from.contains(network)),
            _ => false,
        };
        on && from
    }
}

impl Names {
    /// Adds the names of another zone, and reports those already used.
    fn take(&mut self, decoder: &mut Decoder, node: &KdlNode, zone: &Zone) -> Vec<String> {
        let audience = Audience {
            on: zone.on.clone(),
            from: zone.from.clone(),
        };
        let mut own = Vec::new();
        for (name, span) in decoder.values_at(node, zone_name) {
            let known = self.0.entry(name.clone()).or_default();
            if let Some((_, first)) = known.iter().find(|(other, _)| audience.is_shared(other)) {
                let help = "a name belongs to one zone on each address: put all its stages there, or distinguish the zones with `on` or `from`";
                decoder.report_again(span, *first, format!("zone {name:?} is written twice"), help);
                continue;
            }
            known.push((audience.clone(), span));
            own.push(name);
        }
        own
    }
}

/// Decodes `zone`.
pub(super) fn decode(
    decoder: &mut Decoder,
    filters: &mut Filters<'_>,
    names: &mut Names,
    node: &KdlNode,
) -> Zone {
    let mut zone = ZONE.read(decoder, node);
    let nodes = block(node);
    refuse_late(decoder, nodes);
    zone.names = names.take(decoder, node, &zone);
    decoder.around.zones.clone_from(&zone.names);
    let clients = child(nodes, "clients");
    zone.clients = clients.map(|node| clients::decode(decoder, &clients::OF_ZONE.shape, node));
    let mut used = Vec::new();
    for stage in nodes {
        match stage.name().value() {
            "use" => {
                let Some(index) = decode_use(decoder, filters, stage) else {
                    continue;
                };
                let problem = format!("filter {:?} is used twice in this zone", filters.name(index));
                let help = "keep one; for a second run, define a second filter with the same module";
                if decoder.meet(&mut used, index, stage, problem, help) {
                    zone.stages.push(Stage::Filter(index));
                }
            }
            "cache" => zone.stages.push(Stage::Cache(cache::CACHE.read(decoder, stage))),
            // If it is not a source either, `check` has reported it.
            _ => zone
                .stages
                .extend(source::decode(decoder, stage).map(Stage::Source)),
        }
    }
    refuse_unreachable(decoder, node, &zone.names, nodes);
    refuse_kept_searches(decoder, nodes);
    zone.span = head(node);
    zone
}

/// Records, for the `service-entries` stages, which names others answer for.
pub(super) fn note_taken(zones: &mut [Zone]) {
    for at in 0..zones.len() {
        let is_one = |stage: &Stage| matches!(stage, Stage::Source(SourceConfig::ServiceEntries(_)));
        if !zones[at].stages.iter().any(is_one) {
            continue;
        }
        let others = zones.iter().enumerate().filter(|(other, _)| *other != at);
        let others = others.flat_map(|(_, zone)| zone.names.iter().cloned());
        let beside = zones[at].stages.iter().filter_map(|stage| match stage {
            Stage::Source(source) => Some(source.origins()),
            _ => None,
        });
        let mut taken: Vec<String> = others.chain(beside.flatten()).collect();
        taken.push(DOMAIN.to_owned());
        taken.retain(|name| name != ".");
        taken.sort_unstable();
        taken.dedup();
        for stage in &mut zones[at].stages {
            if let Stage::Source(SourceConfig::ServiceEntries(entries)) = stage {
                entries.taken.clone_from(&taken);
            }
        }
    }
}

fn read_on(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Vec<SocketAddr> {
    let mut on = Vec::new();
    for (address, span) in decoder.values_at(node, encrypted::listening_address) {
        let listeners = &decoder.around.listeners;
        if !listeners.has(address) && listeners.count() > 0 {
            let problem = format!("{address} is not an address of `listen`");
            decoder.report(span, problem, "write one of the addresses that follow `listen`");
        } else if on.contains(&address) {
            decoder.report(span, format!("{address} is listed twice"), "keep one of them");
        }
        on.push(address);
    }
    on
}

fn read_from(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Vec<Network> {
    let mut from = Vec::new();
    for (network, span) in decoder.values_at(node, clients::network(clients::NETWORK)) {
        let problem = format!("{network} is listed twice");
        decoder.meet(&mut from, network, span, problem, "keep one of them");
    }
    from.into_iter().map(|(network, _)| network).collect()
}

/// Reports words below a stage that restrict the zone.
fn refuse_late(decoder: &mut Decoder, nodes: &[KdlNode]) {
    let first = nodes.iter().position(is_stage).unwrap_or(nodes.len());
    for name in restrictions() {
        let index = nodes.iter().position(|node| node.name().value() == name);
        if let Some(index) = index.filter(|index| *index > first) {
            let problem = format!("`{name}` must come first in a zone");
            decoder.report(&nodes[index], problem, "move it above all stages");
        }
    }
}

/// The index of the filter that a `use` names.
fn decode_use(decoder: &mut Decoder, filters: &mut Filters<'_>, node: &KdlNode) -> Option<usize> {
    decoder.check(node, &USE.shape);
    let name = decoder.argument(node, text)?;
    let found = filters.find(&name);
    if found.is_none() {
        let help = match filters.names() {
            _ if filters.is_builtin(&name) => {
                format!("define it: filter {name:?} {{ module \"builtin:{name}\" }}")
            }
            known if known.is_empty() => format!("define it: filter {name:?} {{ module \"FILE.wasm\" }}"),
            known => suggestion(&name, &known, ""),
        };
        decoder.report(value_span(node), format!("there is no filter {name:?}"), help);
        // Do not report the filter that was probably meant as unused as well.
        if let Some(meant) = nearest(&name, &filters.names()).map(str::to_owned) {
            filters.find(&meant);
        }
    }
    found
}

/// Reports stages that no query for one of `names` reaches, and caches with nothing to store.
fn refuse_unreachable(decoder: &mut Decoder, zone: &KdlNode, names: &[String], nodes: &[KdlNode]) {
    let known = |node: &&KdlNode| ZONE.shape.children.contains(&node.name().value());
    if !nodes.iter().any(is_stage) {
        let help = format!("give it at least one: {}", ZONE.shape.example);
        decoder.report(zone, "this zone has no stages", help);
        return;
    }
    // A misspelt stage may be the one that is missing.
    if !nodes.iter().all(|node| known(&node)) {
        return;
    }
    let is = |node: &KdlNode, name: &str| node.name().value() == name;
    let is_source = |node: &KdlNode| source::WORDS.contains(&node.name().value());
    let source = nodes
        .iter()
        .position(|node| is_source(node) && !source::passes_on(node, names));
    if let Some(source) = source {
        let word = nodes[source].name().value();
        for stage in &nodes[source + 1..] {
            let problem = format!("no query reaches this `{}`", stage.name().value());
            let help = match word {
                "forward" if is(stage, word) => {
                    format!("name all upstreams in one `{word}`, or write `except` or `next` in it")
                }
                "kubernetes" | "file" => format!("move it above `{word}`, or write `fallthrough` in that"),
                _ => format!("move it above `{word}`: stages run in the order they are written"),
            };
            let unreached = Diagnostic::new(head(stage), problem).label("never reached");
            let answers = head(&nodes[source]);
            decoder.push(unreached.other(answers, "everything is answered here").help(help));
        }
    }
    if let Some(last) = nodes.last().filter(|node| is_source(node))
        && let Some(next) = child(block(last), "next").or(child(block(last), "fallthrough"))
    {
        let word = next.name().value();
        let help = format!("write the stage that is to be asked instead below this one, or remove `{word}`");
        decoder.report(next, "there is no next stage", help);
    }
    let reached = &nodes[..source.map_or(nodes.len(), |source| source + 1)];
    let first = reached.iter().position(|node| is(node, "cache"));
    for (index, stage) in reached.iter().enumerate().filter(|(_, node)| is(node, "cache")) {
        match first {
            Some(first) if first != index => {
                let second = Diagnostic::new(head(stage), "a zone can have only one `cache`");
                let second = second.label("the second").help("keep one of them");
                decoder.push(second.other(head(&reached[first]), "the first"));
            }
            _ if index + 1 == reached.len() => {
                let idle = Diagnostic::new(head(stage), "this `cache` never gets an answer to store");
                let help = "write a `forward`, or `use` a filter that answers, below it";
                decoder.push(idle.label("nothing below it answers").help(help));
            }
            _ => {}
        }
    }
}

/// Reports sources below a `cache` whose answers depend on the client.
fn refuse_kept_searches(decoder: &mut Decoder, nodes: &[KdlNode]) {
    let below = nodes.iter().skip_while(|node| node.name().value() != "cache");
    let deciding = below.flat_map(|node| {
        let lists = match node.name().value() {
            "lists" => block(node),
            _ => &[],
        };
        let of_lists = lists.iter().flat_map(lists::for_some);
        child(block(node), "autopath").into_iter().chain(of_lists)
    });
    for deciding in deciding {
        let word = deciding.name().value();
        let problem = format!(
            "`{word}` decides by client, but is below `cache`, which shares answers among all clients"
        );
        decoder.report(deciding, problem, "move the `cache` below it");
    }
}
