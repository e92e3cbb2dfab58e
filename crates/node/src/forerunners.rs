//! Links and rules that other node caches left behind because they were killed or removed. They are
//! recognized by what these programs write, reported, and removed only when an operator asks for it. Whatever
//! belongs to an address that a process is bound to is in use, and always stays.
//!
//! node-cache's rules about our own addresses are not covered here: [`super::rules`] treats them as ours.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use super::error::Error;
use super::network::Network;
use super::outcome::Outcome;
use super::peers::others_hold;
use super::plan::{Family, Link, Plan};
use super::{link, rules};

/// Links that such programs create, and which program does.
const LINKS: [(&str, Author); 2] = [
    ("nodecache", Author::CorednsNodecache),
    // Deckhouse's link has the same name.
    ("nodelocaldns", Author::NodeCache),
];

/// A chain of older versions of Deckhouse's module.
const CHAIN: &str = "NODE-LOCAL-DNS";

/// Returns whether their rules may be in a chain: in all that we write into, except POSTROUTING.
fn may_be_theirs((_, chain): &(&str, &str)) -> bool {
    *chain != "POSTROUTING"
}

/// How many rules contentful's plugin writes per address.
const NODECACHE_RULES: usize = 8;

/// The program that created something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// Kubernetes' NodeLocal DNSCache.
    NodeCache,
    /// contentful's plugin for CoreDNS.
    CorednsNodecache,
    /// Deckhouse's module node-local-dns.
    Deckhouse,
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Author::NodeCache => "node-cache",
            Author::CorednsNodecache => "coredns-nodecache",
            Author::Deckhouse => "Deckhouse's node-local-dns",
        })
    }
}

/// Something that another node cache created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The program that most likely created it.
    pub author: Author,
    /// The addresses it concerns.
    pub ips: Vec<IpAddr>,
    /// Whether a process is bound to one of them.
    pub is_alive: bool,
    thing: Thing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    Link(String),
    Rule(Written),
    /// With all its rules.
    Chain(Family, &'static str),
}

/// An existing rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    family: Family,
    table: &'static str,
    chain: String,
    /// Everything after `-A CHAIN`, as listed.
    arguments: String,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.thing {
            Thing::Link(name) => write!(f, "link {name}")?,
            Thing::Rule(rule) => write!(
                f,
                "{} -t {} -A {} {}",
                rule.family, rule.table, rule.chain, rule.arguments
            )?,
            Thing::Chain(family, table) => write!(f, "{family} -t {table} -N {CHAIN}")?,
        }
        let state = if self.is_alive {
            "a process is bound to its address, so it is left to that process"
        } else {
            "left behind; `dnsweir node down --adopt` removes it"
        };
        write!(f, " (looks like {}: {state})", self.author)
    }
}

/// Finds everything that other node caches created, except what the plan manages itself.
pub async fn find(plan: &Plan) -> Result<Vec<Leftover>, Error> {
    let network = Network::open()?;
    let mut found = Vec::new();
    let mut carried = Vec::new();
    for (name, author) in LINKS {
        let Some(ips) = network.ask(link::made_by_others(&network.handle, name)).await? else {
            continue;
        };
        if author == Author::CorednsNodecache {
            carried.clone_from(&ips);
        }
        let is_planned = plan.link.as_ref().is_some_and(|link| link.name == name);
        let is_alive = !others_hold(&ips).is_empty();
        // A link of the planned name that nobody uses becomes ours.
        if !is_planned || is_alive {
            found.push(Leftover {
                author,
                ips,
                is_alive,
                thing: Thing::Link(name.to_string()),
            });
        }
    }
    let planned = plan.listening_ips();
    found.extend(find_rules(&planned, &carried).await?);
    Ok(found)
}

/// Removes what is not in use. Continues after errors.
pub async fn remove(leftovers: Vec<Leftover>) -> Outcome {
    let network = match Network::open() {
        Ok(network) => network,
        Err(error) => return error.into(),
    };
    let mut outcome = Outcome::default();
    let (alive, dead): (Vec<_>, Vec<_>) = leftovers.into_iter().partition(|leftover| leftover.is_alive);
    for leftover in alive {
        outcome.spare(leftover.ips);
    }
    let mut links = Vec::new();
    let mut ruled = Vec::new();
    for leftover in dead {
        match leftover.thing {
            Thing::Link(name) => links.push(name),
            thing => ruled.push(thing),
        }
    }
    for thing in &ruled {
        outcome.add(remove_rule(thing).await);
    }
    // Rules go first: without the links, a second attempt would recognize fewer of them.
    for name in links {
        let link = Link {
            name,
            addresses: Vec::new(),
        };
        match network.ask(link::lower(&network.handle, &link)).await {
            Ok((done, spared)) => {
                outcome.done.extend(done);
                outcome.spare(spared);
            }
            Err(error) => outcome.errors.push(error),
        }
    }
    outcome
}

async fn remove_rule(thing: &Thing) -> Result<Vec<String>, Error> {
    match thing {
        Thing::Link(_) => Ok(Vec::new()),
        Thing::Rule(rule) => {
            let command = format!("-D {} {}", rule.chain, rule.arguments);
            rules::change(rule.family, rule.table, &command).await?;
            Ok(vec![format!(
                "deleted {} -t {} {command}",
                rule.family, rule.table
            )])
        }
        Thing::Chain(family, table) => {
            rules::change(*family, table, &format!("-F {CHAIN}")).await?;
            rules::change(*family, table, &format!("-X {CHAIN}")).await?;
            Ok(vec![format!("deleted {family} -t {table} chain {CHAIN}")])
        }
    }
}

/// Finds rules of both families. `planned` are our addresses, `carried` those of contentful's link.
async fn find_rules(planned: &[IpAddr], carried: &[IpAddr]) -> Result<Vec<Leftover>, Error> {
    let mut found = Vec::new();
    for family in [Family::V4, Family::V6] {
        let mut written = Vec::new();
        for (table, chain) in rules::CHAINS.into_iter().filter(may_be_theirs) {
            let lines = rules::list_chain(family, table, chain).await?.into_iter();
            written.extend(lines.map(|arguments| Written {
                family,
                table,
                chain: chain.to_string(),
                arguments,
            }));
        }
        found.extend(recognize(written, planned, carried));
        for table in ["raw", "nat"] {
            // Listing fails if there is no such chain.
            let Ok(lines) = rules::list_chain(family, table, CHAIN).await else {
                continue;
            };
            let ips = lines
                .iter()
                .filter_map(|line| Some(Facts::of(line)?.ip))
                .collect();
            found.push(leftover(Author::Deckhouse, ips, Thing::Chain(family, table)));
        }
    }
    Ok(found)
}

/// Attributes rules to their authors. The chains they jump to are appended later.
fn recognize(written: Vec<Written>, planned: &[IpAddr], carried: &[IpAddr]) -> Vec<Leftover> {
    let mut plain: HashMap<(IpAddr, u16), usize> = HashMap::new();
    let mut switched: Vec<IpAddr> = Vec::new();
    for rule in &written {
        match Facts::of(&rule.arguments) {
            Some(facts) if facts.for_socket => switched.push(facts.ip),
            Some(Facts {
                ip,
                port: Some(port),
                comment: None,
                ..
            }) => *plain.entry((ip, port)).or_default() += 1,
            _ => {}
        }
    }
    let author = |rule: &Written| -> Option<(Author, Vec<IpAddr>)> {
        if rule.arguments.ends_with(&format!("-j {CHAIN}")) {
            return Some((Author::Deckhouse, Vec::new()));
        }
        let facts = Facts::of(&rule.arguments)?;
        let ip = facts.ip;
        let answers = rule.chain == "OUTPUT" && facts.is_reply && rule.table == "raw";
        let author = match (&facts.comment, facts.port) {
            (Some(comment), _) => {
                let is_node_caches = rules::is_node_caches(comment) && !planned.contains(&ip);
                is_node_caches.then_some(Author::NodeCache)
            }
            (None, _) if facts.for_socket => Some(Author::Deckhouse),
            (None, Some(_)) if answers && switched.contains(&ip) => Some(Author::Deckhouse),
            (None, Some(port)) => {
                let complete = plain.get(&(ip, port)) == Some(&NODECACHE_RULES);
                (complete || carried.contains(&ip)).then_some(Author::CorednsNodecache)
            }
            (None, None) => None,
        };
        Some((author?, vec![ip]))
    };
    let recognized = written.into_iter().filter_map(|rule| {
        let (author, ips) = author(&rule)?;
        Some(leftover(author, ips, Thing::Rule(rule)))
    });
    recognized.collect()
}

fn leftover(author: Author, ips: Vec<IpAddr>, thing: Thing) -> Leftover {
    Leftover {
        author,
        is_alive: !others_hold(&ips).is_empty(),
        ips,
        thing,
    }
}

/// What a rule of such a program says: one address, at most one port, and a target that skips connection
/// tracking or accepts.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    ip: IpAddr,
    /// Whether the address is the source.
    is_reply: bool,
    port: Option<u16>,
    /// `-m socket --nowildcard`
    for_socket: bool,
    comment: Option<String>,
}

impl Facts {
    fn of(arguments: &str) -> Option<Facts> {
        let (plain, comment) = match arguments.split_once("--comment \"") {
            Some((before, rest)) => {
                let (comment, after) = rest.split_once('"')?;
                (format!("{before}{after}"), Some(comment.to_string()))
            }
            None => (arguments.to_string(), None),
        };
        // nft and legacy iptables list this target differently.
        let plain = plain.replace("-j CT --notrack", "-j NOTRACK");
        let (mut end, mut port, mut target) = (None, None, None);
        let mut for_socket = false;
        let mut words = plain.split_ascii_whitespace();
        while let Some(word) = words.next() {
            match (word, words.next()?) {
                ("-s" | "-d", value) => {
                    let (ip, length) = value.split_once('/')?;
                    let ip: IpAddr = ip.parse().ok()?;
                    let single = length == if ip.is_ipv4() { "32" } else { "128" };
                    end = Some((ip, word == "-s")).filter(|_| single);
                }
                ("--sport" | "--dport", value) => port = Some(value.parse().ok()?),
                ("-m", "socket") if words.next()? == "--nowildcard" => for_socket = true,
                ("-p" | "-m", "tcp" | "udp") | ("-m", "comment") => {}
                ("-j", "NOTRACK" | "ACCEPT") => target = Some(()),
                _ => return None,
            }
        }
        let (ip, is_reply) = target.and(end)?;
        Some(Facts {
            ip,
            is_reply,
            port,
            for_socket,
            comment,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lines: &[&str]) -> Vec<Written> {
        let line = |line: &&str| {
            let (table, rest) = line.split_once(' ').unwrap();
            let (chain, arguments) = rest.split_once(' ').unwrap();
            Written {
                family: Family::V4,
                table: ["raw", "filter", "nat"]
                    .into_iter()
                    .find(|it| *it == table)
                    .unwrap(),
                chain: chain.to_string(),
                arguments: arguments.to_string(),
            }
        };
        lines.iter().map(line).collect()
    }

    fn authors(lines: &[&str], planned: &str, carried: &[IpAddr]) -> Vec<Author> {
        let found = recognize(written(lines), &[planned.parse().unwrap()], carried);
        found.iter().map(|leftover| leftover.author).collect()
    }

    const EIGHT: [&str; NODECACHE_RULES] = [
        "raw PREROUTING -d 192.0.2.10/32 -p tcp -m tcp --dport 53 -j NOTRACK",
        "raw PREROUTING -d 192.0.2.10/32 -p udp -m udp --dport 53 -j CT --notrack",
        "filter INPUT -d 192.0.2.10/32 -p tcp -m tcp --dport 53 -j ACCEPT",
        "filter INPUT -d 192.0.2.10/32 -p udp -m udp --dport 53 -j ACCEPT",
        "raw OUTPUT -s 192.0.2.10/32 -p tcp -m tcp --sport 53 -j NOTRACK",
        "raw OUTPUT -s 192.0.2.10/32 -p udp -m udp --sport 53 -j NOTRACK",
        "filter OUTPUT -s 192.0.2.10/32 -p tcp -m tcp --sport 53 -j ACCEPT",
        "filter OUTPUT -s 192.0.2.10/32 -p udp -m udp --sport 53 -j ACCEPT",
    ];

    #[test]
    fn eight_rules_without_comments_are_contentfuls() {
        assert_eq!(authors(&EIGHT, "192.0.2.11", &[]), [Author::CorednsNodecache; 8]);
        // An incomplete set could be anyone's, unless the link says whose.
        assert_eq!(authors(&EIGHT[1..], "192.0.2.11", &[]), []);
        let carried = ["192.0.2.10".parse().unwrap()];
        assert_eq!(
            authors(&EIGHT[1..], "192.0.2.11", &carried),
            [Author::CorednsNodecache; 7]
        );
    }

    #[test]
    fn a_rule_for_sockets_is_deckhouses() {
        let rules = [
            "raw PREROUTING -d 192.0.2.10/32 -m socket --nowildcard -j NOTRACK",
            "raw OUTPUT -s 192.0.2.10/32 -p udp -m udp --sport 53 -j NOTRACK",
            "nat PREROUTING -d 192.0.2.10/32 -p udp -m udp --dport 53 -m socket --nowildcard -j ACCEPT",
            "raw PREROUTING -j NODE-LOCAL-DNS",
        ];
        assert_eq!(authors(&rules, "192.0.2.11", &[]), [Author::Deckhouse; 4]);
    }

    #[test]
    fn node_caches_are_known_by_their_comments_where_they_are_not_ours() {
        let rules = [
            "raw PREROUTING -d 192.0.2.10/32 -p udp -m udp --dport 53 -m comment --comment \"NodeLocal DNS Cache: skip conntrack\" -j NOTRACK",
        ];
        assert_eq!(authors(&rules, "192.0.2.11", &[]), [Author::NodeCache]);
        assert_eq!(authors(&rules, "192.0.2.10", &[]), []);
    }

    #[test]
    fn what_others_wrote_is_not_recognized() {
        let rules = [
            "raw PREROUTING -d 192.0.2.10/32 -p udp -m udp --dport 53 -j NOTRACK",
            "raw PREROUTING -d 192.0.2.0/24 -m socket --nowildcard -j NOTRACK",
            "raw PREROUTING -d 192.0.2.10/32 -p udp -m udp --dport 53 -m socket -j NOTRACK",
            "raw OUTPUT -s 192.0.2.10/32 -p udp -m udp --sport 53 -j NOTRACK",
            "raw PREROUTING -d 192.0.2.10/32 -i eth0 -m socket --nowildcard -j NOTRACK",
            "filter INPUT -p udp -j ACCEPT",
            "nat PREROUTING -d 192.0.2.10/32 -p udp -m udp --dport 53 -m comment --comment \"mine\" -j ACCEPT",
        ];
        assert_eq!(authors(&rules, "192.0.2.11", &[]), []);
    }
}
