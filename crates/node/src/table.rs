//! The nft table `inet dnsweir`: what iptables cannot do.
//!
//! *Heartbeats.* An iptables rule with `-m socket` sees that a socket exists, not that anything reads it. So
//! the reader of the socket sends packets from it to its own address, port [`HEARTBEAT_PORT`]. A rule drops
//! them and adds the address to a set, where it expires after [`FORGOTTEN`]. Queries to an address that is
//! not in the set are tracked, before any other rule can prevent that: docs/decisions/0008-heartbeats.md.
//!
//! *The node's own queries.* Queries of the proxy to the cluster's DNS, at an address that it listens on
//! itself, are tracked and therefore translated, whatever other programs' rules say and in whatever order:
//! the same statement that sends a client's query past us sends ours to the cluster.
//!
//! *Detours.* Where no service stands behind an address, packets that no socket takes get a new destination:
//! docs/decisions/0006-detours.md.
//!
//! The table is ours alone and has only lines that [`lines`] writes. Lines are compared one by one and
//! written in one transaction. The sets survive that, so a rewrite loses no heartbeats.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::process::Output;
use std::time::Duration;

use super::error::{Error, Kind};
use super::outcome::Outcome;
use super::plan::{Plan, Rule};
use super::program::{Failure, run};

/// The destination port of heartbeats, at the sender's own address. No program uses it (RFC 1078).
pub const HEARTBEAT_PORT: u16 = 1;

/// How long an address without heartbeats stays in the set: three may be late.
pub(crate) const FORGOTTEN: Duration = Duration::from_millis(400);

/// Matches packets that a socket takes: no socket of ours is transparent.
const SOCKET: &str = " socket transparent 0 ";

/// The table, in the family `inet`.
pub(super) const TABLE: &str = "dnsweir";

/// A chain of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// Records heartbeats in the sets.
    Heartbeat,
    /// Has packets tracked whose destination has sent no recent heartbeat.
    Unheard,
    /// Has the node's own queries tracked.
    Asked,
    /// Rewrites destinations.
    Detour,
}

impl Chain {
    const ALL: [Chain; 4] = [Chain::Heartbeat, Chain::Unheard, Chain::Asked, Chain::Detour];

    fn name(self) -> &'static str {
        match self {
            Chain::Heartbeat => "heartbeat",
            Chain::Unheard => "unheard",
            Chain::Asked => "asked",
            Chain::Detour => "detour",
        }
    }

    /// Ten before iptables' raw table at -300; `mangle` runs after connection tracking and before NAT.
    fn hook(self) -> &'static str {
        match self {
            Chain::Heartbeat | Chain::Asked => "hook output priority -310",
            Chain::Unheard => "hook prerouting priority -310",
            Chain::Detour => "hook prerouting priority mangle",
        }
    }
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    chain: Chain,
    /// As nft lists it, without the counts.
    text: String,
}

/// As an operator would search for it.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nft {}", self.text)
    }
}

impl Line {
    /// Returns whether the node can do without this line.
    fn is_optional(&self) -> bool {
        self.chain != Chain::Detour || self.matches_socket()
    }

    /// Returns whether it needs a kernel that matches sockets in nft's rules.
    fn matches_socket(&self) -> bool {
        self.text.contains(SOCKET)
    }
}

/// The lines of a plan.
pub fn lines(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |chain, text| lines.push(Line { chain, text });
    let heartbeats = plan.heartbeats();
    for listener in &heartbeats {
        let (family, ip, port) = (family(listener.ip()), listener.ip(), listener.port());
        let set = set(listener.ip());
        add(
            Chain::Heartbeat,
            format!(
                "{family} saddr {ip} udp sport {port} udp dport {HEARTBEAT_PORT} update @{set} {{ {family} saddr }} drop"
            ),
        );
        for protocol in ["udp", "tcp"] {
            // A packet that is assigned to a conntrack zone is tracked even if a later rule says NOTRACK,
            // since xt_CT and nft_ct leave such packets alone. Zone 0 is the default zone.
            add(
                Chain::Unheard,
                format!(
                    "{family} daddr {ip} {protocol} dport {port} {family} daddr != @{set} counter ct zone set 0"
                ),
            );
        }
    }
    lines.extend(asked(&plan.rules));
    let mut add = |chain, text| lines.push(Line { chain, text });
    for detour in &plan.detours {
        let (from, to) = (detour.from, detour.to);
        let family = family(to);
        for protocol in ["udp", "tcp"] {
            let query = format!("{family} daddr {} {protocol} dport {}", from.ip(), from.port());
            // A socket takes these: the socket-matching rule left them untracked.
            add(
                Chain::Detour,
                format!("{query} ct state invalid,untracked accept"),
            );
            // It takes these, too, while somebody has flushed that rule: then kube-proxy's rules may be gone as well,
            // and the detour would lead nowhere.
            if heartbeats.contains(&from) {
                let set = set(from.ip());
                add(
                    Chain::Detour,
                    format!("{query} {family} daddr @{set}{SOCKET}accept"),
                );
            }
            add(Chain::Detour, format!("{query} {family} daddr set {to} accept"));
        }
    }
    lines
}

/// The lines beside rules that track the node's own queries: other programs' rules may come before those.
pub fn asked(rules: &[Rule]) -> Vec<Line> {
    let tracked = rules.iter().filter(|rule| rule.has_queries_tracked());
    let lines = tracked.map(|rule| {
        let (ip, port, protocol) = (rule.address.ip(), rule.address.port(), rule.protocol);
        Line {
            chain: Chain::Asked,
            text: format!("{} daddr {ip} {protocol} dport {port} ct zone set 0", family(ip)),
        }
    });
    lines.collect()
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "ip" } else { "ip6" }
}

fn set(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "alive4" } else { "alive6" }
}

/// The difference between the table and the wanted lines.
#[derive(Debug, Default)]
pub struct Difference {
    /// Wanted, but not there.
    pub missing: Vec<Line>,
    /// About one of our addresses, but not wanted.
    pub stale: Vec<Line>,
    /// Why heartbeats are not supported, where they are wanted.
    pub shortfall: Option<String>,
    /// Packets that bypassed us for lack of heartbeats since the table was written.
    pub unheard: u64,
    /// The chains that exist.
    chains: Vec<Chain>,
    /// All lines of the wanted table, those about other processes' addresses first.
    pub(super) target: Vec<Line>,
    /// Whether the table differs from `target`.
    differs: bool,
}

impl Difference {
    /// Keeps only what has to be deleted.
    pub(crate) fn without_missing(mut self) -> Difference {
        let missing = std::mem::take(&mut self.missing);
        self.target.retain(|line| !missing.contains(line));
        self.differs = !self.stale.is_empty();
        self
    }
}

/// Compares the table with the lines wanted for `addresses`. Heartbeat lines that this machine does not
/// support do not count as missing: [`Difference::shortfall`] says why.
pub async fn compare(wanted: &[Line], addresses: &[IpAddr]) -> Result<Difference, Error> {
    let required: Vec<Line> = wanted
        .iter()
        .filter(|line| !line.is_optional())
        .cloned()
        .collect();
    let found = match list().await {
        Ok(found) => found,
        // Without nft, there can be no table of ours.
        Err(failure) if failure.is_missing() && required.is_empty() => {
            return Ok(Difference {
                shortfall: (!wanted.is_empty()).then(|| Error::from(failure).to_string()),
                ..Difference::default()
            });
        }
        Err(failure) => return Err(failure.into()),
    };
    // What the kernel does not support is left out: first the matching of sockets, then heartbeats.
    let without_sockets: Vec<Line> = wanted
        .iter()
        .filter(|line| !line.matches_socket())
        .cloned()
        .collect();
    let mut shortfall = None;
    for lines in [wanted, &without_sockets] {
        let difference = difference(lines, &found, addresses);
        if !difference.missing.iter().any(Line::is_optional) {
            return Ok(difference);
        }
        // `--check` asks the kernel without changing anything.
        match write(&difference, &["--check"]).await {
            Err(error) if error.kind != Kind::Deadline => shortfall = Some(error.to_string()),
            _ => return Ok(difference),
        }
    }
    Ok(Difference {
        shortfall,
        ..difference(&required, &found, addresses)
    })
}

fn difference(wanted: &[Line], found: &Found, addresses: &[IpAddr]) -> Difference {
    let ours = |line: &&Line| address_of(&line.text).is_some_and(|ip| addresses.contains(&ip));
    let mut target: Vec<Line> = found.lines.iter().filter(|line| !ours(line)).cloned().collect();
    target.extend(wanted.iter().cloned());
    let without = |one: &[Line], other: &[Line]| {
        let lines = one.iter().filter(|line| !other.contains(line));
        lines.cloned().collect()
    };
    // Order matters only within a chain.
    let by_chain = |lines: &[Line]| {
        let of = |chain| lines.iter().filter(move |line| line.chain == chain);
        Chain::ALL.into_iter().flat_map(of).cloned().collect::<Vec<_>>()
    };
    Difference {
        missing: without(wanted, &found.lines),
        stale: without(&found.lines, &target),
        shortfall: None,
        unheard: found.unheard,
        chains: found.chains.clone(),
        differs: by_chain(&found.lines) != by_chain(&target),
        target,
    }
}

/// Brings the table to the wanted state in one transaction; removes it if there are no lines.
pub async fn settle(difference: &Difference) -> Outcome {
    let mut outcome = Outcome {
        shortfall: difference.shortfall.clone(),
        ..Outcome::default()
    };
    if !difference.differs {
        return outcome;
    }
    outcome.add(write(difference, &[]).await.map(|()| {
        let written = difference.missing.iter().map(|line| format!("wrote {line}"));
        let deleted = difference.stale.iter().map(|line| format!("deleted {line}"));
        written.chain(deleted).collect()
    }));
    outcome
}

async fn write(difference: &Difference, options: &[&str]) -> Result<(), Error> {
    let output = run("nft", &[options, &["-f", "-"]].concat(), &script(difference)).await?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error {
        kind: Kind::Iptables,
        text: format!(
            "nft, table {TABLE}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    })
}

/// The nft script that brings the table to the wanted state.
fn script(difference: &Difference) -> String {
    use std::fmt::Write as _;
    let target = &difference.target;
    if target.is_empty() {
        // Deleting a missing table is an error, so create it first.
        return format!("table inet {TABLE}\ndelete table inet {TABLE}\n");
    }
    let used = |chain| target.iter().any(|line| line.chain == chain);
    let mut script = format!("table inet {TABLE} {{\n");
    if used(Chain::Heartbeat) {
        for (set, kind) in [("alive4", "ipv4_addr"), ("alive6", "ipv6_addr")] {
            let _ = writeln!(
                script,
                "set {set} {{ type {kind}; size 1024; flags dynamic,timeout; timeout {}ms; {}}}",
                FORGOTTEN.as_millis(),
                first_elements(difference, set)
            );
        }
    }
    for chain in Chain::ALL.into_iter().filter(|&chain| used(chain)) {
        let _ = writeln!(
            script,
            "chain {} {{ type filter {}; policy accept; }}",
            chain.name(),
            chain.hook()
        );
    }
    script += "}\n";
    for chain in Chain::ALL {
        if used(chain) || difference.chains.contains(&chain) {
            let _ = writeln!(script, "flush chain inet {TABLE} {}", chain.name());
        }
        // Every chain costs each packet of the node a lookup.
        if !used(chain) && difference.chains.contains(&chain) {
            let _ = writeln!(script, "delete chain inet {TABLE} {}", chain.name());
        }
    }
    for line in target {
        let _ = writeln!(
            script,
            "add rule inet {TABLE} {} {}",
            line.chain.name(),
            line.text
        );
    }
    script
}

/// The elements for listeners whose heartbeats no line records yet: they are taken for alive until the next one.
/// Otherwise queries would pass them by when somebody flushes all rules, just when the cluster's DNS cannot be
/// reached either.
fn first_elements(difference: &Difference, set: &str) -> String {
    let heartbeats = difference
        .missing
        .iter()
        .filter(|line| line.chain == Chain::Heartbeat);
    let of_set = heartbeats
        .filter_map(|line| address_of(&line.text))
        .filter(|ip| self::set(*ip) == set);
    let elements: Vec<String> = of_set.map(|ip| ip.to_string()).collect();
    match elements.is_empty() {
        true => String::new(),
        false => format!("elements = {{ {} }}; ", elements.join(", ")),
    }
}

/// The table that exists.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    chains: Vec<Chain>,
    lines: Vec<Line>,
    unheard: u64,
}

async fn list() -> Result<Found, Failure> {
    // `--terse` leaves out the elements of sets.
    let output: Output = run("nft", &["--terse", "list", "table", "inet", TABLE], "").await?;
    // It fails, with no output, if there is no table.
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

fn parse(text: &str) -> Found {
    let mut found = Found::default();
    let mut within = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line
            .strip_prefix("chain ")
            .and_then(|line| line.strip_suffix(" {"))
        {
            within = Chain::ALL.into_iter().find(|chain| chain.name() == name);
            found.chains.extend(within);
        }
        if let (Some(chain), Some(_)) = (within, address_of(line)) {
            let (text, packets) = without_counts(line);
            if chain == Chain::Unheard {
                found.unheard += packets;
            }
            found.lines.push(Line { chain, text });
        }
    }
    found
}

/// A line without its counter values, and the packet count.
fn without_counts(line: &str) -> (String, u64) {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    let Some(at) = words.windows(2).position(|pair| pair == ["counter", "packets"]) else {
        return (line.to_string(), 0);
    };
    let packets = words.get(at + 2).and_then(|count| count.parse().ok());
    // "packets 7 bytes 420"
    words.drain(at + 1..(at + 5).min(words.len()));
    (words.join(" "), packets.unwrap_or_default())
}

/// The listener's address in a line.
fn address_of(line: &str) -> Option<IpAddr> {
    let mut words = line.split_ascii_whitespace();
    let (family, end) = (words.next()?, words.next()?);
    let ip = words.next()?.parse().ok()?;
    (matches!(family, "ip" | "ip6") && matches!(end, "saddr" | "daddr")).then_some(ip)
}

impl Plan {
    /// The listeners whose rules hold only while heartbeats come from the readers of their sockets.
    pub fn heartbeats(&self) -> Vec<SocketAddr> {
        let mut listeners: Vec<SocketAddr> = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.for_socket) {
            if !listeners.contains(&rule.address) {
                listeners.push(rule.address);
            }
        }
        listeners
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn planned(listen: &str) -> Vec<Line> {
        let text = format!(
            "listen {listen}\nzone \".\" {{ forward \"192.0.2.1\" }}\n\
             node {{ iptables; cluster-dns \"10.96.0.10\" \"fd00:96::10\" }}"
        );
        let config = config::parse("test", &text, std::path::Path::new("/"), &[]);
        lines(&Plan::of(&config.unwrap()))
    }

    fn listed(lines: &[Line]) -> Found {
        Found {
            chains: Chain::ALL
                .into_iter()
                .filter(|&chain| lines.iter().any(|line| line.chain == chain))
                .collect(),
            lines: lines.to_vec(),
            unheard: 0,
        }
    }

    #[test]
    fn lines_say_whose_they_are() {
        let lines = planned("\"10.96.0.10\" \"fd00:20::10\"");
        let of = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            lines
                .iter()
                .filter(|line| address_of(&line.text) == Some(ip))
                .count()
        };
        assert_eq!((of("10.96.0.10"), of("fd00:20::10")), (5, 9));
        assert_eq!(lines.len(), 14);
        assert_eq!(address_of("type filter hook prerouting priority mangle;"), None);
    }

    #[test]
    fn a_listing_is_read() {
        let found = parse(
            "table inet dnsweir {\n\tset alive4 {\n\t\ttype ipv4_addr\n\t\tsize 1024\n\t\tflags dynamic,timeout\n\t}\n\n\
             \tchain heartbeat {\n\t\ttype filter hook output priority raw - 10; policy accept;\n\
             \t\tip saddr 10.96.0.10 udp sport 53 udp dport 1 update @alive4 { ip saddr } drop\n\t}\n\n\
             \tchain unheard {\n\t\ttype filter hook prerouting priority raw - 10; policy accept;\n\
             \t\tip daddr 10.96.0.10 udp dport 53 ip daddr != @alive4 counter packets 7 bytes 420 ct zone set 0\n\
             \t\tip daddr 10.96.0.10 tcp dport 53 ip daddr != @alive4 counter packets 2 bytes 120 ct zone set 0\n\t}\n\n\
             \tchain asked {\n\t\ttype filter hook output priority raw - 10; policy accept;\n\
             \t\tip daddr 10.96.0.10 tcp dport 53 ct zone set 0\n\t\tip daddr 10.96.0.10 udp dport 53 ct zone set 0\n\t}\n}\n",
        );
        assert_eq!(found.lines, planned("\"10.96.0.10\""));
        assert_eq!(found.chains, [Chain::Heartbeat, Chain::Unheard, Chain::Asked]);
        assert_eq!(found.unheard, 9);
    }

    #[test]
    fn what_is_there_is_not_written_again() {
        let wanted = planned("\"10.96.0.10\" \"169.254.20.10\"");
        let ips = ["10.96.0.10", "169.254.20.10"].map(|ip| ip.parse().unwrap());
        let same = difference(&wanted, &listed(&wanted), &ips);
        assert!(!same.differs && same.missing.is_empty() && same.stale.is_empty());

        // Another process's lines stay.
        let mut both = planned("\"fd00:20::10\"");
        both.extend(wanted.clone());
        let gone = difference(&[], &listed(&both), &ips);
        assert_eq!((gone.stale.len(), gone.target.len()), (wanted.len(), 9));
        let script_of_gone = script(&gone);
        let deleted: Vec<_> = script_of_gone
            .lines()
            .filter(|line| line.starts_with("delete"))
            .collect();
        assert_eq!(
            deleted,
            ["delete chain inet dnsweir asked"],
            "the other's chains are needed"
        );

        let nobody = difference(&[], &listed(&wanted), &ips);
        assert_eq!(script(&nobody), "table inet dnsweir\ndelete table inet dnsweir\n");
    }

    /// A rewrite of an existing table must not keep the address of a hanging process alive.
    #[test]
    fn in_a_new_table_the_listeners_are_alive() {
        let wanted = planned("\"10.96.0.10\" \"169.254.20.10\" \"fd00:20::10\"");
        let ips = ["10.96.0.10", "169.254.20.10", "fd00:20::10"].map(|ip| ip.parse().unwrap());
        let new = script(&difference(&wanted, &Found::default(), &ips));
        assert!(
            new.contains("timeout 400ms; elements = { 10.96.0.10, 169.254.20.10 }; }"),
            "{new}"
        );
        assert!(
            new.contains("timeout 400ms; elements = { fd00:20::10 }; }"),
            "{new}"
        );
        let mut found = listed(&wanted);
        found.lines.pop();
        let rewritten = script(&difference(&wanted, &found, &ips));
        assert!(!rewritten.contains("elements"), "{rewritten}");
    }

    #[test]
    fn chains_without_lines_go() {
        let old = planned("\"10.96.0.10\" \"169.254.20.10\"");
        let ips = ["10.96.0.10", "169.254.20.10"].map(|ip| ip.parse().unwrap());
        let script = script(&difference(&planned("\"10.96.0.10\""), &listed(&old), &ips));
        assert!(
            script.contains("flush chain inet dnsweir detour\ndelete chain inet dnsweir detour\n"),
            "{script}"
        );
    }
}
