//! What each function of a filter's tables costs a guest, alone and while another worker uses the same table.
//! `cargo bench --workspace --bench tables`

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement ends where something cannot be set up, and prints its table"
)]

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dnsweir_config as config;
use dnsweir_engine::filter::{self, Batch, Engine, Filter};
use dnsweir_os::clock::UnixTime;

/// How often a guest calls a function per query.
const TIMES: u32 = 1000;

/// The functions: what a guest does for a query of this type. A key has 16 bytes, which include the loop's
/// counter.
const VERBS: [(&str, &str); 9] = [
    ("nothing: the loop alone", "(i32.const 0)"),
    (
        "host: count, for comparison",
        "(call $count (i32.const 240) (i32.const 1) (i32.const 0) (i32.const 0) (i64.const 1)) (i32.const 0)",
    ),
    (
        "get, nothing there",
        "(call $get (i32.const 0) (i32.const 64) (i32.const 16) (i32.const 32)) (i32.const 0)",
    ),
    (
        "put, 8 octets",
        "(call $put (i32.const 0) (i32.const 80) (i32.const 16) (i32.const 0) (i32.const 8) (i64.const 0))",
    ),
    (
        "put, 100 octets",
        "(call $put (i32.const 0) (i32.const 80) (i32.const 16) (i32.const 0) (i32.const 100) (i64.const 0))",
    ),
    (
        "get, 100 octets",
        "(call $get (i32.const 0) (i32.const 80) (i32.const 16) (i32.const 32)) (i32.const 0)",
    ),
    (
        "add",
        "(drop (call $add (i32.const 0) (i32.const 96) (i32.const 16) (i64.const 1) (i64.const 0))) (i32.const 0)",
    ),
    (
        "compare-and-swap",
        "(call $swap (i32.const 0) (i32.const 112) (i32.const 16) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) \
         (i32.const 0) (i32.const 0) (i64.const 0))",
    ),
    (
        "take",
        "(call $take (i32.const 0) (i32.const 128) (i32.const 16) (i32.const 1) (f64.const 50) (i32.const 50))",
    ),
];

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tables.wasm");
    fs::write(&path, module()).expect("a module");
    let engine = Engine::printing_to(io::sink()).expect("an engine");
    println!(
        "nanoseconds for each call\n{:<28}{:>8}{:>10}{:>14}{:>13}",
        "", "one key", "1000 keys", "two workers,", "of one key"
    );
    let filter = load(&engine, &path);
    for (index, (name, _)) in VERBS.iter().enumerate() {
        let verb = index as u16 + 1;
        let (one, many) = (measure(&filter, verb, false), measure(&filter, verb, true));
        let beside = |keys: bool| beside(&filter, verb, keys, || measure(&filter, verb, keys));
        println!(
            "{name:<28}{one:>8.0}{many:>10.0}{:>14.0}{:>13.0}",
            beside(true),
            beside(false)
        );
    }
}

/// Runs `work` while another worker does the same.
fn beside(filter: &Arc<Filter>, verb: u16, keys: bool, work: impl FnOnce() -> f64) -> f64 {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                run(filter, verb, keys, Duration::from_millis(50));
            }
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        result
    })
}

fn measure(filter: &Arc<Filter>, verb: u16, keys: bool) -> f64 {
    run(filter, verb, keys, Duration::from_millis(500))
}

/// Returns the nanoseconds per call, of the fastest query: the others were disturbed. The class of a query
/// says whether the key contains the loop's counter.
fn run(filter: &Arc<Filter>, verb: u16, keys: bool, time: Duration) -> f64 {
    let mut instance = filter.instantiate().expect("an instance");
    let mut batch = Batch::default();
    batch.push_query(query(verb, keys.into()), b"\x01a\0"[..].into(), 0);
    let (mut out, mut best) = (Vec::new(), Duration::MAX);
    let end = Instant::now() + time;
    while Instant::now() < end {
        let begin = Instant::now();
        instance.queries(UnixTime::from_millis(1_000), &batch, &mut out);
        best = best.min(begin.elapsed());
    }
    best.as_nanos() as f64 / f64::from(TIMES)
}

fn load(engine: &Engine, module: &Path) -> Arc<Filter> {
    let text = format!(
        "listen \"127.0.0.1\"\nfilter \"f\" {{ module \"{}\"; limits time=\"1s\" }}\n\
         zone \".\" {{ use \"f\"; forward \"192.0.2.1\" }}",
        module.display()
    );
    let config = config::parse("the benchmark", &text, Path::new("/"), &[]).expect("a configuration");
    Filter::load(engine, &config.filters[0], &[".".to_owned()], None).expect("a filter")
}

fn query(qtype: u16, qclass: u16) -> filter::Query {
    filter::Query {
        client_high: 0,
        client_low: 0xffff_7f00_0001,
        name_start: 0,
        name_length: 0,
        qtype,
        qclass,
        header: 0x0100,
        udp_size: 512,
        edns_flags: 0,
        client_port: 40_000,
        zone: 0,
        transport: 0,
        edns: 0,
        details_length: 0,
    }
}

/// Returns a guest with a table of 4 MiB. All results of `get` are at 4096.
fn module() -> Vec<u8> {
    let verbs: String = (1..)
        .zip(VERBS)
        .map(|(verb, (_, call))| {
            format!(
                "(if (i32.eq (local.get $type) (i32.const {verb})) (then (loop $again
                    (i32.store (i32.const {key}) (i32.mul (local.get $i) (local.get $keys)))
                    (i32.store (i32.const 64) (i32.mul (local.get $i) (local.get $keys)))
                    {call} drop
                    (local.set $i (i32.add (local.get $i) (i32.const 1)))
                    (br_if $again (i32.lt_u (local.get $i) (i32.const {TIMES}))))))",
                key = match verb {
                    4..=6 => 80,
                    7 => 96,
                    8 => 112,
                    _ => 128,
                }
            )
        })
        .collect();
    let text = format!(
        r#"(module
  (import "dnsweir:filter/host@0.1.0" "count" (func $count (param i32 i32 i32 i32 i64)))
  (import "dnsweir:filter/tables@0.1.0" "get" (func $get (param i32 i32 i32 i32)))
  (import "dnsweir:filter/tables@0.1.0" "put" (func $put (param i32 i32 i32 i32 i32 i64) (result i32)))
  (import "dnsweir:filter/tables@0.1.0" "add" (func $add (param i32 i32 i32 i64 i64) (result i64)))
  (import "dnsweir:filter/tables@0.1.0" "compare-and-swap"
    (func $swap (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)))
  (import "dnsweir:filter/tables@0.1.0" "take" (func $take (param i32 i32 i32 i32 f64 i32) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 36) "\01\00\00\00\00\00\00\00" "\d0\00\00\00\01\00\00\00")
  (data (i32.const 240) "n")
  (data (i32.const 208) "\f0\00\00\00\01\00\00\00" "\00\00\40\00" "\00")
  (data (i32.const 76) "none") (data (i32.const 92) "put.") (data (i32.const 108) "add.")
  (data (i32.const 124) "swap") (data (i32.const 140) "take")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 16))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries")
    (param $now i64) (param $batch i32) (param $length i32) (param $bytes i32) (param $size i32) (result i32)
    (local $type i32) (local $keys i32) (local $i i32)
    (local.set $type (i32.load16_u offset=22 (local.get $batch)))
    (local.set $keys (i32.load16_u offset=24 (local.get $batch)))
    {verbs}
    (i32.store (i32.const 160) (i32.const 1024))
    (i32.store (i32.const 164) (i32.const 0))
    (i32.const 160)))"#
    );
    wat::parse_str(text).expect("a module")
}
