//! The nft table `inet dnsweir`: what iptables cannot do.
//!
//! *Heartbeats.* A rule of iptables that asks for a socket (`-m socket`) sees that it is there, not that anybody reads it.
//! So whoever reads it sends a packet from it to its own address, [`HEARTBEAT_PORT`], which a rule notes in a set that
//! forgets after [`FORGOTTEN`], and drops. A query to an address that is not in the set is given to connection tracking
//! before any rule could keep it away from there: docs/decisions/0008-heartbeats.md.
//!
//! *The node's own queries.* What the proxy asks the cluster's DNS at the address that it listens on itself is tracked, and so translated,
//! whatever rules of others say, in whatever order: the same words that take a query away from us take it to the cluster.
//!
//! *Detours.* Where no service stands behind an address, what no socket takes has its destination overwritten:
//! docs/decisions/0006-detours.md.
//!
//! The table is ours alone; in it are those lines only that [`lines`] writes. Lines are compared one by one and written
//! at once. The sets outlive that, so that nobody is forgotten because something else is written.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::process::Output;
use std::time::Duration;

use super::error::{Error, Kind};
use super::outcome::Outcome;
use super::plan::{Plan, Rule};
use super::program::{Failure, run};

/// Where heartbeats are sent to, at their own address: nobody's port (RFC 1078).
pub const HEARTBEAT_PORT: u16 = 1;

/// When an address without heartbeats is forgotten: three of them may be late.
pub(crate) const FORGOTTEN: Duration = Duration::from_millis(400);

/// The table, in the family `inet`.
pub(super) const TABLE: &str = "dnsweir";

/// A chain of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// Notes what is sent as a heartbeat.
    Heartbeat,
    /// Has tracked what is sent to whom nothing was heard of.
    Unheard,
    /// Has tracked what the node itself asks.
    Asked,
    /// Overwrites destinations.
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

    /// Ten before iptables' table raw, at -300; `mangle` comes after connection tracking and before NAT.
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
    /// As nft lists it, but for the counts.
    text: String,
}

/// As one would look for it.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nft {}", self.text)
    }
}

impl Line {
    /// What the node can do without.
    pub(crate) fn is_optional(&self) -> bool {
        self.chain != Chain::Detour
    }
}

/// The lines that a plan wants.
pub fn lines(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |chain, text| lines.push(Line { chain, text });
    for listener in plan.heartbeats() {
        let (family, ip, port) = (family(listener.ip()), listener.ip(), listener.port());
        let set = set(listener.ip());
        add(
            Chain::Heartbeat,
            format!(
                "{family} saddr {ip} udp sport {port} udp dport {HEARTBEAT_PORT} update @{set} {{ {family} saddr }} drop"
            ),
        );
        for protocol in ["udp", "tcp"] {
            // A packet that belongs to a zone of connection tracking is tracked, whatever rule says NOTRACK later: all
            // there are (xt_CT, nft_ct) leave it alone. Zone 0 is the one that packets are in anyway.
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
            // What a socket takes: the rule that looks for one leaves it untracked.
            add(
                Chain::Detour,
                format!("{query} ct state invalid,untracked accept"),
            );
            add(Chain::Detour, format!("{query} {family} daddr set {to} accept"));
        }
    }
    lines
}

/// Those that stand beside rules which have the node's own queries tracked: others' rules may come before these.
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

/// What differs between the table as it is and as it ought to be.
#[derive(Debug, Default)]
pub struct Difference {
    /// Wanted, and not there.
    pub missing: Vec<Line>,
    /// There, about one of our addresses, and not wanted.
    pub stale: Vec<Line>,
    /// Why heartbeats are not listened for, where they are wanted.
    pub shortfall: Option<String>,
    /// Packets that went past us since the table was written, because nothing was heard of us.
    pub unheard: u64,
    /// The chains that are there.
    chains: Vec<Chain>,
    /// All lines as they ought to be, those about others' addresses first.
    target: Vec<Line>,
    /// The table is not that.
    differs: bool,
}

impl Difference {
    /// Only what is to be deleted.
    pub(crate) fn without_missing(mut self) -> Difference {
        let missing = std::mem::take(&mut self.missing);
        self.target.retain(|line| !missing.contains(line));
        self.differs = !self.stale.is_empty();
        self
    }
}

/// Compares what is there with what is wanted for `addresses`. Heartbeats that this machine cannot listen for are not
/// missed: [`Difference::shortfall`] says why.
pub async fn compare(wanted: &[Line], addresses: &[IpAddr]) -> Result<Difference, Error> {
    let required: Vec<Line> = wanted
        .iter()
        .filter(|line| !line.is_optional())
        .cloned()
        .collect();
    let found = match list().await {
        Ok(found) => found,
        // Where nft is missing, there is no table of ours.
        Err(failure) if failure.is_missing() && required.is_empty() => {
            return Ok(Difference {
                shortfall: (!wanted.is_empty()).then(|| Error::from(failure).to_string()),
                ..Difference::default()
            });
        }
        Err(failure) => return Err(failure.into()),
    };
    let difference = difference(wanted, &found, addresses);
    if !difference.missing.iter().any(Line::is_optional) {
        return Ok(difference);
    }
    // The kernel is asked, and nothing is changed.
    match write(&difference, &["--check"]).await {
        Err(error) if error.kind != Kind::Deadline => Ok(Difference {
            shortfall: Some(error.to_string()),
            ..self::difference(&required, &found, addresses)
        }),
        _ => Ok(difference),
    }
}

fn difference(wanted: &[Line], found: &Found, addresses: &[IpAddr]) -> Difference {
    let ours = |line: &&Line| address_of(&line.text).is_some_and(|ip| addresses.contains(&ip));
    let mut target: Vec<Line> = found.lines.iter().filter(|line| !ours(line)).cloned().collect();
    target.extend(wanted.iter().cloned());
    let without = |one: &[Line], other: &[Line]| {
        let lines = one.iter().filter(|line| !other.contains(line));
        lines.cloned().collect()
    };
    // The order counts within a chain only.
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

/// Makes the table as it ought to be, at once; without lines, there is none.
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

/// What nft reads to make the table as it ought to be.
fn script(difference: &Difference) -> String {
    use std::fmt::Write as _;
    let target = &difference.target;
    if target.is_empty() {
        // Deleting what is not there is an error: it is made first.
        return format!("table inet {TABLE}\ndelete table inet {TABLE}\n");
    }
    let used = |chain| target.iter().any(|line| line.chain == chain);
    let mut script = format!("table inet {TABLE} {{\n");
    if used(Chain::Heartbeat) {
        for (set, kind) in [("alive4", "ipv4_addr"), ("alive6", "ipv6_addr")] {
            let _ = writeln!(
                script,
                "set {set} {{ type {kind}; size 1024; flags dynamic,timeout; timeout {}ms; }}",
                FORGOTTEN.as_millis()
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
        // A chain costs every packet of the node a look.
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

/// The table as it is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    chains: Vec<Chain>,
    lines: Vec<Line>,
    unheard: u64,
}

async fn list() -> Result<Found, Failure> {
    // Without what is in the sets.
    let output: Output = run("nft", &["--terse", "list", "table", "inet", TABLE], "").await?;
    // Without the table, it fails.
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

/// A line as it is written, and how many packets its counter has counted.
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

/// The listener's address of a line.
fn address_of(line: &str) -> Option<IpAddr> {
    let mut words = line.split_ascii_whitespace();
    let (family, end) = (words.next()?, words.next()?);
    let ip = words.next()?.parse().ok()?;
    (matches!(family, "ip" | "ip6") && matches!(end, "saddr" | "daddr")).then_some(ip)
}

impl Plan {
    /// The listeners whose rules hold while something is heard of those who read their sockets.
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
        assert_eq!((of("10.96.0.10"), of("fd00:20::10")), (5, 7));
        assert_eq!(lines.len(), 12);
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
        assert_eq!((gone.stale.len(), gone.target.len()), (wanted.len(), 7));
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
