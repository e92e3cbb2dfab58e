//! Translates server blocks into a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{Diagnostic, Encryption, Span};

use super::blocks::{Block, Corefile, Plugin, PluginOption};
use super::document::{Document, Node, write_comment};
use super::draft::{Draft, spelled, whole};
use super::options::Options;
use super::sites::{self, Cut, Site};
use super::words::{Fate, WORDS, fate};
use super::{file, filters, forward, kubernetes, template, transfer, values};

/// The order in which a query passes plugins, whatever their order in the file: that of CoreDNS 1.15.0.
const ORDER: [&str; 17] = [
    "errors",
    "log",
    "local",
    "dns64",
    "loadbalance",
    "rewrite",
    "acl",
    "cache",
    "minimal",
    "template",
    "hosts",
    "k8s_external",
    "kubernetes",
    "file",
    "secondary",
    "forward",
    "whoami",
];

/// The order until CoreDNS 1.14.7, as in node-cache.
const CACHE_FIRST: [&str; 17] = [
    "errors",
    "log",
    "local",
    "dns64",
    "acl",
    "loadbalance",
    "cache",
    "rewrite",
    "minimal",
    "template",
    "hosts",
    "k8s_external",
    "kubernetes",
    "file",
    "secondary",
    "forward",
    "whoami",
];

/// Settings for the whole server.
#[derive(Default)]
struct Server {
    draft: Draft,
    admin: Vec<SocketAddr>,
    udp_size: Option<(u64, Span)>,
    /// `tcp-read`, `tcp-write`, `tcp-idle`: the longest over all blocks.
    timeouts: [Option<Duration>; 3],
    workers: Option<u64>,
    node: Option<Node>,
    /// Addresses with a protocol other than plain DNS.
    schemes: BTreeMap<SocketAddr, Encryption>,
    /// The files of the certificate and its key.
    certificate: Option<(String, String)>,
}

/// A zone to write.
struct Zone {
    names: Vec<String>,
    listeners: BTreeSet<SocketAddr>,
    clients: Vec<String>,
    stages: Vec<Node>,
    comments: Vec<String>,
}

/// Writes a configuration; also returns the files that it lacks until they appear.
///
/// # Errors
/// Everything that cannot be translated.
pub fn translate(
    corefile: &Corefile,
    options: &Options,
) -> Result<(Document, Vec<PathBuf>), Vec<Diagnostic>> {
    let mut server = Server {
        node: options.node.clone(),
        ..Server::default()
    };
    server.draft.folder = options.folder.clone();
    server.draft.awaited = options.awaits_files.then(Vec::new);
    if let Some(admin) = &options.admin {
        server.admin(admin, Span::default());
    }
    for block in &corefile.blocks {
        server.enter(block);
        server.check(block);
        server.take_in(block);
    }
    let sites = sites::sites(&corefile.blocks, options, &mut server.draft.mistakes);
    if sites.is_empty() && server.draft.mistakes.is_empty() {
        let empty = Diagnostic::new(Span::default(), "this Corefile has no server block");
        server
            .draft
            .mistakes
            .push(empty.help("write one: . { forward . /etc/resolv.conf }"));
    }
    server.take_in_schemes(&sites);
    let order = if options.cache_first { CACHE_FIRST } else { ORDER };
    let mut zones: Vec<Zone> = Vec::new();
    for (site, cuts) in sites.iter().zip(sites::cuts(&sites)) {
        for cut in cuts {
            let zone = server.zone(site, cut, order);
            add(&mut zones, zone);
        }
    }
    if server.draft.mistakes.is_empty() {
        let document = server.write(&zones, options);
        return Ok((document, server.draft.awaited.unwrap_or_default()));
    }
    // A plugin is read for each zone of its block.
    let mut known = BTreeSet::new();
    let mut mistakes = server.draft.mistakes;
    mistakes.retain(|mistake| known.insert((mistake.span, mistake.message.clone())));
    Err(mistakes)
}

/// Adds a zone, or its names and comments to one with the same stages.
fn add(zones: &mut Vec<Zone>, zone: Zone) {
    let same = |known: &&mut Zone| {
        let bare = |zone: &Zone| zone.stages.iter().map(Node::bare).collect::<Vec<_>>();
        known.listeners == zone.listeners && known.clients == zone.clients && bare(known) == bare(&zone)
    };
    let Some(known) = zones.iter_mut().find(same) else {
        return zones.push(zone);
    };
    known.names.extend(zone.names);
    for comment in zone.comments {
        if !known.comments.contains(&comment) {
            known.comments.push(comment);
        }
    }
}

impl Server {
    /// Makes relative paths start at the block's `root`.
    fn enter(&mut self, block: &Block) {
        let root = block.plugins.iter().find(|plugin| plugin.name.text == "root");
        let root = root.and_then(argument).unwrap_or_default();
        self.draft.root = whole(&self.draft.folder, root).into();
    }

    /// Reports unknown plugins and options, and unsupported ones.
    fn check(&mut self, block: &Block) {
        for plugin in &block.plugins {
            let name = plugin.name.text.as_str();
            match fate(name, "") {
                None => {
                    let problem = format!("`{name}` is not a plugin of CoreDNS");
                    self.draft.mistake(
                        plugin.name.span,
                        problem,
                        "see docs/coredns.md for what can be imported",
                    );
                    continue;
                }
                Some(Fate::Refused(help)) => {
                    self.draft
                        .mistake(plugin.span(), format!("`{name}` is not supported"), help);
                    continue;
                }
                Some(_) => {}
            }
            for option in plugin
                .options
                .iter()
                .filter(|option| !filters::is_row(name, option))
            {
                let word = option.name.text.as_str();
                match fate(name, word) {
                    None => {
                        let problem = format!("`{name}` has no option `{word}`");
                        let known = WORDS
                            .iter()
                            .filter(|known| known.plugin == name && !known.option.is_empty());
                        let known: Vec<&str> = known.map(|known| known.option).collect();
                        let help = match known.is_empty() {
                            true => "remove it".to_owned(),
                            false => format!("valid here: {}", known.join(", ")),
                        };
                        self.draft.mistake(option.name.span, problem, help);
                    }
                    Some(Fate::Refused(help)) => {
                        self.draft
                            .mistake(option.span(), format!("`{word}` is not supported"), help);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Reads the settings of a block that affect the whole server.
    fn take_in(&mut self, block: &Block) {
        for plugin in &block.plugins {
            match plugin.name.text.as_str() {
                "health" => self.admin(argument(plugin).unwrap_or(":8080"), plugin.span()),
                "prometheus" => self.admin(argument(plugin).unwrap_or("localhost:9153"), plugin.span()),
                "ready" => self.admin(argument(plugin).unwrap_or(":8181"), plugin.span()),
                "bufsize" => self.bufsize(plugin),
                "timeouts" => self.timeouts(plugin),
                "autopath" => self.check_autopath(plugin, block),
                "tls" => self.certificate(plugin),
                "multisocket" => {
                    let number = plugin.arguments.first().and_then(|word| word.text.parse().ok());
                    self.workers = number
                        .filter(|number| (1..=256).contains(number))
                        .max(self.workers);
                }
                "nodecache" => {
                    let skip = plugin.arguments.iter().any(|word| word.text == "skipteardown");
                    let node = Node::new("node")
                        .child(Node::new("interface").text("nodecache"))
                        .child(Node::new("iptables"))
                        .child(Node::new("mode").text("bypass"));
                    self.node = Some(if skip {
                        node.child(Node::new("skip-teardown"))
                    } else {
                        node
                    });
                }
                _ => {}
            }
        }
    }

    /// `autopath` uses the search list of the client's pod, which only `kubernetes` knows.
    fn check_autopath(&mut self, plugin: &Plugin, block: &Block) {
        let is_of_pods = plugin
            .arguments
            .last()
            .is_some_and(|word| word.text == "@kubernetes");
        let mut others = block.plugins.iter();
        if !is_of_pods || !others.any(|other| other.name.text == "kubernetes") {
            let problem = "`autopath` is supported as `autopath @kubernetes`, in a block with `kubernetes`";
            let help = "remove it: clients then search their domains themselves";
            self.draft.mistake(plugin.span(), problem, help);
        }
    }

    /// `tls CERT KEY [CA]`. All listeners share one certificate. The CA would verify client certificates,
    /// which are requested only with `client_auth`.
    fn certificate(&mut self, plugin: &Plugin) {
        let words: Vec<&str> = plugin.arguments.iter().map(|word| word.text.as_str()).collect();
        let ([certificate, key] | [certificate, key, _]) = words[..] else {
            let problem = "`tls` needs the files of a certificate and its key";
            let help = "write it like: tls /etc/coredns/tls.crt /etc/coredns/tls.key";
            return self.draft.mistake(plugin.span(), problem, help);
        };
        let is_asked = |option: &&PluginOption| {
            option.name.text == "client_auth" && option.arguments.iter().any(|word| word.text != "nocert")
        };
        if let Some(option) = plugin.options.iter().find(is_asked) {
            let problem = "clients are not asked for certificates";
            let help = "remove it; `clients` defines which networks may ask";
            self.draft.mistake(option.span(), problem, help);
        }
        let files = (self.draft.path(certificate), self.draft.path(key));
        match &self.certificate {
            Some(known) if *known != files => {
                let problem = "dnsweir has one certificate for all listeners, and this is another one";
                let help = "name one certificate everywhere; it may be for several names";
                self.draft.mistake(plugin.span(), problem, help);
            }
            _ => self.certificate = Some(files),
        }
    }

    /// Records the addresses with a protocol other than plain DNS.
    fn take_in_schemes(&mut self, sites: &[Site<'_>]) {
        for site in sites {
            let clash = |listener: &SocketAddr| {
                let others = sites.iter().filter(|other| other.listeners.contains(listener));
                others.into_iter().any(|other| other.scheme != site.scheme)
            };
            let span = site.zones.first().map_or(Span::default(), |(_, span)| *span);
            if site.listeners.iter().any(clash) {
                let problem = "another block speaks something else on the same address";
                self.draft.mistake(span, problem, "write another port");
            }
            let Some(scheme) = site.scheme else { continue };
            self.schemes
                .extend(site.listeners.iter().map(|listener| (*listener, scheme)));
            if !site.block.plugins.iter().any(|plugin| plugin.name.text == "tls") {
                let problem = format!("{}:// needs a certificate", scheme.word());
                self.draft
                    .mistake(span, problem, "write in the block: tls CERTIFICATE KEY");
            }
        }
    }

    /// Adds an HTTP address, unless a wildcard already covers it.
    fn admin(&mut self, text: &str, span: Span) {
        let Some(address) = values::server(text) else {
            let problem = format!("{text} is not an address with a port");
            return self
                .draft
                .mistake(span, problem, "write it like 127.0.0.1:9253 or :9253");
        };
        // Wildcards are of both families here.
        let covers = |wide: &SocketAddr, address: &SocketAddr| {
            wide == address || wide.ip().is_unspecified() && wide.port() == address.port()
        };
        if !self.admin.iter().any(|known| covers(known, &address)) {
            self.admin.retain(|known| !covers(&address, known));
            self.admin.push(address);
        }
    }

    fn bufsize(&mut self, plugin: &Plugin) {
        let size = plugin
            .arguments
            .first()
            .map_or(Some(1232), |word| word.text.parse().ok());
        let Some(size) = size.filter(|size| (512..=4096).contains(size)) else {
            return self.draft.mistake(
                plugin.span(),
                "this is not the size of a reply",
                "write a number from 512 to 4096",
            );
        };
        match self.udp_size {
            Some((known, first)) if known != size => {
                let other = Diagnostic::new(plugin.span(), "all zones have the same `udp-size`");
                let other = other.other(first, "this block has another one");
                self.draft
                    .mistakes
                    .push(other.help("write the same size in all blocks"));
            }
            _ => self.udp_size = Some((size, plugin.span())),
        }
    }

    fn timeouts(&mut self, plugin: &Plugin) {
        for option in &plugin.options {
            let names = ["read", "write", "idle"];
            let Some(index) = names.iter().position(|name| *name == option.name.text) else {
                continue;
            };
            let time = self
                .draft
                .argument(option, "a duration such as 5s", values::duration);
            self.timeouts[index] = self.timeouts[index].max(time);
        }
    }

    /// Builds a zone with its stages.
    fn zone(&mut self, site: &Site<'_>, cut: Cut, order: [&'static str; 17]) -> Zone {
        self.enter(site.block);
        let (mut stages, mut comments): (Vec<Node>, Vec<String>) = (Vec::new(), Vec::new());
        let plugins = &site.block.plugins;
        for name in kubernetes::order(&order, plugins, &cut.zone) {
            let here = |plugin: &&Plugin| plugin.name.text == name && sites::is_for(plugin, &cut.zone);
            let first = plugins.iter().find(here);
            if let Some(plugin) = first {
                self.draft.filters.origin = plugin.span();
            }
            match name {
                "cache" => {
                    stages
                        .extend(first.and_then(|plugin| forward::cache(&mut self.draft, plugin, &cut.zone)));
                }
                "forward" => {
                    let any = plugins.iter().any(|plugin| plugin.name.text == "any");
                    let here: Vec<&Plugin> = plugins.iter().filter(here).collect();
                    stages.extend(forward::forwards(&mut self.draft, &here, any));
                }
                "k8s_external" | "kubernetes" | "file" | "secondary" => {
                    if let Some(plugin) = sites::closest_of(plugins.iter().filter(here), &cut.zone) {
                        let (stage, through) = self.source(plugin, site, &cut.zone);
                        stages.push(stage);
                        // No query reaches the stages below it.
                        if !through {
                            break;
                        }
                    }
                }
                // Repetitions are combined into one filter.
                "rewrite" | "acl" | "template" => {
                    let all: Vec<&Plugin> = plugins.iter().filter(here).collect();
                    stages.extend(self.filter_of_all(name, &all, &cut.zone));
                }
                _ => {
                    // Of several `log` lines, CoreDNS uses the first that is for the name.
                    let most = if name == "log" { 1 } else { usize::MAX };
                    for plugin in plugins.iter().filter(here).take(most) {
                        let stage = filters::stage(&mut self.draft, plugin, &cut.zone);
                        let new =
                            stage.filter(|stage| stages.iter().all(|known| known.bare() != stage.bare()));
                        stages.extend(new);
                    }
                }
            }
        }
        // A cache with nothing below to fill it.
        if stages.last().is_some_and(|stage| stage.is("cache")) {
            stages.pop();
        }
        if stages.is_empty() {
            stages.push(self.refusal(site.block, &mut comments));
        }
        comments.extend(plugins.iter().flat_map(noted));
        Zone {
            names: vec![cut.zone],
            listeners: cut.listeners,
            clients: cut.clients,
            stages,
            comments,
        }
    }

    /// The stage for a block without a source, which refuses all queries; the comments explain why.
    fn refusal(&mut self, block: &Block, comments: &mut Vec<String>) -> Node {
        comments.push(match block.refused.is_empty() {
            true => "Nothing in this block answers, so queries are refused.".to_owned(),
            false => "What this block is asked is refused, since it could not be translated:".to_owned(),
        });
        comments.extend(block.refused.iter().cloned());
        let refused = vec![Node::new("block")];
        self.draft.filters.stage("refused", "acl", refused)
    }

    /// A source that serves a zone; also returns whether names missing there are left to other stages.
    fn source(&mut self, plugin: &Plugin, site: &Site<'_>, zone: &str) -> (Node, bool) {
        let (stage, through) = match plugin.name.text.as_str() {
            "file" => file::file(&mut self.draft, plugin, site, zone),
            "secondary" => transfer::secondary(&mut self.draft, plugin, site, zone),
            "k8s_external" => kubernetes::external(&mut self.draft, plugin, site, zone),
            _ => kubernetes::kubernetes(&mut self.draft, plugin, site, zone),
        };
        let transfer = transfer::transfer(&mut self.draft, &site.block.plugins, zone);
        (stage.children(transfer).from(plugin.span()), through)
    }

    /// The one filter that combines all plugins of a name in a zone.
    fn filter_of_all(&mut self, name: &str, plugins: &[&Plugin], zone: &str) -> Option<Node> {
        match name {
            "rewrite" => filters::rewrite(&mut self.draft, plugins),
            "acl" => filters::acl(&mut self.draft, plugins),
            _ => template::templates(&mut self.draft, plugins, zone),
        }
    }

    /// Writes a zone; `listeners` is the total number of listeners.
    fn written(&self, zone: &Zone, listeners: usize) -> Node {
        let names = zone.names.iter();
        let mut node = names.fold(Node::new("zone"), |node, name| node.text(name));
        for comment in &zone.comments {
            node = node.comment(comment);
        }
        if zone.listeners.len() < listeners {
            let on = zone.listeners.iter();
            node = node.child(on.fold(Node::new("on"), |node, at| node.text(&self.spelled(*at))));
        }
        if !zone.clients.is_empty() {
            let from = zone.clients.iter();
            node = node.child(from.fold(Node::new("from"), |node, network| node.text(network)));
        }
        node.children(zone.stages.iter().cloned())
    }

    /// Writes the whole configuration as KDL.
    fn write(&self, zones: &[Zone], options: &Options) -> Document {
        let mut listeners: Vec<SocketAddr> = Vec::new();
        for listener in zones.iter().flat_map(|zone| &zone.listeners) {
            if !listeners.contains(listener) {
                listeners.push(*listener);
            }
        }
        let mut nodes = vec![self.listen(&listeners)];
        if listeners.iter().any(|listener| !is_private(listener.ip())) && self.node.is_none() {
            let open = "CoreDNS answers all clients. Without this, only private networks and the node's own may ask.";
            nodes.push(
                Node::new("clients")
                    .comment(open)
                    .child(Node::new("allow").text("any")),
            );
        }
        if !self.admin.is_empty() {
            let admin = self
                .admin
                .iter()
                .fold(Node::new("admin"), |node, at| node.text(&at.to_string()));
            let as_there =
                "CoreDNS has health and metrics there. Without status=#false, /status is there, too.";
            nodes.push(admin.raw("status=#false").comment(as_there));
        }
        nodes.extend(self.workers.map(|workers| Node::new("workers").number(workers)));
        nodes.extend(self.draft.filters.nodes());
        nodes.extend(zones.iter().map(|zone| self.written(zone, listeners.len())));
        nodes.extend(self.node.clone());
        let mut document = Document::default();
        let order = match options.cache_first {
            true => "`rewrite` below `cache`, as CoreDNS had it until 1.14.7",
            false => "`rewrite` above `cache`, as CoreDNS has it since 1.14.7",
        };
        write_comment(
            "",
            &format!("Translated from a Corefile, with {order}."),
            &mut document.text,
        );
        for node in nodes {
            document.text.push('\n');
            node.write(0, &mut document);
        }
        document
    }

    /// A listener as other sections refer to it.
    fn spelled(&self, listener: SocketAddr) -> String {
        match self.schemes.get(&listener) {
            Some(scheme) => format!("{}://{listener}", scheme.word()),
            None => listener.to_string(),
        }
    }

    fn listen(&self, listeners: &[SocketAddr]) -> Node {
        let mut node = listeners.iter().fold(Node::new("listen"), |node, at| {
            node.text(&match (self.schemes.get(at), at.port()) {
                (Some(scheme), _) => format!("{}://{at}", scheme.word()),
                (None, 53) => at.ip().to_string(),
                (None, _) => at.to_string(),
            })
        });
        if let Some((certificate, key)) = self.certificate.as_ref().filter(|_| !self.schemes.is_empty()) {
            node = node.child(Node::new("certificate").text(certificate).property("key", key));
        }
        let size = match self.udp_size {
            Some((size, _)) => Node::new("udp-size").number(size),
            None => Node::new("udp-size").number(4096).comment(
                "Without `bufsize`, CoreDNS sends whatever clients accept. 1232, which is the default here, avoids fragments.",
            ),
        };
        node = node.child(size);
        let bounds = [("tcp-read", 60), ("tcp-write", 60), ("tcp-idle", 3600)];
        for ((word, most), time) in bounds.into_iter().zip(self.timeouts) {
            if let Some(time) = time {
                let time = time.clamp(Duration::from_millis(100), Duration::from_secs(most));
                node = node.child(Node::new(word).text(&spelled(time)));
            }
        }
        node
    }
}

fn argument(plugin: &Plugin) -> Option<&str> {
    plugin.arguments.first().map(|word| word.text.as_str())
}

/// The notes on plugins and options that need no translation.
fn noted(plugin: &Plugin) -> Vec<String> {
    let name = plugin.name.text.as_str();
    let mut comments = Vec::new();
    if let Some(Fate::Noted(note)) = fate(name, "") {
        comments.push(format!("{name}: {note}."));
    }
    for option in &plugin.options {
        let word = option.name.text.as_str();
        if let Some(Fate::Noted(note)) = fate(name, word) {
            comments.push(format!("{name}, {word}: {note}."));
        }
    }
    comments
}

/// Whether an address is only reachable from private networks.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}
