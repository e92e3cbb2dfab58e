//! The configuration: what the operator wrote, checked, with every default filled in.
//!
//! Text becomes a [`Config`] in one step ([`load`]) or a [`Report`] of every mistake in it; nothing
//! in between is visible. This module knows KDL and nothing else of the proxy: it touches no
//! socket, no interface and no WebAssembly, and reads no file but those that the text names.
//!
//! Each section of the language has a file that decodes it, and `docs/configuration.md` describes
//! them all; its examples are parsed by a test here.

mod address;
mod admin;
mod cache;
mod clients;
pub(crate) mod config_block;
mod data;
pub(crate) mod decode;
mod dnstap;
mod encrypted;
mod environment;
mod error;
pub(crate) mod files;
mod filter;
mod forward;
pub(crate) mod hex;
mod include;
mod kubernetes;
mod listen;
mod load;
mod location;
mod module;
pub(crate) mod name;
mod network;
mod node;
mod pods;
mod reference;
mod refresh;
mod registries;
mod resolv_conf;
mod schema;
mod secondary;
mod service_entries;
mod signatures;
mod source;
mod spell;
mod syntax;
mod transfer;
mod tsig;
pub(crate) mod units;
mod wasi;
mod zone;
mod zone_file;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::dns::tsig::Key as TsigKey;
use crate::tls;
pub use crate::tls::{Identity, Trust};
use crate::zonefile::Zone as Contents;
pub use clients::CLIENT_BITS;
pub use data::{Data, DataWriter};
pub use dnstap::{Dnstap, TapReader};
pub use error::{Diagnostic, Report, Source, Span};
pub use files::{read_module, read_source};
pub use filter::test_cases_beside;
pub use load::{WAITING_QUERIES, keeps_network, listeners, load, load_block, modules, parse};
pub use location::Location;
pub use module::{Builtins, Module, unreadable_help};
pub use network::left_aligned;
pub use reference::Reference;
pub use refresh::{Refresh, RefreshOrigin, RefreshSource};
pub use registries::Registries;
pub use schema::schema;
pub use signatures::{
    ISSUER_HELP, Key, SUBJECT_HELP, Signatures, SignedBy, SigningIdentity, TrustRoot, is_issuer, is_subject,
};
pub use spell::spell;
pub use units::{spell_duration, spell_size};

/// One whole configuration, valid.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients ask.
    pub listen: Listen,
    /// Who may, on listeners that say nothing else; none: as it is by default.
    pub clients: Option<Clients>,
    /// Where `/metrics`, `/health`, `/ready` and `/status` are served.
    pub admin: Admin,
    /// `control "PATH"`: a unix socket for `dnsweir cache` and `dnsweir log-level`.
    pub control: Option<PathBuf>,
    /// `dnstap "PLACE" { … }`: who is told of messages.
    pub dnstap: Option<Dnstap>,
    /// `await-upstreams "10s"`: how long a start may wait for an answer from an upstream of each zone before
    /// `/ready` says yes all the same.
    pub await_upstreams: Duration,
    /// Threads that answer queries.
    pub workers: usize,
    /// Bound of the cache of all zones, in bytes.
    pub cache_memory: usize,
    /// Clients' queries that may wait for an upstream at a time, over all zones and workers.
    pub waiting_queries: usize,
    /// `registries { … }`: how modules are pulled.
    pub registries: Registries,
    /// `signatures { … }`: those of whom one must have signed a module that is pulled.
    pub signatures: Signatures,
    /// In the order they are written. [`Stage::Filter`] is an index into this.
    pub filters: Vec<Filter>,
    /// In the order they are written; no name occurs twice on one listener.
    pub zones: Vec<Zone>,
    /// `source "NAME" { … }`: where filters may send queries; no name occurs twice.
    pub sources: Vec<NamedSource>,
    /// `local-zones`: whether zones that RFC 6303 serves locally are.
    pub local_zones: bool,
    /// What is to be set up on the node; none: nothing.
    pub node: Option<Node>,
    /// Which node's pods are followed, to tell who asks; none: nobody is told apart.
    pub pods: Option<NodePods>,
    /// Every file whose change means that the configuration changed: itself, modules, files that are
    /// values for filters, resolv.conf.
    pub files: Vec<PathBuf>,
    /// What a resolv.conf names and cannot be asked, or not yet, and why, for people.
    pub unusable: Vec<String>,
    /// The interfaces that addresses name, and the number that each had.
    pub interfaces: BTreeMap<String, Option<u32>>,
    /// The text itself, for errors that are found later.
    pub source: Source,
}

impl Config {
    /// All sources: those of zones, and those with names.
    pub fn sources(&self) -> impl Iterator<Item = &SourceConfig> {
        let stages = self.zones.iter().flat_map(|zone| &zone.stages);
        let of_zones = stages.filter_map(|stage| match stage {
            Stage::Source(source) => Some(source),
            Stage::Filter(_) | Stage::Cache(_) => None,
        });
        of_zones.chain(self.sources.iter().map(|named| &named.source))
    }

    /// The numbers that its interfaces have now. Where they are others, so are the addresses.
    pub fn interfaces_now(&self) -> BTreeMap<String, Option<u32>> {
        let names = self.interfaces.keys();
        names
            .map(|name| (name.clone(), address::interface_index(name)))
            .collect()
    }

    /// The data of all filters, each once.
    pub fn data(&self) -> Vec<&Arc<Data>> {
        let mut all: Vec<&Arc<Data>> = Vec::new();
        for data in self.filters.iter().flat_map(Filter::data) {
            if !all.contains(&data) {
                all.push(data);
            }
        }
        all
    }

    /// One that serves nothing: what is there before the first one is brought up.
    pub fn nothing(workers: usize) -> Config {
        Config {
            listen: Listen {
                addresses: Vec::new(),
                encrypted: Vec::new(),
                identity: None,
                udp_size: 1232,
                tcp_connections: None,
                tcp_connections_per_client: 0,
                tcp_memory: 0,
                tcp_idle: Duration::ZERO,
                tcp_read: Duration::ZERO,
                tcp_write: Duration::ZERO,
                by_processor: false,
                clients: Vec::new(),
            },
            clients: None,
            admin: Admin::default(),
            control: None,
            dnstap: None,
            await_upstreams: Duration::ZERO,
            workers,
            cache_memory: 0,
            waiting_queries: 0,
            registries: Registries::default(),
            signatures: Signatures::default(),
            filters: Vec::new(),
            zones: Vec::new(),
            sources: Vec::new(),
            local_zones: false,
            node: None,
            pods: None,
            files: Vec::new(),
            unusable: Vec::new(),
            interfaces: BTreeMap::new(),
            source: Source::new("", ""),
        }
    }

    /// A report of mistakes that only others can find: a filter that rejects its `config` block,
    /// an address that cannot be bound. [`Filter::config_place`] has the places of the former.
    pub fn report(&self, diagnostics: Vec<Diagnostic>) -> Report {
        Report::new(self.source.clone(), diagnostics)
    }
}

/// `admin "ADDRESS"…`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Where it is served.
    pub addresses: Vec<SocketAddr>,
    /// `host`: the name by which a browser may look, beside addresses and `localhost`.
    pub host: Option<String>,
    /// `status`: whether there is more than health and metrics.
    pub status: bool,
    /// `queries`: whether `/status` shows names and clients; none: on loopback addresses.
    pub queries: Option<bool>,
}

impl Default for Admin {
    fn default() -> Admin {
        Admin {
            addresses: Vec::new(),
            host: None,
            status: true,
            queries: None,
        }
    }
}

/// `listen "ADDRESS"… { … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Both UDP and TCP; port 53 unless written. Or what `encrypted` says.
    pub addresses: Vec<SocketAddr>,
    /// Those of them that have a scheme.
    pub encrypted: Vec<(SocketAddr, Encryption)>,
    /// `certificate "FILE" key="FILE"`: who we are there.
    pub identity: Option<Identity>,
    /// `udp-size 1232`: octets of the largest reply over UDP, 512 to 4096 (RFC 9715 section 3.1).
    pub udp_size: u16,
    /// `tcp-connections 1024`: open client connections, over all addresses and workers. None: 1024, or as many as
    /// there are descriptors for.
    pub tcp_connections: Option<usize>,
    /// `tcp-connections-per-client 128`: those of one IPv4 address, or of one IPv6 network of 64 bits.
    pub tcp_connections_per_client: usize,
    /// `tcp-memory "16MiB"`: octets that connections may hold together, of what they read and what they are sent.
    pub tcp_memory: usize,
    /// `tcp-idle "10s"`: how long a connection may be silent between queries.
    pub tcp_idle: Duration,
    /// `tcp-read "5s"`: how long a query may take from its first octet to its last.
    pub tcp_read: Duration,
    /// `tcp-write "5s"`: how long a client may take nothing of what it is sent.
    pub tcp_write: Duration,
    /// `by-processor`: a query over UDP goes to the worker of the processor that it arrives on.
    pub by_processor: bool,
    /// `clients "ADDRESS"… { … }`: who may ask on some of the addresses.
    pub clients: Vec<(SocketAddr, Clients)>,
}

impl Listen {
    /// All addresses, and what is spoken there, none being DNS over UDP and TCP. QUIC shares an address with TLS or HTTPS.
    pub fn each(&self) -> impl Iterator<Item = (SocketAddr, Option<Encryption>)> {
        let plain = self.plain().map(|address| (address, None));
        let encrypted = self.encrypted.iter();
        plain.chain(encrypted.map(|(address, encryption)| (*address, Some(*encryption))))
    }

    /// The addresses for DNS over UDP and TCP.
    pub fn plain(&self) -> impl Iterator<Item = SocketAddr> {
        let is_plain = |address: &SocketAddr| self.encrypted.iter().all(|(other, _)| other != address);
        self.addresses.iter().copied().filter(is_plain)
    }
}

/// `clients { … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// `allow "NETWORK"…` and `refuse "NETWORK"…`: each network once, and whether it is allowed. Of those that hold a
    /// client the smallest decides.
    pub networks: Vec<(Network, bool)>,
    /// `allow "node"`: the networks that the node's own addresses are in.
    pub node: bool,
    /// There is an `allow`: all others are refused.
    pub only_these: bool,
    /// `silent`: whoever is turned away gets no answer.
    pub silent: bool,
    /// `queries 1000 burst=1000 ipv4=32 ipv6=128`: what one client may ask.
    pub queries: Option<Rate>,
    /// `responses 100 burst=100 slip=2 ipv4=24 ipv6=56`: what one network is sent over UDP.
    pub responses: Option<Rate>,
}

/// Addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// The first of them.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub length: u8,
}

/// How much is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Events a second, 1 to 1 000 000.
    pub per_second: u32,
    /// Events at once after a rest.
    pub burst: u32,
    /// Of those beyond, one in so many is met with a truncated answer; 0: none is.
    pub slip: u32,
    /// Bits of an IPv4 address that say who it is.
    pub ipv4: u8,
    /// Bits of an IPv6 address that do.
    pub ipv6: u8,
}

/// `filter "NAME" { … }`
#[derive(Debug, Clone)]
pub struct Filter {
    /// ASCII letters, digits, `-`, `_` and `.`; unique.
    pub name: String,
    /// What names its code.
    pub module: Module,
    /// Its code, read once, whole; it holds to the `sha256` if one was written. That of an artifact is empty until it is
    /// delivered.
    pub code: Bytes,
    /// What was delivered, if its module is an artifact.
    pub artifact: Option<Delivered>,
    /// Why its module and `config` are not those in the file: calls of that filter failed for many.
    pub reverted: Option<String>,
    /// `signed-by`: what its module's signature must be.
    pub signed_by: SignedBy,
    /// What happens when it fails.
    pub on_error: OnError,
    /// Whether the proxy is not ready while it is suspended.
    pub unready: bool,
    /// How many of its first queries and responses must not suspend it, after a reload.
    pub probation: u64,
    /// What one instance of it may use.
    pub limits: Limits,
    /// What it may have of WASI.
    pub wasi: Wasi,
    /// What it makes its data of, besides what its `config` names.
    pub refresh: Option<Refresh>,
    /// The `config` block, in document order.
    pub config: Vec<ConfigNode>,
    /// `test-cases "PATH"`, or the file beside the module: what it must pass before it is taken.
    pub test_cases: Option<TestCasesFile>,
    /// Where it stands, for errors about the filter as a whole.
    pub span: Span,
    /// Where its `module` stands, for errors about the code.
    pub module_span: Span,
    /// Where its `config` stands, or the filter if there is none.
    pub config_span: Span,
}

impl Filter {
    /// The data in its `config` block, in document order.
    pub fn data(&self) -> impl Iterator<Item = &Arc<Data>> {
        let values = self.config.iter().flat_map(|node| {
            let properties = node.properties.iter().map(|(_, value)| value);
            node.arguments.iter().chain(properties)
        });
        values.filter_map(|value| match value {
            ConfigValue::Data(data) => Some(data),
            _ => None,
        })
    }
}

/// An artifact that was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The digest of its manifest, beginning with `sha256:`.
    pub digest: String,
    /// Who has signed it, if somebody had to have.
    pub signer: Option<Signer>,
}

/// Who has signed an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// What the key or identity is called.
    pub name: String,
    /// Whether the signature says of which repository the artifact is. If not, it is as good for any other name.
    pub says_repository: bool,
}

/// A file with a filter's test cases, not looked into here.
#[derive(Debug, Clone)]
pub struct TestCasesFile {
    /// What is in it; its name is the path.
    pub source: Source,
    /// What names it in the configuration, for errors about the file.
    pub span: Span,
}

/// `on-error "bypass" | "servfail" | "refuse"`: what a query gets whose filter failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// As if the filter had passed it. The default.
    #[default]
    Bypass,
    /// SERVFAIL.
    Servfail,
    /// REFUSED.
    Refuse,
}

/// `wasi { … }`: what a filter may have of WASI.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wasi {
    /// `clock`: the time of day, and how much of it passes.
    pub clock: bool,
    /// `random`: random numbers that differ.
    pub random: bool,
    /// `env "NAME"…`: these variables of the proxy's environment.
    pub env: Vec<String>,
    /// `folder "PATH"`, as often as it is written.
    pub folders: Vec<Folder>,
}

/// A folder that a filter may read while it is being configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// As it is written, and as the filter sees it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Stands for what was in it when the configuration was read.
    pub state: u64,
}

/// `limits memory="16MiB" time="5ms" load-memory="128MiB" load-time="30s" tables="8MiB" data="256MiB" refresh-memory="64MiB" refresh-time="30s"`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory per instance: whole WebAssembly pages of 64 KiB, 1 MiB to 1 GiB.
    pub memory: usize,
    /// Wall time per call, 1 ms to 1 s.
    pub time: Duration,
    /// Bytes that compiling the module may take, 32 MiB to 4 GiB.
    pub load_memory: usize,
    /// Processor time for compiling the module, and as much again for its test cases; 1 s to 1 h.
    pub load_time: Duration,
    /// Bytes of all its tables, up to 1 GiB.
    pub tables: usize,
    /// Bytes of all its data, up to 64 GiB; of what a refresh publishes as many again.
    pub data: usize,
    /// Bytes of linear memory of the instance that refreshes.
    pub refresh_memory: usize,
    /// Processor time of a refresh, 1 s to 1 h.
    pub refresh_time: Duration,
}

/// A node of a `config` block.
#[derive(Debug, Clone)]
pub struct ConfigNode {
    /// What it is called.
    pub name: String,
    /// In order.
    pub arguments: Vec<ConfigValue>,
    /// In order; no name occurs twice.
    pub properties: Vec<(String, ConfigValue)>,
    /// Index of the node it stands in.
    pub parent: Option<usize>,
    /// Where it stands, without its block.
    pub span: Span,
    /// Where each of `arguments` stands.
    pub argument_spans: Vec<Span>,
    /// Where each of `properties` stands.
    pub property_spans: Vec<Span>,
}

/// A part of a [`ConfigNode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// All of it.
    Node,
    /// The argument with this index.
    Argument(usize),
    /// The property with this index among the node's properties.
    Property(usize),
}

/// A value of a `config` block.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigValue {
    /// `#null`
    Null,
    /// `#true`, `#false`
    Boolean(bool),
    /// A number without a fraction.
    Integer(i64),
    /// A number with a fraction or an exponent; finite.
    Decimal(f64),
    /// A text, quoted or not, or the content of a file: `(file)"PATH"`. Shared, since such a one may be large.
    Text(Arc<str>),
    /// A file that the filter reads from where it is kept: `(data)"PATH"`.
    Data(Arc<Data>),
}

/// `zone "NAME"… { … }`: the same pipeline for one or more zones.
#[derive(Debug, Clone)]
pub struct Zone {
    /// Lowercased, in presentation format, ending in a dot; `.` is the root.
    pub names: Vec<String>,
    /// `on "ADDRESS"…`: the listeners on which it answers; none: all.
    pub on: Vec<SocketAddr>,
    /// `from "NETWORK"…`: the clients for whom it answers; none: all for whom no zone of the same name does.
    pub from: Vec<Network>,
    /// Who may ask, of those whom the listener lets ask; none: all.
    pub clients: Option<Clients>,
    /// In the order they are written; at most one `cache`, and nothing below a source that answers everything.
    pub stages: Vec<Stage>,
    /// Where it stands, without its block.
    pub span: Span,
}

/// What a query passes on its way through a zone.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a zone has a few, which are read once")]
pub enum Stage {
    /// `use "NAME"`: index into [`Config::filters`].
    Filter(usize),
    /// `cache { … }`
    Cache(Cache),
    /// Whatever else answers.
    Source(SourceConfig),
}

/// A source of answers: a variant for each word that names one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourceConfig {
    /// `forward "ADDRESS"… { … }`
    Forward(Forward),
    /// `kubernetes { … }`
    Kubernetes(Kubernetes),
    /// `service-entries { … }`
    ServiceEntries(ServiceEntries),
    /// `file "PATH" { … }`
    File(ZoneFile),
    /// `secondary "ADDRESS"… { … }`
    Secondary(Secondary),
}

/// `source "NAME" { … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSource {
    /// What filters call it.
    pub name: String,
    /// What answers.
    pub source: SourceConfig,
}

/// `cache { … }`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cache {
    /// `success min="0s" max="1h"`: bounds of the TTL of positive answers.
    pub success: Keeping,
    /// `denial min="0s" max="30m"`: bounds of the TTL of NXDOMAIN and NODATA (RFC 2308).
    pub denial: Keeping,
    /// `failure "5s"`: how long a failed resolution is remembered; at least 1 s, at most 5 min (RFC 9520).
    pub failure: Duration,
    /// `prefetch hits=2 percent=10`; absent: none.
    pub prefetch: Option<Prefetch>,
    /// `serve-stale "1h" ttl="30s" after="1800ms"` (RFC 8767); absent: never.
    pub serve_stale: Option<ServeStale>,
}

/// How answers of a kind are kept. TTLs are whole seconds, `min` not above `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keeping {
    /// What is lower is raised to this.
    pub min: Duration,
    /// What is higher is lowered to this.
    pub max: Duration,
    /// Whether they are kept at all. The bounds hold for clients all the same.
    pub store: bool,
}

/// An entry asked for at least `hits` times is fetched again in the last `percent` of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefetch {
    /// At least 1.
    pub hits: u32,
    /// 1 to 90.
    pub percent: u8,
}

/// Answers past their TTL are served when nothing fresh is to be had (RFC 8767).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServeStale {
    /// How long past its TTL an entry may be served.
    pub window: Duration,
    /// The TTL such an answer carries; never 0 (RFC 8767 section 4).
    pub ttl: Duration,
    /// How long a client waits for a fresh answer first (RFC 8767 section 5: 1.8 s).
    pub after: Duration,
}

/// `forward "ADDRESS"… { … }`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Forward {
    /// Addresses, or what a resolv.conf named; port 53 unless written.
    pub upstreams: Vec<Upstream>,
    /// `protocol "udp" | "tcp"`, or what all upstreams have for a scheme. With `udp`, a truncated answer is asked for again
    /// over TCP.
    pub protocol: Protocol,
    /// `https-method "POST" | "GET"`: whether queries over HTTPS are sent with GET.
    pub get: bool,
    /// `tls { … }`: how upstreams prove who they are, and we to them.
    pub trust: Trust,
    /// `policy "random" | "round-robin" | "sequential"`
    pub policy: Policy,
    /// `timeout "2s"`: how long one attempt may take.
    pub timeout: Duration,
    /// `deadline "5s"`: how long all attempts may take.
    pub deadline: Duration,
    /// `attempts 4`: how many times a query is sent at most.
    pub attempts: u32,
    /// `max-fails 2`: failures in a row after which a probe decides whether an upstream is out; 0: never is.
    pub max_fails: u32,
    /// `probe "500ms"`: how often an upstream that is out is asked whether it is back.
    pub probe: Duration,
    /// `concurrent 1024`: queries under way at once; one more takes another's place, or gets SERVFAIL.
    pub concurrent: usize,
    /// `jostle "200ms"`: how long a query is safe from others when there are `concurrent`; absent: for as long as
    /// upstreams usually take, 200 ms at most.
    pub jostle: Option<Duration>,
    /// `connections 2`: TCP connections to each upstream, per worker.
    pub connections: usize,
    /// `idle "10s"`: how long an unused TCP connection is kept.
    pub idle: Duration,
    /// `max-age "5m"`: how old a connection may be that takes queries; none: as old as may be.
    pub max_age: Option<Duration>,
    /// `any`: whether queries for ANY are asked, too.
    pub any: bool,
    /// `plain-names "nxdomain"`: whether names of one label have no addresses, and nobody is asked for them.
    pub denies_plain_names: bool,
    /// `except "NAME"…`: names that are left to the next stage, with all below them; lowercased, ending in a dot.
    pub except: Vec<String>,
    /// `next "NXDOMAIN"…`: answers in whose place the next stage is asked.
    pub next: Vec<Next>,
}

/// `"192.0.2.1"`, or `"tls://192.0.2.1%dns.example:853"`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    /// What its certificate is for; none: the address.
    pub name: Option<String>,
    /// Over HTTPS: what is asked for there; begins with a slash.
    pub path: Option<String>,
}

impl Upstream {
    /// As it would be written.
    pub fn spelled(&self, protocol: Protocol) -> String {
        let Protocol::Encrypted(encryption) = protocol else {
            return self.address.to_string();
        };
        let (scheme, port) = (encryption.word(), self.address.port());
        let path = self.path.as_deref().unwrap_or_default();
        let host = match (&self.name, self.address) {
            (None, address) => return format!("{scheme}://{address}{path}"),
            (Some(name), SocketAddr::V4(address)) => format!("{}%{name}", address.ip()),
            (Some(name), SocketAddr::V6(address)) => format!("[{}]%{name}", address.ip()),
        };
        format!("{scheme}://{host}:{port}{path}")
    }
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Upstream {
        Upstream {
            address,
            name: None,
            path: None,
        }
    }
}

/// An answer that is left to the next stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Next {
    /// There is no such name.
    Nxdomain,
    /// The name has no records of the type.
    Nodata,
    /// No upstream could answer.
    Servfail,
    /// No upstream would.
    Refused,
}

/// How an upstream is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// Over UDP, and over TCP what does not fit.
    #[default]
    Udp,
    /// Over TCP only.
    Tcp,
    /// So that nobody on the way can read it.
    Encrypted(Encryption),
}

/// What is spoken where nobody on the way can read it; the scheme of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// `tls://`: TLS (RFC 7858).
    Tls,
    /// `https://`: HTTPS (RFC 8484).
    Https,
    /// `quic://`: QUIC (RFC 9250).
    Quic,
}

impl Encryption {
    /// The scheme, and the word of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Encryption::Tls => "tls",
            Encryption::Https => "https",
            Encryption::Quic => "quic",
        }
    }

    /// The port where none is written.
    pub fn port(self) -> u16 {
        match self {
            // RFC 7858 section 3.1, RFC 9250 section 4.1.1.
            Encryption::Tls | Encryption::Quic => 853,
            Encryption::Https => 443,
        }
    }

    /// What is spoken upon TLS, as the registry of RFC 7301 section 6 calls it.
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Encryption::Tls => b"dot",
            Encryption::Https => b"h2",
            Encryption::Quic => b"doq",
        }
    }
}

impl Forward {
    /// Our side of TLS with its upstreams, if they are encrypted.
    pub fn client(&self) -> Option<tls::Client> {
        match self.protocol {
            Protocol::Udp | Protocol::Tcp => None,
            Protocol::Encrypted(encryption) => Some(tls::Client::new(&self.trust, &[encryption.alpn()])),
        }
    }
}

/// Which upstream is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Any.
    #[default]
    Random,
    /// The one after the last.
    RoundRobin,
    /// The first in the list that is not out.
    Sequential,
}

/// `kubernetes { … }`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kubernetes {
    /// `domain "cluster.local"`: what the names that addresses lead back to end in; lowercased, ending in a dot.
    pub domain: String,
    /// `pods "disabled" | "insecure" | "verified"`
    pub pods: Pods,
    /// `namespaces "NAME"…`: only these; none: all.
    pub namespaces: Vec<String>,
    /// `namespace-labels "SELECTOR"`: only namespaces with these labels.
    pub namespace_labels: Option<String>,
    /// `labels "SELECTOR"`: only services, slices of endpoints and pods with these labels.
    pub labels: Option<String>,
    /// `endpoint-pod-names`: endpoints without a hostname are called like their pods.
    pub endpoint_pod_names: bool,
    /// `ignore-empty-services`: services without endpoints do not exist.
    pub ignore_empty_services: bool,
    /// `ttl "5s"`
    pub ttl: Duration,
    /// `multicluster "ZONE"…`: the domains of services of several clusters; lowercased, each ending in a dot.
    pub multicluster: Vec<String>,
    /// `external "ZONE"… headless=#true apex="LABEL"`: the zones of services' outside addresses.
    pub external: Option<External>,
    /// `autopath "DOMAIN"…`: the first name of a pod's search list is answered with what the whole list comes to; after the
    /// cluster's domains, it has these. Absent: it is not.
    pub autopath: Option<Vec<String>>,
    /// `fallthrough "NAME"…`: names below these that do not exist are left to the next stage; `.` is all.
    pub fallthrough: Vec<String>,
    /// `kubeconfig "FILE" context="NAME"`; absent: the service account of the pod.
    pub kubeconfig: Option<Kubeconfig>,
    /// `wait "1m"`: how long the proxy is not ready at most while nothing is known yet.
    pub wait: Duration,
    /// `memory "256MiB"`: what is known of the cluster may take so many bytes.
    pub memory: usize,
    /// `transfer { … }`: who may have all of the zone; none: nobody.
    pub transfer: Option<Transfer>,
}

/// `external "ZONE"… headless=#true apex="LABEL"`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct External {
    /// The zones; lowercased, each ending in a dot.
    pub zones: Vec<String>,
    /// Whether headless services have their endpoints there.
    pub headless: bool,
    /// The label below which each zone has its own names.
    pub apex: String,
}

/// `service-entries { … }`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceEntries {
    /// `range "240.240.0.0/16"…`: where hosts without addresses have theirs, one of each family at most; none: they have none.
    pub ranges: Vec<Network>,
    /// `namespaces "NAME"…`: only objects of these; none: of all.
    pub namespaces: Vec<String>,
    /// `hosts "NAME"…`: only hosts at or below these; none: all. Lowercased, each ending in a dot.
    pub hosts: Vec<String>,
    /// Names that others answer for, with all below them: those of other zones, of sources beside this one, and the cluster's.
    pub taken: Vec<String>,
    /// `labels "SELECTOR"`: only objects with these labels.
    pub labels: Option<String>,
    /// `ttl "30s"`
    pub ttl: Duration,
    /// `kubeconfig "FILE" context="NAME"`; absent: the service account of the pod.
    pub kubeconfig: Option<Kubeconfig>,
    /// `wait "10s"`: how long the proxy is not ready at most while nothing is known yet.
    pub wait: Duration,
    /// `memory "16MiB"`: what is known may take so many bytes.
    pub memory: usize,
}

/// `file "PATH" { … }`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneFile {
    /// The file.
    pub path: PathBuf,
    /// What it says: of each name of its zone, or of the one that `origin "NAME"` names.
    pub zones: Vec<Arc<Contents>>,
    /// `fallthrough "NAME"…`: names below these that do not exist are left to the next stage; `.` is all.
    pub fallthrough: Vec<String>,
    /// `memory "64MiB"`: what each of the zones may take, in bytes.
    pub memory: usize,
    /// `transfer { … }`: who may have all of it; none: nobody.
    pub transfer: Option<Transfer>,
}

/// `secondary "ADDRESS"… { … }`: a zone that is had from other servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Secondary {
    /// Who has it, asked one after the other; port 53 unless written.
    pub primaries: Vec<SocketAddr>,
    /// The zones: each name of the `zone` block, lowercased, ending in a dot.
    pub origins: Vec<String>,
    /// `key "NAME"`: what is asked is signed with it, and what is said has to be.
    pub key: Option<TsigKey>,
    /// `fallthrough "NAME"…`: names below these that do not exist are left to the next stage; `.` is all.
    pub fallthrough: Vec<String>,
    /// `memory "64MiB"`: what each of the zones may take, in bytes.
    pub memory: usize,
    /// `time "10m"`: how long one primary has for all that it is asked.
    pub time: Duration,
    /// `wait "1m"`: how long the proxy is not ready at most while nothing has come yet.
    pub wait: Duration,
    /// `transfer { … }`: who may have it from here; none: nobody.
    pub transfer: Option<Transfer>,
}

/// `transfer { … }`: who may have all of a zone, and who is told when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// `to "NETWORK"…`: who may ask for it.
    pub to: Vec<Network>,
    /// `key "NAME"`: who asks for it has to sign with this, and it signs what is said.
    pub key: Option<TsigKey>,
    /// `notify "ADDRESS"…`: who is told when it changes; port 53 unless written.
    pub notify: Vec<SocketAddr>,
}

/// `pods "disabled" | "insecure" | "verified"`: which names of pods there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pods {
    /// None.
    #[default]
    Disabled,
    /// That of every address.
    Insecure,
    /// Those of addresses that a pod of the namespace has.
    Verified,
}

/// `kubeconfig "FILE" context="NAME"`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kubeconfig {
    /// The file.
    pub path: PathBuf,
    /// Which of its contexts; none: the current one.
    pub context: Option<String>,
}

/// `pods { … }`: the pods of a node, which may be clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePods {
    /// `node "NAME"`: whose pods.
    pub node: String,
    /// `kubeconfig "FILE" context="NAME"`; absent: the service account of the pod.
    pub kubeconfig: Option<Kubeconfig>,
    /// `wait "10s"`: how long the proxy is not ready at most while nobody is known yet.
    pub wait: Duration,
    /// `memory "16MiB"`: what is known of pods and namespaces may take so many bytes.
    pub memory: usize,
}

/// `node { … }`: the node's network. Checked here, applied by the node set-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// `interface "nodelocaldns"`: the link that carries the listen addresses.
    pub interface: Option<String>,
    /// `iptables`: whether rules are kept.
    pub iptables: bool,
    /// `interval "60s"`: how often all of it is checked.
    pub interval: Duration,
    /// `mode "bypass" | "link-local" | "fall-through"`
    pub mode: NodeMode,
    /// `cluster-dns "10.96.0.10"`: the addresses of the cluster's DNS service.
    pub cluster_dns: Vec<IpAddr>,
    /// `skip-teardown`: leave links and rules when the process ends.
    pub skip_teardown: bool,
    /// `self-test "10.244.255.254"`: the addresses from which the self-test asks, one of each family; none if there is no
    /// self-test.
    pub self_test: Vec<IpAddr>,
}

/// Which rules are kept, and what becomes of queries when the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeMode {
    /// The rules of node-cache: all packets to the listen addresses skip connection tracking.
    Bypass,
    /// For a link-local address that no service stands behind.
    LinkLocal,
    /// Packets skip connection tracking only while a socket takes them; without one, the cluster's
    /// DNS answers.
    #[default]
    FallThrough,
}
