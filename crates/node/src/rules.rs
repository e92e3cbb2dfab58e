//! Rules, written with the node's own iptables, whether nft or legacy.
//!
//! Existing rules are listed and compared by meaning: a rule that another program wrote with other words or
//! in another order is the same rule. A rule is ours if it has a comment of ours or node-cache's *and* one of
//! our addresses; no other rule is touched.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::process::Output;

use super::error::{Error, Kind};
use super::outcome::Outcome;
use super::peers::others_hold;
use super::plan::{COMMENTS, End, Family, NODE_CACHES, Rule, Target};
use super::program::run;

/// Seconds to wait for the xtables lock.
const WAIT: &str = "3";

/// The exit status of iptables for a resource problem, such as the lock being held.
const RESOURCE_PROBLEM: i32 = 4;

/// The chains that we write into. We list no others: those may have tens of thousands of rules.
pub(crate) const CHAINS: [(&str, &str); 6] = [
    ("raw", "PREROUTING"),
    ("raw", "OUTPUT"),
    ("filter", "INPUT"),
    ("filter", "OUTPUT"),
    ("nat", "PREROUTING"),
    ("nat", "POSTROUTING"),
];

/// An existing rule.
#[derive(Debug, Clone)]
struct Listed {
    rule: Rule,
    /// Everything after `-A CHAIN`, as listed, without the counters.
    arguments: String,
    /// How many packets it has matched.
    packets: u64,
}

/// The difference between the existing rules and the wanted ones.
#[derive(Debug, Default)]
pub struct Difference {
    /// Wanted, but not there; in the order of the plan.
    missing: Vec<Rule>,
    /// Ours, but not wanted or a duplicate.
    stale: Vec<Listed>,
    /// Packets matched by the rules that bring us queries.
    pub packets: u64,
    /// Wanted and there, but shadowed by a rule of node-cache.
    behind: Vec<Rule>,
}

impl Difference {
    /// Leaves out rules that a live node-cache may own: those about addresses that another process is bound
    /// to. Returns these addresses.
    pub fn spare(&mut self) -> Vec<IpAddr> {
        let theirs = self.stale().filter(|rule| rule.may_be_node_caches());
        let mut ips: Vec<IpAddr> = theirs.map(|rule| rule.address.ip()).collect();
        ips.sort_unstable();
        ips.dedup();
        let held = others_hold(&ips);
        self.stale
            .retain(|Listed { rule, .. }| !rule.may_be_node_caches() || !held.contains(&rule.address.ip()));
        held
    }

    /// What is wrong with a wanted rule, if anything.
    pub(crate) fn of_rule(&self, rule: &Rule) -> Option<&'static str> {
        let is_behind = self.behind.contains(rule);
        let wrong = is_behind.then_some("behind node-cache's");
        if self.missing.contains(rule) {
            Some("missing")
        } else {
            wrong
        }
    }

    /// Keeps only what has to be written.
    pub(crate) fn without_stale(self) -> Difference {
        Difference {
            stale: Vec::new(),
            ..self
        }
    }

    /// Keeps only what has to be deleted.
    pub(crate) fn without_missing(self) -> Difference {
        Difference {
            stale: self.stale,
            ..Difference::default()
        }
    }

    /// Leaves out the rules that node-cache may have written.
    pub(crate) fn without_node_caches(mut self) -> Difference {
        self.stale.retain(|listed| !listed.rule.may_be_node_caches());
        self
    }

    /// Our rules that are not wanted.
    pub fn stale(&self) -> impl Iterator<Item = &Rule> {
        self.stale.iter().map(|listed| &listed.rule)
    }
}

/// Compares the existing rules about `addresses` with the wanted ones, whose addresses must be among these.
pub async fn compare(wanted: &[Rule], addresses: &[IpAddr]) -> Result<Difference, Error> {
    let mut difference = Difference::default();
    let mut present: HashMap<Rule, usize> = HashMap::new();
    let listed = list_about(addresses).await?;
    for (place, rule) in listed.iter().map(|listed| &listed.rule).enumerate() {
        if wanted.contains(rule) && listed[..place].iter().any(|before| before.rule.hides(rule)) {
            difference.behind.push(rule.clone());
        }
    }
    for listed in listed {
        if listed.rule.brings_queries() {
            difference.packets += listed.packets;
        }
        let count = present.entry(listed.rule.clone()).or_default();
        *count += 1;
        if *count > 1 || !wanted.contains(&listed.rule) {
            difference.stale.push(listed);
        }
    }
    difference.missing = wanted
        .iter()
        .filter(|rule| !present.contains_key(rule))
        .cloned()
        .collect();
    Ok(difference)
}

/// Lists all rules about these addresses in the form that we or node-cache write.
async fn list_about(addresses: &[IpAddr]) -> Result<Vec<Listed>, Error> {
    let mut all = Vec::new();
    for family in [Family::V4, Family::V6] {
        if !addresses.iter().any(|&address| Family::of(address) == family) {
            continue;
        }
        let tables = Tables::new(family).await?;
        for (table, chain) in CHAINS {
            all.extend(tables.list(table, chain).await?);
        }
    }
    all.retain(|listed| addresses.contains(&listed.rule.address.ip()));
    Ok(all)
}

/// Writes missing rules, moves shadowed ones first and deletes stale ones. Continues after errors and returns
/// them all, but stops after a program that hung: the next one would hang, too.
pub async fn settle(difference: &Difference) -> Outcome {
    let mut outcome = Outcome::default();
    let mut known: HashMap<Family, Tables> = HashMap::new();
    let missing = difference.missing.iter().map(|rule| {
        let command = format!("-I {} {}", rule.chain, rule.arguments());
        (rule, vec![command], "wrote")
    });
    let behind = difference.behind.iter().map(|rule| {
        let commands = ["-D", "-I"].map(|verb| format!("{verb} {} {}", rule.chain, rule.arguments()));
        (rule, commands.to_vec(), "put first")
    });
    let stale = difference.stale.iter().map(|Listed { rule, arguments, .. }| {
        let command = format!("-D {} {arguments}", rule.chain);
        (rule, vec![command], "deleted")
    });
    for (rule, commands, did) in missing.chain(behind).chain(stale) {
        let done = async {
            let family = rule.family();
            let tables = match known.get(&family) {
                Some(tables) => *tables,
                None => *known.entry(family).or_insert(Tables::new(family).await?),
            };
            for command in &commands {
                tables.execute(rule.table, command).await?;
            }
            Ok(vec![format!("{did} {rule}")])
        };
        outcome.add(done.await);
        if outcome.errors.iter().any(|error| error.kind == Kind::Deadline) {
            break;
        }
    }
    outcome
}

/// The rules of a chain, whoever wrote them, without `-A CHAIN`; empty if there is no such table.
pub(crate) async fn list_chain(family: Family, table: &str, chain: &str) -> Result<Vec<String>, Error> {
    let tables = Tables::new(family).await?;
    if tables.lacks(table) {
        return Ok(Vec::new());
    }
    let listing = tables.execute(table, &format!("-S {chain}")).await?;
    let text = String::from_utf8_lossy(&listing.stdout);
    let start = format!("-A {chain} ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    Ok(lines.map(String::from).collect())
}

/// Returns an error if a rule is not there, or if iptables or the kernel do not support what is in it.
pub async fn is_there(rule: &Rule) -> Result<(), Error> {
    let tables = Tables::new(rule.family()).await?;
    let command = format!("-C {} {}", rule.chain, rule.arguments());
    tables.execute(rule.table, &command).await.map(|_| ())
}

/// Runs one command on a table.
pub async fn change(family: Family, table: &str, command: &str) -> Result<(), Error> {
    Tables::new(family)
        .await?
        .execute(table, command)
        .await
        .map(|_| ())
}

/// Returns whether this is a comment of node-cache's rules.
pub(crate) fn is_node_caches(comment: &str) -> bool {
    NODE_CACHES.contains(&comment)
}

/// The tables of one address family.
#[derive(Clone, Copy)]
struct Tables {
    family: Family,
    legacy: bool,
}

impl Tables {
    async fn new(family: Family) -> Result<Tables, Error> {
        let legacy = uses_legacy(family).await?;
        Ok(Tables { family, legacy })
    }

    /// Returns whether the table is missing. Asking legacy iptables would create it.
    fn lacks(&self, table: &str) -> bool {
        self.legacy && !legacy_tables(self.family).iter().any(|name| name == table)
    }

    async fn list(&self, table: &'static str, chain: &str) -> Result<Vec<Listed>, Error> {
        if self.lacks(table) {
            return Ok(Vec::new());
        }
        let listing = self.execute(table, &format!("-v -S {chain}")).await?;
        Ok(String::from_utf8_lossy(&listing.stdout)
            .lines()
            .filter_map(|line| parse(table, line))
            .collect())
    }

    async fn execute(&self, table: &str, command: &str) -> Result<Output, Error> {
        let program = command_for(self.family, self.legacy);
        let mut arguments = vec!["-w", WAIT, "-t", table];
        arguments.extend(words(command));
        let output = run(program, &arguments, "").await?;
        if output.status.success() {
            return Ok(output);
        }
        let why = String::from_utf8_lossy(&output.stderr);
        let locked = output.status.code() == Some(RESOURCE_PROBLEM) && why.contains("lock");
        Err(Error {
            kind: if locked {
                Kind::IptablesLock
            } else {
                Kind::Iptables
            },
            text: format!("{program} -t {table} {command}: {}", why.trim()),
        })
    }
}

/// Splits a command into words; quoted text is one word.
fn words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (index, part) in command.split('"').enumerate() {
        if index % 2 == 0 {
            words.extend(part.split_ascii_whitespace());
        } else {
            words.push(part);
        }
    }
    words
}

fn command_for(family: Family, legacy: bool) -> &'static str {
    match (family, legacy) {
        (Family::V4, false) => "iptables",
        (Family::V6, false) => "ip6tables",
        (Family::V4, true) => "iptables-legacy",
        (Family::V6, true) => "ip6tables-legacy",
    }
}

/// The names of the legacy tables in the kernel.
fn legacy_tables(family: Family) -> Vec<String> {
    let file = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    std::fs::read_to_string(file)
        .map(|names| names.lines().map(String::from).collect())
        .unwrap_or_default()
}

/// Returns whether the node's rules are legacy ones although the plain command may write nft ones. On
/// Kubernetes nodes, the chains of the kubelet and kube-proxy decide: all leave some in `mangle`, a small
/// table. Elsewhere any rule does.
async fn uses_legacy(family: Family) -> Result<bool, Error> {
    if legacy_tables(family).is_empty() {
        return Ok(false);
    }
    let (legacy, nft) = match family {
        Family::V4 => ("iptables-legacy-save", "iptables-nft-save"),
        Family::V6 => ("ip6tables-legacy-save", "ip6tables-nft-save"),
    };
    let small = (
        hints(legacy, &["-t", "mangle"]).await?,
        hints(nft, &["-t", "mangle"]).await?,
    );
    if (small.0.kube, small.1.kube) != (0, 0) {
        return Ok(small.0 > small.1);
    }
    Ok(hints(legacy, &[]).await? > hints(nft, &[]).await?)
}

/// How much a set of tables is used.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Hints {
    /// Kubernetes' chains.
    kube: usize,
    rules: usize,
}

async fn hints(program: &str, arguments: &[&str]) -> Result<Hints, Error> {
    let output = match run(program, arguments, "").await {
        Ok(output) => output,
        Err(failure) if failure.is_missing() => return Ok(Hints::default()),
        Err(failure) => return Err(failure.into()),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let count = |start| text.lines().filter(|line| line.starts_with(start)).count();
    Ok(Hints {
        kube: count(":KUBE-"),
        rules: count("-A "),
    })
}

/// Parses a line of `iptables -S` if the rule has the form that we or node-cache write.
fn parse(table: &'static str, line: &str) -> Option<Listed> {
    let (chain, arguments) = line.strip_prefix("-A ")?.split_once(' ')?;
    let chain = ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]
        .into_iter()
        .find(|name| *name == chain)?;
    let comment = COMMENTS
        .into_iter()
        .find(|comment| arguments.contains(&format!("\"{comment}\"")))?;
    let (arguments, packets) = without_counts(arguments);
    let plain = arguments.replace(&format!("--comment \"{comment}\""), "");
    // Our only rule with negated matches.
    let is_leaving = plain.contains("! -o lo ") && plain.contains("! --sport ");
    let plain = if is_leaving {
        plain.replace("! -o lo ", "").replace("! --sport ", "--sport ")
    } else {
        plain
    };
    let words = Words::read(&plain)?;
    if is_leaving != (words.target == Some(Target::Masquerade)) {
        return None;
    }
    let (end, ip) = words.end?;
    let rule = Rule {
        table,
        chain,
        protocol: words.protocol?,
        end,
        address: SocketAddr::new(ip, words.port?),
        for_socket: words.for_socket,
        target: words.target?,
        comment,
    };
    Some(Listed {
        rule,
        arguments,
        packets,
    })
}

/// The parts of a rule that have been parsed so far.
#[derive(Default)]
struct Words {
    protocol: Option<&'static str>,
    end: Option<(End, IpAddr)>,
    port: Option<u16>,
    for_socket: bool,
    target: Option<Target>,
}

impl Words {
    /// Returns `None` if it contains a word that we never write.
    fn read(text: &str) -> Option<Words> {
        let mut read = Words::default();
        let mut words = text.split_ascii_whitespace();
        while let Some(word) = words.next() {
            match (word, words.next().unwrap_or_default()) {
                ("-p", value) => read.protocol = ["tcp", "udp"].into_iter().find(|name| *name == value),
                ("-s", value) => read.end = Some((End::Source, single(value)?)),
                ("-d", value) => read.end = Some((End::Destination, single(value)?)),
                ("--sport" | "--dport", value) => read.port = value.parse().ok(),
                ("-m", "socket") => read.for_socket = true,
                ("-m", "tcp" | "udp" | "comment") => {}
                ("-j", name) => read.target = Some(target(name, &mut words)?),
                _ => return None,
            }
        }
        Some(read)
    }
}

/// The address of a /32 or /128.
fn single(network: &str) -> Option<IpAddr> {
    let (address, length) = network.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    (length == if address.is_ipv4() { "32" } else { "128" }).then_some(address)
}

/// Parses a target from its name and the words after it.
fn target<'a>(name: &str, words: &mut impl Iterator<Item = &'a str>) -> Option<Target> {
    match name {
        "NOTRACK" => Some(Target::Notrack),
        // How legacy iptables lists NOTRACK.
        "CT" if words.next() == Some("--notrack") => Some(Target::Notrack),
        "ACCEPT" => Some(Target::Accept),
        "MASQUERADE" => Some(Target::Masquerade),
        "DNAT" if words.next() == Some("--to-destination") => Some(Target::Dnat(words.next()?.parse().ok()?)),
        _ => None,
    }
}

/// The arguments of a rule without `-c PACKETS OCTETS`, and its packet count.
fn without_counts(arguments: &str) -> (String, u64) {
    let counts = arguments.split_once(" -c ").and_then(|(before, counts)| {
        let (packets, behind) = counts.split_once(' ')?;
        let (octets, after) = behind.split_once(' ').unwrap_or((behind, ""));
        let _: u64 = octets.parse().ok()?;
        Some((
            format!("{before} {after}").trim_end().to_string(),
            packets.parse().ok()?,
        ))
    });
    counts.unwrap_or((arguments.to_string(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_of_both_kinds_are_read() {
        let written = "-A PREROUTING -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j NOTRACK";
        let legacy = "-A PREROUTING -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j CT --notrack";
        let nft = parse("raw", written).unwrap();
        assert_eq!(nft.rule, parse("raw", legacy).unwrap().rule);
        assert_eq!(nft.rule.address, "169.254.20.10:53".parse().unwrap());
        assert_eq!(
            (nft.rule.end, nft.rule.target),
            (End::Destination, Target::Notrack)
        );
        assert!(!nft.rule.for_socket);
        assert_eq!(
            (nft.packets, &*nft.arguments),
            (0, &written["-A PREROUTING ".len()..])
        );
        let counted = parse("raw", &written.replace(" -j", " -c 12 720 -j")).unwrap();
        assert_eq!((counted.packets, counted.arguments), (12, nft.arguments));

        let six = "-A PREROUTING -d fd00::10/128 -p udp -m udp --dport 53 -m socket -m comment --comment \"dnsweir: skip conntrack while a socket takes it\" -j NOTRACK";
        let six = parse("raw", six).unwrap().rule;
        assert_eq!(six.address, "[fd00::10]:53".parse().unwrap());
        assert!(six.for_socket);

        let dnat = "-A PREROUTING -d 169.254.20.10/32 -p udp -m udp --dport 53 -m comment --comment \"dnsweir: without a socket the cluster DNS answers\" -j DNAT --to-destination 10.96.0.10:53";
        assert_eq!(
            parse("nat", dnat).unwrap().rule.target,
            Target::Dnat("10.96.0.10:53".parse().unwrap())
        );

        let leaving = "-A POSTROUTING -s 10.96.0.10/32 ! -o lo -p udp -m udp ! --sport 53 -m comment --comment \"dnsweir: what leaves the node bears its own address\" -j MASQUERADE";
        let leaving = parse("nat", leaving).unwrap().rule;
        assert_eq!((leaving.end, leaving.target), (End::Source, Target::Masquerade));
        assert_eq!(leaving.address, "10.96.0.10:53".parse().unwrap());
    }

    #[test]
    fn what_others_wrote_is_not_ours() {
        for line in [
            "-P PREROUTING ACCEPT",
            "-N KUBE-SERVICES",
            "-A PREROUTING -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -j NOTRACK",
            "-A PREROUTING -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -m comment --comment mine -j NOTRACK",
            "-A KUBE-FIREWALL -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j NOTRACK",
            "-A PREROUTING -d 169.254.0.0/16 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j NOTRACK",
            "-A PREROUTING ! -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j NOTRACK",
            "-A PREROUTING -d 169.254.20.10/32 -i eth0 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j NOTRACK",
            "-A PREROUTING -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j DROP",
            "-A POSTROUTING -s 10.96.0.10/32 -p udp -m udp --sport 53 -m comment --comment \"dnsweir: what leaves the node bears its own address\" -j MASQUERADE",
        ] {
            assert!(parse("raw", line).is_none(), "{line}");
        }
    }
}
