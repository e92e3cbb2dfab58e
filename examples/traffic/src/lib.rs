//! Shows in `/metrics` what clients ask: what dnstap would send to a collector, aggregated at the source.
//!
//! Values from a small set (types, rcodes, sources) are labels of counters. Values that clients choose
//! (names, their own networks) go into tables, which are bounded: old entries are evicted.

use std::time::Duration;

use dnsweir_filter::{
    Event, Filter, Invalid, Manifest, PrefixLengths, Query, Setup, Source, Table, Type, count_with,
};

/// The size of each table in bytes: some 2 000 entries.
const OCTETS: usize = 512 << 10;

/// The default lifetime of an entry, from the first query that it counts.
const HOUR: Duration = Duration::from_secs(3600);

/// The default duration from which a query counts as slow.
const SECOND: Duration = Duration::from_secs(1);

/// Types counted by name; all others are counted together.
const TYPES: [Type; 8] = [
    Type::A,
    Type::AAAA,
    Type::CNAME,
    Type::PTR,
    Type::SRV,
    Type::TXT,
    Type::HTTPS,
    Type::MX,
];

/// The filter.
pub struct Traffic {
    names: Table,
    failing: Table,
    slow: Table,
    clients: Table,
    /// The lifetime of entries.
    window: Duration,
    /// The duration from which a query counts as slow.
    slow_from: Duration,
    lengths: PrefixLengths,
}

impl Filter for Traffic {
    fn configure(setup: Setup<'_>) -> Result<(Traffic, Manifest), Invalid> {
        let config = setup.config();
        let [names, failing, slow, clients] =
            ["names", "failing", "slow", "clients"].map(|name| setup.shown_table(name, OCTETS));
        let prefix = config.node("prefix")?;
        let traffic = Traffic {
            names,
            failing,
            slow,
            clients,
            window: config.setting_or("window", HOUR),
            slow_from: config.setting_or("slow", SECOND),
            lengths: prefix.map_or(Ok(PrefixLengths::WHOLE), PrefixLengths::read)?,
        };
        Ok((traffic, Manifest::new().events()))
    }

    fn event(&mut self, event: &Event<'_>) {
        let query = event.query();
        let rcode = if event.dropped() {
            "dropped".to_owned()
        } else {
            event.rcode().to_string()
        };
        let labels = [
            ("type", &*type_name(query)),
            ("rcode", &rcode),
            ("source", source_name(event.source())),
        ];
        count_with("queries", &labels, 1);
        let name = query.name().to_string();
        self.tally(&self.names, &name);
        if !["NOERROR", "NXDOMAIN"].contains(&&*rcode) {
            self.tally(&self.failing, &name);
        }
        if event.duration() >= self.slow_from {
            self.tally(&self.slow, &name);
        }
        self.tally(&self.clients, &self.lengths.of(query.client()).to_string());
    }
}

impl Traffic {
    fn tally(&self, table: &Table, key: &str) {
        table.add(key, 1, Some(self.window));
    }
}

/// The type's name, limited to known types: a client may ask for 65 536 of them, and each would be a counter.
fn type_name(query: &Query<'_>) -> String {
    match TYPES.contains(&query.qtype()) {
        true => query.qtype().to_string(),
        false => "other".to_owned(),
    }
}

fn source_name(source: Source) -> &'static str {
    match source {
        Source::Upstream => "upstream",
        Source::Cache => "cache",
        Source::Stale => "stale",
        Source::Filter => "filter",
        Source::Local => "local",
        Source::Other(_) => "other",
    }
}

dnsweir_filter::export!(Traffic);
