//! Rules, written with the node's own iptables, nft or legacy.
//!
//! What is there is read from the listing of a table and compared by meaning: a rule that someone else
//! wrote with other words or in another order is still the same rule. Rules are ours when they carry a
//! comment of ours or node-cache's *and* an address of ours; no other rule is touched.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output};

use iptables::IPTables;

use super::plan::{COMMENTS, End, Family, Rule, Target};
use super::{Error, Kind, Outcome};

/// Seconds to wait for the xtables lock, as node-cache does.
const WAIT: &str = "-w 5";

/// The exit status of iptables for a resource problem, such as the lock being held.
const RESOURCE_PROBLEM: i32 = 4;

const TABLES: [&str; 3] = ["raw", "filter", "nat"];

/// A rule that is there.
#[derive(Debug, Clone)]
struct Listed {
    rule: Rule,
    /// Everything behind `-A CHAIN`, as listed.
    arguments: String,
}

/// What differs between rules as they are and as they ought to be.
#[derive(Debug, Default)]
pub struct Difference {
    /// Wanted, and not there; in the order of the plan.
    pub missing: Vec<Rule>,
    /// Ours, and not wanted, or there more than once.
    stale: Vec<Listed>,
}

impl Difference {
    /// The rules that are ours and not wanted.
    pub fn stale(&self) -> impl Iterator<Item = &Rule> {
        self.stale.iter().map(|listed| &listed.rule)
    }
}

/// Compares what is there with what is wanted for `addresses`, which must be those of the rules at least.
pub fn compare(wanted: &[Rule], addresses: &[IpAddr]) -> Result<Difference, Error> {
    let mut difference = Difference::default();
    let mut present: HashMap<Rule, usize> = HashMap::new();
    for family in [Family::V4, Family::V6] {
        if !addresses.iter().any(|&address| Family::of(address) == family) {
            continue;
        }
        let tables = Tables::new(family);
        for table in TABLES {
            for listed in tables.list(table)? {
                if !addresses.contains(&listed.rule.address.ip()) {
                    continue;
                }
                let count = present.entry(listed.rule.clone()).or_default();
                *count += 1;
                if *count > 1 || !wanted.contains(&listed.rule) {
                    difference.stale.push(listed);
                }
            }
        }
    }
    difference.missing = wanted
        .iter()
        .filter(|rule| !present.contains_key(rule))
        .cloned()
        .collect();
    Ok(difference)
}

/// Writes what is missing and deletes what is stale. Goes on after an error, and returns all of them.
pub fn settle(difference: &Difference) -> Outcome {
    let mut outcome = Outcome::default();
    let mut tables: HashMap<Family, Tables> = HashMap::new();
    let mut tables = |family| -> Tables { *tables.entry(family).or_insert_with(|| Tables::new(family)) };
    for rule in &difference.missing {
        let written =
            tables(rule.family()).execute(rule.table, &format!("-I {} {}", rule.chain, rule.arguments()));
        outcome.add(written.map(|_| vec![format!("wrote {rule}")]));
    }
    for Listed { rule, arguments } in &difference.stale {
        let deleted = tables(rule.family()).execute(rule.table, &format!("-D {} {arguments}", rule.chain));
        outcome.add(deleted.map(|_| vec![format!("deleted {rule}")]));
    }
    outcome
}

/// The tables of one family.
#[derive(Clone, Copy)]
struct Tables {
    family: Family,
    legacy: bool,
}

impl Tables {
    fn new(family: Family) -> Tables {
        Tables {
            family,
            legacy: uses_legacy(family),
        }
    }

    fn list(&self, table: &'static str) -> Result<Vec<Listed>, Error> {
        // Legacy iptables makes a table by looking at it.
        if self.legacy && !legacy_tables(self.family).iter().any(|name| name == table) {
            return Ok(Vec::new());
        }
        let listing = self.execute(table, "-S")?;
        Ok(String::from_utf8_lossy(&listing.stdout)
            .lines()
            .filter_map(|line| parse(table, line))
            .collect())
    }

    fn execute(&self, table: &str, command: &str) -> Result<Output, Error> {
        let iptables = IPTables {
            cmd: command_for(self.family, self.legacy),
            has_check: true,
            // The crate would wait for the lock forever.
            has_wait: false,
            is_numeric: false,
        };
        let failed = |kind, why: String| {
            Err(Error {
                kind,
                text: format!("{} -t {table} {command}: {}", iptables.cmd, why.trim()),
            })
        };
        match iptables.execute(table, &format!("{WAIT} {command}")) {
            Ok(output) if output.status.success() => Ok(output),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                let locked = output.status.code() == Some(RESOURCE_PROBLEM) && why.contains("lock");
                failed(
                    if locked {
                        Kind::IptablesLock
                    } else {
                        Kind::Iptables
                    },
                    why,
                )
            }
            Err(error) => failed(Kind::Iptables, format!("cannot be started: {error}")),
        }
    }
}

fn command_for(family: Family, legacy: bool) -> &'static str {
    match (family, legacy) {
        (Family::V4, false) => "iptables",
        (Family::V6, false) => "ip6tables",
        (Family::V4, true) => "iptables-legacy",
        (Family::V6, true) => "ip6tables-legacy",
    }
}

/// The names of the legacy tables that the kernel has.
fn legacy_tables(family: Family) -> Vec<String> {
    let file = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    std::fs::read_to_string(file)
        .map(|names| names.lines().map(String::from).collect())
        .unwrap_or_default()
}

/// Whether the node's rules are legacy ones while the plain command writes nft ones. The kubelet and
/// kube-proxy leave chains by which one can tell; on other machines, any rule decides.
fn uses_legacy(family: Family) -> bool {
    if legacy_tables(family).is_empty() {
        return false;
    }
    let hints = |command: &str| {
        let Ok(output) = Command::new(command).output() else {
            return (0, 0);
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let kube = text.lines().filter(|line| line.starts_with(":KUBE-")).count();
        (kube, text.lines().filter(|line| line.starts_with("-A ")).count())
    };
    let (legacy, nft) = match family {
        Family::V4 => ("iptables-legacy-save", "iptables-nft-save"),
        Family::V6 => ("ip6tables-legacy-save", "ip6tables-nft-save"),
    };
    hints(legacy) > hints(nft)
}

/// Reads a line of `iptables -S`, if it is a rule such as we or node-cache write.
fn parse(table: &'static str, line: &str) -> Option<Listed> {
    let (chain, arguments) = line.strip_prefix("-A ")?.split_once(' ')?;
    let chain = ["PREROUTING", "INPUT", "OUTPUT"]
        .into_iter()
        .find(|name| *name == chain)?;
    let comment = COMMENTS
        .into_iter()
        .find(|comment| arguments.contains(&format!("\"{comment}\"")))?;
    let plain = arguments.replace(&format!("--comment \"{comment}\""), "");
    let (mut protocol, mut end, mut ip, mut port, mut target) = (None, None, None, None, None);
    let mut for_socket = false;
    let mut words = plain.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match (word, value) {
            ("-p", value) => protocol = ["tcp", "udp"].into_iter().find(|name| *name == value),
            ("-s" | "-d", value) => {
                end = Some(if word == "-s" {
                    End::Source
                } else {
                    End::Destination
                });
                let (address, length) = value.split_once('/')?;
                let address: IpAddr = address.parse().ok()?;
                if length != (if address.is_ipv4() { "32" } else { "128" }) {
                    return None;
                }
                ip = Some(address);
            }
            ("--sport" | "--dport", value) => port = value.parse().ok(),
            ("-m", "socket") => for_socket = true,
            ("-m", "tcp" | "udp" | "comment") => {}
            ("-j", "NOTRACK") => target = Some(Target::Notrack),
            // The same, as legacy iptables lists it.
            ("-j", "CT") if words.next() == Some("--notrack") => target = Some(Target::Notrack),
            ("-j", "ACCEPT") => target = Some(Target::Accept),
            ("-j", "DNAT") => {
                target = match (words.next(), words.next()) {
                    (Some("--to-destination"), Some(to)) => Some(Target::Dnat(to.parse().ok()?)),
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
    let rule = Rule {
        table,
        chain,
        protocol: protocol?,
        end: end?,
        address: SocketAddr::new(ip?, port?),
        for_socket,
        target: target?,
        comment,
    };
    Some(Listed {
        rule,
        arguments: arguments.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_of_both_kinds_are_read() {
        let nft = "-A PREROUTING -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j NOTRACK";
        let legacy = "-A PREROUTING -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j CT --notrack";
        let nft = parse("raw", nft).unwrap();
        assert_eq!(nft.rule, parse("raw", legacy).unwrap().rule);
        assert_eq!(nft.rule.address, "169.254.20.10:53".parse().unwrap());
        assert_eq!(
            (nft.rule.end, nft.rule.target),
            (End::Destination, Target::Notrack)
        );
        assert!(!nft.rule.for_socket);

        let six = "-A PREROUTING -d fd00::10/128 -p udp -m udp --dport 53 -m socket -m comment --comment \"dnsweir: skip conntrack while a socket takes it\" -j NOTRACK";
        let six = parse("raw", six).unwrap().rule;
        assert_eq!(six.address, "[fd00::10]:53".parse().unwrap());
        assert!(six.for_socket);

        let dnat = "-A PREROUTING -d 169.254.20.10/32 -p udp -m udp --dport 53 -m comment --comment \"dnsweir: without a socket the cluster DNS answers\" -j DNAT --to-destination 10.96.0.10:53";
        assert_eq!(
            parse("nat", dnat).unwrap().rule.target,
            Target::Dnat("10.96.0.10:53".parse().unwrap())
        );
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
        ] {
            assert!(parse("raw", line).is_none(), "{line}");
        }
    }
}
