//! What the steps of a hit cost, one at a time: `cargo xtask bench steps`.
//!
//! Figures of one machine at one moment. They tell where time goes and what a change did to a step; what a
//! query costs as a whole, the kernel included, is for `cargo xtask bench` to say.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use divan::Bencher;
use divan::counter::ItemsCount;
use dnsweir::cache::{Cache, Entry, Key, KeyFlags, KeyHasher, Kind, Stored};
use dnsweir::config::{self, Config};
use dnsweir::dns::query::Query;
use dnsweir::dns::reply::{self, Body, Head, Ttl};
use dnsweir::filter::{self, Batch, Engine, Filter, Instance};

fn main() {
    divan::main();
}

fn name(number: usize) -> Vec<u8> {
    let label = format!("host-{number}");
    [
        &[label.len() as u8][..],
        label.as_bytes(),
        b"\x03svc\x07example\x03org\0",
    ]
    .concat()
}

/// A query for `A`, as a stub resolver sends it.
fn question(name: &[u8]) -> Vec<u8> {
    [&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], name, &[0, 1, 0, 1]].concat()
}

/// Its answer, with one address.
fn answer(name: &[u8]) -> Vec<u8> {
    let head = [0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 2, 88, 0, 4, 192, 0, 2, 1];
    [&head, name, &[0, 1, 0, 1], &record].concat()
}

static HASHER: LazyLock<KeyHasher> = LazyLock::new(KeyHasher::new);

fn key(name: &[u8]) -> Key<'_> {
    Key::new(HASHER.question(name, 1, 1), name, 1, 1, KeyFlags::default(), 0)
}

/// A cache of answers to this many names.
fn filled(names: &[Vec<u8>]) -> Cache {
    let cache = Cache::new(1 << 30);
    for name in names {
        let wire = answer(name);
        let stored = Stored {
            wire: &wire,
            ttl_offsets: &[(12 + name.len() + 4 + 6) as u16],
            kind: Kind::Success,
            error: None,
            ttl_secs: 600,
            stale_secs: 0,
            now_ms: 0,
        };
        cache.insert(&key(name), &stored);
    }
    cache
}

/// Header and question checked and found.
#[divan::bench]
fn parse(bencher: Bencher) {
    let message = question(&name(7));
    bencher.bench_local(|| Query::parse(black_box(&message)).is_ok());
}

/// The hash of a question, and what else the cache's key is made of.
#[divan::bench]
fn make_key(bencher: Bencher) {
    let name = name(7);
    bencher.bench_local(|| {
        black_box(key(black_box(&name)));
    });
}

/// A hit among so many names, hashed first; in an order that caches of the processor cannot guess.
#[divan::bench(args = [1, 1_000, 30_000, 1_000_000])]
fn lookup(bencher: Bencher, count: usize) {
    let names: Vec<_> = (0..count).map(name).collect();
    let cache = filled(&names);
    let mut at = 0;
    bencher.bench_local(|| {
        at = (at + 7_919) % count;
        black_box(cache.lookup(&key(&names[at]), 1));
    });
}

/// An answer copied from its entry, with ID, flags, question and TTL put right.
#[divan::bench]
fn patch(bencher: Bencher) {
    let name = name(7);
    let cache = filled(std::slice::from_ref(&name));
    let entry: Arc<Entry> = cache.lookup(&key(&name), 1).expect("what was just stored");
    let message = question(&name);
    let head = Head {
        id: 7,
        flags: 0x0100,
        question: &message[12..],
        opt: None,
        limit: 512,
    };
    let mut out = [0; 512];
    bencher.bench_local(|| {
        let body = Body {
            message: entry.wire(),
            ttl_offsets: entry.ttl_offsets(),
            ttl: Ttl::Aged {
                by: 3,
                min: 0,
                max: u32::MAX,
            },
            rcode: 0,
            authoritative: false,
        };
        reply::write(&mut out, black_box(&head), body)
    });
}

/// An answer to a new name, stored in a full cache of 32 MiB.
#[divan::bench]
fn insert(bencher: Bencher) {
    let cache = Cache::new(32 << 20);
    let mut number = 0;
    bencher.bench_local(|| {
        number += 1;
        let name = name(number);
        let wire = answer(&name);
        let stored = Stored {
            wire: &wire,
            ttl_offsets: &[40],
            kind: Kind::Success,
            error: None,
            ttl_secs: 600,
            stale_secs: 0,
            now_ms: 0,
        };
        cache.insert(&key(&name), &stored)
    });
}

/// The ways into a filter.
const WAYS: [&str; 2] = ["core module", "component"];

/// Queries of one call.
const BATCHES: [usize; 3] = [1, 8, 32];

fn instance(way: &str, filter: &str) -> Instance {
    let engine = Engine::printing_to(io::sink()).expect("an engine");
    let engine = match way {
        "component" => engine.by_component(),
        _ => engine,
    };
    let text = format!("{filter}\nzone \".\" {{ use \"f\"; forward \"192.0.2.1\" }}");
    let builtins: Vec<_> = filter::BUILTINS.iter().map(|(name, _)| *name).collect();
    let text = format!("listen \"127.0.0.1\"\n{text}");
    let config: Config =
        config::parse("the benchmark", &text, Path::new("/"), &builtins).expect("a configuration");
    let zones = [".".to_owned()];
    let filter = Filter::load(
        &engine,
        &config.filters[0],
        filter::builtin,
        &zones,
        Arc::default(),
    );
    filter.expect("a filter").instantiate().expect("an instance")
}

fn query(name: &[u8]) -> filter::Query {
    filter::Query {
        client_high: 0,
        client_low: 0xffff_7f00_0001,
        name_start: 0,
        name_length: name.len() as u16,
        qtype: 1,
        qclass: 1,
        header: 0x0100,
        udp_size: 512,
        edns_flags: 0,
        client_port: 40_000,
        zone: 0,
        transport: filter::Transport::Udp,
        edns: false,
    }
}

/// A call of the query phase, per query: `rewrite` with rules, none of which is about these names. The clock goes on
/// by a day each time, so that nothing is remembered.
#[divan::bench(args = BATCHES, consts = [1, 1_000])]
fn rewrite_by_core_module<const RULES: usize>(bencher: Bencher, batch: usize) {
    rewrite(bencher, WAYS[0], RULES, batch);
}

/// The same through the component API.
#[divan::bench(args = BATCHES, consts = [1, 1_000])]
fn rewrite_by_component<const RULES: usize>(bencher: Bencher, batch: usize) {
    rewrite(bencher, WAYS[1], RULES, batch);
}

fn rewrite(bencher: Bencher, way: &str, rules: usize, batch: usize) {
    let rules: String = (0..rules)
        .map(|rule| format!("name \"exact\" \"a{rule}.test\" \"b.test\";"))
        .collect();
    let mut instance = instance(
        way,
        &format!(
            "filter \"f\" {{ module \"builtin:rewrite\"; config {{ type \"ANY\" \"HINFO\"; {rules} }} }}"
        ),
    );
    let mut queries = Batch::default();
    for number in 0..batch {
        let name = name(number);
        queries.push_query(query(&name), &name, HASHER.question(&name, 1, 1));
    }
    let (mut now, mut out) = (0, Vec::new());
    bencher.counter(ItemsCount::new(batch)).bench_local(|| {
        now += 86_400_000;
        instance.queries(now, &queries, &mut out);
    });
}

/// A call of the events phase, per event: `log` writes a line for each.
#[divan::bench(args = BATCHES)]
fn log_by_core_module(bencher: Bencher, batch: usize) {
    log(bencher, WAYS[0], batch);
}

/// The same through the component API.
#[divan::bench(args = BATCHES)]
fn log_by_component(bencher: Bencher, batch: usize) {
    log(bencher, WAYS[1], batch);
}

fn log(bencher: Bencher, way: &str, batch: usize) {
    let mut instance = instance(way, "filter \"f\" { module \"builtin:log\" }");
    let mut events = Batch::default();
    for number in 0..batch {
        let name = name(number);
        let event = filter::Event {
            query: query(&name),
            time: 1_767_225_599_001,
            duration: 420,
            id: 4711,
            query_size: 55,
            response_size: 120,
            rcode: 0,
            response_header: 0x8180,
            has_answers: true,
            source: filter::Source::Cache,
        };
        events.push_event(event, &name);
    }
    let calls = bencher.counter(ItemsCount::new(batch));
    calls.bench_local(|| instance.events(&events));
}
