//! `forward`: which upstreams are asked.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::address::{DNS_PORT, address, interface_index, scope};
use super::decode::{Decoder, Wrong, arguments, block, child, whole, word};
use super::encrypted::{self, Target};
use super::error::{Diagnostic, Span};
use super::name::zone_name;
use super::resolv_conf::{self, NameServers};
use super::units::{duration, ms, s, spell_duration};
use super::upstream::{Encryption, NamedUpstream, Next, Policy, Protocol, Upstream};
use super::words::words;
use crate::tls::{self, Trust};

/// The most upstreams in one `forward`, including those from a resolv.conf.
const MOST_UPSTREAMS: usize = 16;

words! {
    /// `forward "ADDRESS"… { … }`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Forward in FORWARD(1..=MOST_UPSTREAMS): r#"forward "10.96.0.11" { protocol "tcp" }"#, then finish;

    /// The upstreams, or files such as `/etc/resolv.conf` whose name servers are used; the default port is 53. [With a
    /// scheme](#encrypted-upstreams), also names.
    values "ADDRESS" upstreams: Vec<Upstream> = ("required"), "addresses and paths";
    /// How upstreams without a scheme are asked; with `"udp"`, truncated answers are retried over TCP.
    one "protocol" protocol: Protocol = "udp" in word(&[("udp", Protocol::Udp), ("tcp", Protocol::Tcp)]);
    /// How upstreams with a scheme are authenticated.
    hand "tls" trust: Trust = none in encrypted::TLS, "a block, [below](#encrypted-upstreams)";
    /// Servers that resolve the names of upstreams without an address, over UDP and TCP.
    list "bootstrap"(1..=4) bootstrap: Vec<SocketAddr> = ("none": "192.0.2.1") in address(DNS_PORT), "addresses";
    /// How queries over HTTPS are sent.
    one "https-method" get: bool = "POST" in word(&[("POST", false), ("GET", true)]);
    /// Which upstream is asked first.
    one "policy" policy: Policy = "random" in word(&POLICIES);
    /// How long one attempt may take; not above `deadline`.
    one "timeout" timeout: Duration = "2s" in duration(ms(10)..=s(30));
    /// How long all attempts together may take.
    one "deadline" deadline: Duration = "5s" in duration(ms(10)..=s(60));
    /// How many times a query may be sent.
    one "attempts" attempts: u32 = 4 in whole(1..=10);
    /// Consecutive failures after which an upstream is probed; 0: it is never taken out of use.
    one "max-fails" max_fails: u32 = 2 in whole(0..=1000);
    /// Shortest interval between probes of an upstream.
    one "probe" probe: Duration = "500ms" in duration(ms(10)..=s(60));
    /// Queries in flight at once; one more displaces another or gets SERVFAIL.
    one "concurrent" concurrent: usize = 1024 in whole(1..=1_000_000);
    /// At `concurrent`, how long a query in flight is protected from being displaced for its age alone.
    one "jostle" jostle: Option<Duration> = ("an upstream's usual response time, at most `\"200ms\"`": "200ms")
        in duration(ms(0)..=s(60));
    /// Connections to each upstream, per worker.
    one "connections" connections: usize = 2 in whole(1..=64);
    /// How long an unused connection is kept open.
    one "idle" idle: Duration = "10s" in duration(ms(100)..=s(3600));
    /// Age at which a connection gets no more queries and is replaced by a new one.
    one "max-age" max_age: Option<Duration> = ("none": "5m") in duration(s(1)..=s(86_400));
    /// Forward ANY queries instead of answering them with one HINFO record (RFC 8482).
    switch "any" any: bool = off;
    /// With `"nxdomain"`, address queries for names of one label, such as `printer`, get NXDOMAIN.
    one "plain-names" denies_plain_names: bool = "forward" in word(&[("forward", false), ("nxdomain", true)]);
    /// Names that are left to the next stage, with everything below them.
    list "except"(1..=256) except: Vec<String> = ("none": "corp.example") in zone_name, "names";
    /// Outcomes after which the next stage is asked; `"SERVFAIL"` includes upstreams that do not answer.
    list "next"(1..=4) next: Vec<Next> = ("none": "NXDOMAIN") in word(&OUTCOMES);
    besides {
        /// Upstreams given by host name, whose addresses are not in the file.
        named: Vec<NamedUpstream>;
        /// What the other ones were gathered from, in order.
        written: Vec<Written>;
        /// The interfaces in the scopes of the servers of `bootstrap`.
        bootstrap_interfaces: Vec<Option<String>>;
    }
}

/// An upstream with an address, or a file that lists some, as written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Written {
    /// An upstream, and the interface in its scope.
    At(Upstream, Option<String>),
    /// The path of a resolv.conf.
    In(PathBuf),
}

impl Forward {
    /// The TLS client for its upstreams, if they are encrypted.
    pub fn client(&self) -> Option<tls::Client> {
        match self.protocol {
            Protocol::Udp | Protocol::Tcp => None,
            Protocol::Encrypted(encryption) => Some(tls::Client::new(&self.trust, &[encryption.alpn()])),
        }
    }

    /// Gathers its upstreams from its files as they are now; `refused` returns why one must not be used. Returns
    /// the rest of what the files contain. None, and the upstreams stay, if the files are a mistake now.
    pub(super) fn gather_again(
        &mut self,
        refused: impl Fn(SocketAddr) -> Option<String>,
    ) -> Option<NameServers> {
        let (upstreams, rest) = self.gathered(|path| resolv_conf::name_servers(path, &refused).ok())?;
        let none_usable = upstreams.is_empty() && !rest.awaited && !rest.unusable.is_empty();
        if upstreams.len() > MOST_UPSTREAMS || none_usable {
            return None;
        }
        self.upstreams = upstreams;
        Some(rest)
    }

    /// The upstreams with an address that are written or in its files, and the rest of what the files contain;
    /// `read` returns the servers in a file.
    fn gathered(
        &self,
        mut read: impl FnMut(&Path) -> Option<NameServers>,
    ) -> Option<(Vec<Upstream>, NameServers)> {
        let (mut upstreams, mut rest) = (Vec::<Upstream>::new(), NameServers::default());
        for written in &self.written {
            match written {
                Written::At(upstream, interface) => {
                    let mut upstream = upstream.clone();
                    renew_scope(&mut upstream.address, interface.as_deref());
                    rest.interfaces.extend(interface.clone());
                    if !upstreams.contains(&upstream) {
                        upstreams.push(upstream);
                    }
                }
                Written::In(path) => {
                    let found = read(path)?;
                    for address in found.usable {
                        if !upstreams.iter().any(|known| known.address == address) {
                            upstreams.push(address.into());
                        }
                    }
                    rest.unusable.extend(found.unusable);
                    rest.interfaces.extend(found.interfaces);
                    rest.awaited |= found.awaited;
                }
            }
        }
        Some((upstreams, rest))
    }

    /// Looks up the interfaces of its `bootstrap` again, and returns their names.
    pub(super) fn renew_bootstrap(&mut self) -> Vec<String> {
        for (server, interface) in self.bootstrap.iter_mut().zip(&self.bootstrap_interfaces) {
            renew_scope(server, interface.as_deref());
        }
        self.bootstrap_interfaces.iter().flatten().cloned().collect()
    }
}

/// Gives an address the index that its interface has now. Without the interface, the address stays.
fn renew_scope(address: &mut SocketAddr, interface: Option<&str>) {
    if let (SocketAddr::V6(address), Some(name)) = (address, interface) {
        address.set_scope_id(interface_index(name).unwrap_or(address.scope_id()));
    }
}

/// Words with which some queries are passed to the stages below.
pub(super) const PASSES_ON: [&str; 2] = ["except", "next"];

const POLICIES: [(&str, Policy); 3] = [
    ("random", Policy::Random),
    ("round-robin", Policy::RoundRobin),
    ("sequential", Policy::Sequential),
];

const OUTCOMES: [(&str, Next); 4] = [
    ("NXDOMAIN", Next::Nxdomain),
    ("NODATA", Next::Nodata),
    ("SERVFAIL", Next::Servfail),
    ("REFUSED", Next::Refused),
];

/// Reads the upstreams, and checks words together.
fn finish(decoder: &mut Decoder, node: &KdlNode, forward: &mut Forward) {
    let nodes = block(node);
    let scheme = read_upstreams(decoder, node, forward);
    if let Some(scheme) = scheme {
        forward.protocol = Protocol::Encrypted(scheme);
    }
    check_bootstrap(decoder, node, forward);
    if let Some(tls) = child(nodes, "tls") {
        forward.trust = encrypted::trust(decoder, tls);
    }
    refuse_unfit(decoder, nodes, forward, scheme);
    if forward.timeout > forward.deadline {
        let written = child(nodes, "timeout")
            .or(child(nodes, "deadline"))
            .unwrap_or(node);
        let problem = format!(
            "`timeout` ({}) is longer than `deadline` ({})",
            spell_duration(forward.timeout),
            spell_duration(forward.deadline)
        );
        decoder.report(written, problem, "lower `timeout` or raise `deadline`");
    }
}

/// Requires `bootstrap` for named upstreams; its servers must not be this proxy.
fn check_bootstrap(decoder: &mut Decoder, node: &KdlNode, forward: &mut Forward) {
    let written = child(block(node), "bootstrap");
    if let (Some(named), None) = (forward.named.first(), written) {
        let problem = format!("no server is named that knows the addresses of {}", named.host);
        let help = "write a server that knows them, { bootstrap \"192.0.2.1\" }; or the address before the name, \
             as in \"tls://192.0.2.1%dns.example\"";
        decoder.report(node, problem, help);
    }
    for entry in written.into_iter().flat_map(arguments) {
        if let Ok(server) = address(DNS_PORT)(entry.value()) {
            refuse_loop(decoder, server, entry.into());
            forward.bootstrap_interfaces.push(interface(entry, server));
        }
    }
}

/// Reports words that are for other upstreams than these, which have the scheme `scheme`.
fn refuse_unfit(decoder: &mut Decoder, nodes: &[KdlNode], forward: &Forward, scheme: Option<Encryption>) {
    let mut refuse = |word: &str, fits: bool, problem: &str, help: &str| {
        if let (Some(node), false) = (child(nodes, word), fits) {
            decoder.report(node, problem, help);
        }
    };
    let problem = "`bootstrap` is for upstreams that are written by name, but there are none";
    refuse("bootstrap", !forward.named.is_empty(), problem, "remove it");
    let word = scheme.map(Encryption::word).unwrap_or_default();
    let problem = format!("the upstreams are asked over {word}://, and not over this");
    refuse("protocol", scheme.is_none(), &problem, "remove `protocol`");
    let problem = "`https-method` is for upstreams that are asked over https://, and these are not";
    let fits = scheme == Some(Encryption::Https);
    refuse("https-method", fits, problem, "remove it");
    let problem = "`tls` is for upstreams that are asked over TLS, and these are asked in clear text";
    let help = "write the upstreams with their scheme, as in \"tls://192.0.2.1%dns.example\"";
    refuse("tls", scheme.is_some(), problem, help);
}

/// The parsed values of a `forward`.
#[derive(Default)]
struct Found {
    /// The upstreams that are written.
    targets: Vec<(Target, Span)>,
    /// The spans of files.
    files: Vec<Span>,
    /// The scheme of each value.
    schemes: Vec<(Option<Encryption>, Span)>,
}

impl Found {
    fn take(&mut self, decoder: &mut Decoder, forward: &mut Forward, entry: &KdlEntry) {
        let span = Span::from(entry);
        if let Some(path) = entry.value().as_string().filter(|text| is_path(text)) {
            let path = decoder.files.at(path);
            decoder.files.note(&path);
            forward.written.push(Written::In(path));
            self.files.push(span);
            self.schemes.push((None, span));
            return;
        }
        let Some((target, scheme)) = decoder.value("forward", entry, upstream) else {
            return;
        };
        self.schemes.push((scheme, span));
        if let Target::At(upstream) = &target {
            let interface = interface(entry, upstream.address);
            forward.written.push(Written::At(upstream.clone(), interface));
        }
        // Who writes a file does not know what is written here: there, it may be written again.
        let (targets, problem) = (&mut self.targets, format!("upstream {target} is written twice"));
        if decoder.meet(targets, target.clone(), span, problem, "keep one of them") {
            match target {
                Target::At(upstream) => refuse_loop(decoder, upstream.address, span),
                Target::Named(upstream) => forward.named.push(upstream),
            }
        }
    }
}

/// Reads the upstreams. Returns their common scheme, if there is one.
fn read_upstreams(decoder: &mut Decoder, node: &KdlNode, forward: &mut Forward) -> Option<Encryption> {
    let mut found = Found::default();
    for entry in arguments(node) {
        found.take(decoder, forward, entry);
    }
    let help = "name a file with lines such as `nameserver 192.0.2.1`, or write the addresses here";
    let (mut places, mut unusable) = (found.files.iter(), Vec::new());
    let gathered = forward.gathered(|path| {
        let place = *places.next()?;
        let servers = resolv_conf::name_servers(path, |server| decoder.around.is_loop(server));
        let servers = servers.unwrap_or_else(|problem| {
            decoder.report(place, format!("{}: {problem}", path.display()), help);
            NameServers::default()
        });
        let lines = servers.unusable.iter();
        unusable.extend(lines.map(|why| Diagnostic::new(place, why).help(help).local()));
        Some(servers)
    });
    let (upstreams, servers) = gathered.unwrap_or_default();
    forward.upstreams = upstreams;
    let count = forward.upstreams.len();
    if count > MOST_UPSTREAMS && arguments(node).count() <= MOST_UPSTREAMS {
        let problem = format!("{count} upstreams are more than the {MOST_UPSTREAMS} allowed");
        decoder.report(node, problem, "remove some of them");
    }
    // A file may list some later.
    if count == 0 && !servers.awaited {
        unusable.into_iter().for_each(|why| decoder.push(why));
    }
    decoder.files.unusable.extend(servers.unusable);
    decoder.files.interfaces.extend(servers.interfaces);
    refuse_mixture(decoder, &found.schemes);
    found.schemes.first().and_then(|(scheme, _)| *scheme)
}

/// Reports upstreams of one stage with different schemes. Otherwise, an attacker who blocks the encrypted one
/// could read the queries sent to the other.
fn refuse_mixture(decoder: &mut Decoder, schemes: &[(Option<Encryption>, Span)]) {
    let Some((first, first_span)) = schemes.first() else {
        return;
    };
    if let Some((_, span)) = schemes.iter().find(|(scheme, _)| scheme != first) {
        let problem = "the upstreams of one `forward` are asked in one way, and these are not";
        let mixed = Diagnostic::new(*span, problem).label("another way than the first");
        let help = "give each its own `forward`; the first asks the next with `next \"SERVFAIL\"`";
        decoder.push(mixed.other(*first_span, "the first").help(help));
    }
}

/// Returns the interface in the scope of an address, as written: it may be recreated with another index.
fn interface(entry: &KdlEntry, address: SocketAddr) -> Option<String> {
    let text = entry.value().as_string()?;
    let written = text.split_once("://").map_or(text, |(_, rest)| rest);
    let has_scope = matches!(address, SocketAddr::V6(address) if address.scope_id() != 0);
    scope(written).filter(|_| has_scope).map(str::to_owned)
}

/// Whether an argument names a file; no address starts like this.
pub(super) fn is_path(text: &str) -> bool {
    ["/", "./", "../"].iter().any(|start| text.starts_with(start))
}

fn upstream(value: &KdlValue) -> Result<(Target, Option<Encryption>), Wrong> {
    if let Some(scheme) = value.as_string().and_then(encrypted::scheme) {
        let (encryption, rest) = scheme?;
        return Ok((encrypted::upstream(rest, encryption)?, Some(encryption)));
    }
    let plain = address(DNS_PORT)(value).map_err(|wrong| {
        let help = format!(
            "{}; or the path of a resolv.conf, which begins with / or ./",
            wrong.help
        );
        Wrong { help, ..wrong }
    })?;
    Ok((Target::At(plain.into()), None))
}

/// Reports an upstream that is this proxy.
fn refuse_loop(decoder: &mut Decoder, upstream: SocketAddr, span: Span) {
    if upstream.ip().is_unspecified() {
        let problem = format!("{upstream} is not the address of a server");
        decoder.report(span, problem, "write the address of the server to ask");
        return;
    }
    let Some((listener, listens)) = decoder.around.loops(upstream) else {
        return;
    };
    let why = match listener.ip().is_unspecified() {
        true => "this listens on every address",
        false => "listens here",
    };
    let problem = format!("forwarding to {upstream} is a loop: the proxy itself listens there");
    let looped = Diagnostic::new(span, problem).label("queries come back from here");
    let help = "forward to another server, or listen on another address or port";
    decoder.push(looped.other(listens, why).help(help));
}
