//! Answers from a table.
//!
//! Names that are not in the table pass to the next stage, unless a `zone` of the table covers them. Answers
//! depend only on the question, so the host remembers them.

mod table;

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Class, Filter, FromValue, Invalid, Manifest, Name, NameBuf, Node, Query, Rcode, Rdata, Setup,
    Soa, Ttl, Type, Value, Verdict,
};

use table::{Found, Records, Table};

/// How long the host may remember a verdict. Bounded, so that it forgets names that are no longer asked for.
const REMEMBER: Duration = Duration::from_secs(3600);

/// Maximum names of an address in an answer. In a block list, 0.0.0.0 has all names, more than a call may
/// hand over. It may hand over so many even if each has 255 bytes.
const POINTERS: usize = 2048;

/// The filter.
pub struct Hosts {
    table: Table,
    ttl: Duration,
    unlisted: Unlisted,
}

/// What happens to names that are neither listed nor in a zone of the table.
#[derive(Clone, Copy, PartialEq)]
enum Unlisted {
    /// They pass.
    Pass,
    /// They get SERVFAIL, except for PTR queries.
    Servfail,
}

impl FromValue for Unlisted {
    const EXPECTED: &'static str = "what becomes of names that are not listed";

    fn from_value(value: Value<'_>) -> Result<Unlisted, String> {
        match value {
            Value::Text("pass") => Ok(Unlisted::Pass),
            Value::Text("servfail") => Ok(Unlisted::Servfail),
            _ => Err("\"pass\" or \"servfail\"".to_owned()),
        }
    }
}

impl Filter for Hosts {
    fn configure(setup: Setup<'_>) -> Result<(Hosts, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::HOUR).into();
        let reverse = config.setting_or("reverse", true);
        let unlisted = config.setting_or("unlisted", Unlisted::Pass);
        let (hosts, zones) = (config.nodes(&["host"]), config.nodes(&["zone"]));
        let files = config.nodes(&["file"]);
        if hosts.is_empty() && zones.is_empty() && files.is_empty() && unlisted == Unlisted::Pass {
            let help = "such as: host \"hello.demo.test\" \"192.0.2.1\"";
            return Err(config.mistake("no hosts are configured").help(help).report());
        }
        let mut table = Table::default();
        for node in zones {
            read_zone(node, &mut table);
        }
        for node in hosts {
            read_host(node, reverse, &mut table);
        }
        for node in files {
            if let Ok(text) = node.argument::<String>(0) {
                read_file(&text, reverse, &mut table);
            }
        }
        let manifest = match unlisted {
            Unlisted::Pass => Manifest::new().queries().at_or_below(table.reach()),
            Unlisted::Servfail => Manifest::new().queries(),
        };
        table.complete();
        let filter = Hosts { table, ttl, unlisted };
        Ok((filter, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        // The table is of class IN.
        if !matches!(query.class(), Class::IN | Class::ANY) {
            return Verdict::pass().remember(REMEMBER);
        }
        let (name, qtype) = (query.name(), query.qtype());
        let soa = self
            .table
            .zone_of(name)
            .map(|apex| Soa::new(apex.into(), self.ttl));
        let answer = match (self.table.find(name), soa) {
            (Found::Records(records), soa) => self.answer(name, qtype, records, soa),
            (Found::Inner, Some(soa)) => self.answer(name, qtype, &Records::default(), Some(soa)),
            (Found::Nothing, Some(soa)) => Answer::nxdomain(&soa),
            (Found::Inner | Found::Nothing, None) => {
                let verdict = match self.unlisted {
                    Unlisted::Servfail if qtype != Type::PTR => Verdict::answer(Answer::new(Rcode::SERVFAIL)),
                    _ => Verdict::pass(),
                };
                return verdict.remember(REMEMBER);
            }
        };
        Verdict::answer(answer.authoritative()).remember(REMEMBER)
    }
}

impl Hosts {
    /// The answer with the matching records, or NODATA if none match.
    fn answer(&self, name: Name<'_>, qtype: Type, records: &Records, soa: Option<Soa>) -> Answer {
        let asked = |rtype| qtype == rtype || qtype == Type::ANY;
        let mut answer = Answer::noerror();
        for &address in &records.addresses {
            if asked(if address.is_ipv4() { Type::A } else { Type::AAAA }) {
                answer = answer.record(name, self.ttl, Rdata::address(address));
            }
        }
        if asked(Type::PTR) {
            for pointer in records.names.iter().take(POINTERS) {
                answer = answer.record(name, self.ttl, Rdata::Ptr(pointer.clone()));
            }
        }
        match soa {
            Some(soa) if asked(Type::SOA) && soa.zone == name => {
                answer.record(name, self.ttl, Rdata::Soa(soa))
            }
            Some(soa) if answer.is_empty() => Answer::nodata(&soa),
            // RFC 2308 section 2.2: a denial needs an SOA record for its TTL. The name serves as its own
            // zone.
            None if answer.is_empty() => Answer::nodata(&Soa::new(name.into(), self.ttl)),
            _ => answer,
        }
    }
}

/// `zone NAME…`
fn read_zone(node: Node<'_>, table: &mut Table) {
    let Ok(names) = node.arguments::<NameBuf>(0) else {
        return;
    };
    for (index, name) in names.into_iter().enumerate() {
        let text = name.to_string();
        if !table.add_zone(name) {
            let _ = node
                .mistake(format!("the zone {text} is written twice"))
                .argument(index)
                .report();
        }
    }
}

/// `file TEXT`: lines as in /etc/hosts, an address and its names. Skips invalid ones, as the system's
/// resolver does.
fn read_file(text: &str, reverse: bool, table: &mut Table) {
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        // An address may have a zone, such as a link; DNS answers cannot express it.
        let address = words.next().and_then(|word| word.split('%').next());
        let Some(address) = address.and_then(|address| address.parse::<IpAddr>().ok()) else {
            continue;
        };
        // An IPv4-mapped IPv6 address is an IPv4 address (RFC 4291 section 2.5.5.2).
        let address = address.to_canonical();
        for name in words.filter_map(|word| word.parse::<NameBuf>().ok()) {
            table.add_address(name.clone(), address);
            if reverse {
                table.add_pointer(address, name);
            }
        }
    }
}

/// `host NAME ADDRESS…`
fn read_host(node: Node<'_>, reverse: bool, table: &mut Table) {
    let (name, addresses) = (node.argument::<NameBuf>(0), node.arguments::<IpAddr>(1));
    let (Ok(name), Ok(addresses)) = (name, addresses) else {
        return;
    };
    let parent = name.as_name().parent();
    let wildcard = parent.filter(|_| name.as_name().labels().next() == Some(b"*"));
    let rest = wildcard.unwrap_or(name.as_name());
    if rest.labels().any(|label| label == b"*") {
        let help = "an asterisk is a wildcard only as the first label";
        let _ = node
            .mistake(format!("{name} is neither a name nor a wildcard"))
            .argument(0)
            .help(help)
            .report();
        return;
    }
    for (index, address) in addresses.into_iter().enumerate() {
        let address = address.to_canonical();
        let new = match wildcard {
            Some(base) => table.add_wildcard(base.into(), address),
            None => table.add_address(name.clone(), address),
        };
        if !new {
            let message = format!("{name} has the address {address} already");
            let _ = node
                .mistake(message)
                .argument(index + 1)
                .help("keep one of them")
                .report();
        }
        if reverse && wildcard.is_none() {
            table.add_pointer(address, name.clone());
        }
    }
}

dnsweir_filter::export!(Hosts);
