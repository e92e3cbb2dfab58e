//! Answers from a table.
//!
//! What the table does not know goes on to the next stage, unless a `zone` of the table says that there
//! is nothing else. Answers depend on the question alone, so the host remembers them.

mod table;

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Class, Filter, Invalid, Manifest, Name, NameBuf, Node, Query, Rdata, Setup, Soa, Ttl, Type,
    Verdict,
};

use table::{Found, Records, Table};

/// How long the host may go without asking again. Not forever, so that its memory of names that
/// nobody asks for any more has an end.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The filter.
pub struct Hosts {
    table: Table,
    ttl: Duration,
}

impl Filter for Hosts {
    fn configure(setup: Setup<'_>) -> Result<(Hosts, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::HOUR).into();
        let reverse = config.setting_or("reverse", true);
        let (hosts, zones) = (config.nodes(&["host"]), config.nodes(&["zone"]));
        if hosts.is_empty() && zones.is_empty() {
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
        let manifest = Manifest::new().queries().at_or_below(table.reach());
        table.complete();
        Ok((Hosts { table, ttl }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        // The table is one of class IN.
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
            (Found::Inner | Found::Nothing, None) => return Verdict::pass().remember(REMEMBER),
        };
        Verdict::answer(answer.authoritative()).remember(REMEMBER)
    }
}

impl Hosts {
    /// What is asked for of the records; if that is nothing, the answer of a name that exists.
    fn answer(&self, name: Name<'_>, qtype: Type, records: &Records, soa: Option<Soa>) -> Answer {
        let asked = |rtype| qtype == rtype || qtype == Type::ANY;
        let mut answer = Answer::noerror();
        for &address in &records.addresses {
            if asked(if address.is_ipv4() { Type::A } else { Type::AAAA }) {
                answer = answer.record(name, self.ttl, Rdata::address(address));
            }
        }
        if asked(Type::PTR) {
            for pointer in &records.names {
                answer = answer.record(name, self.ttl, Rdata::Ptr(pointer.clone()));
            }
        }
        match soa {
            Some(soa) if asked(Type::SOA) && soa.zone == name => {
                answer.record(name, self.ttl, Rdata::Soa(soa))
            }
            Some(soa) if answer.is_empty() => Answer::nodata(&soa),
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
