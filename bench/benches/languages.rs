//! What a filter costs in each language: those of `examples/languages`, once the black-box tests have built
//! them.
//! `cargo bench --workspace --bench languages`

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement ends where something cannot be set up, and prints its table"
)]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dnsweir_config::{self as config, Config};
use dnsweir_engine::filter::{self, Batch, Engine, Filter};
use dnsweir_os::clock::UnixTime;

/// The others are compared with the first.
const LANGUAGES: [&str; 5] = ["rust", "c", "go", "javascript", "python"];

/// A name that the filters pass, and one that they answer.
const PASSED: &[u8] = b"\x07host-01\x03svc\x07example\x03org\0";
const ANSWERED: &[u8] = b"\x05hello\x07example\0";

/// The queries of one call.
const CALLS: [(&str, &[u8], u64); 4] = [
    ("passed, 1", PASSED, 1),
    ("passed, 32", PASSED, 32),
    ("answered, 1", ANSWERED, 1),
    ("answered, 32", ANSWERED, 32),
];

fn main() {
    println!("nanoseconds per query, and that by what the first took");
    let calls = CALLS.map(|(what, ..)| format!("{what:>18}")).concat();
    println!(
        "{:<12}{:>9}{:>12}{:>10}{:>8}{calls}",
        "", "KiB", "compile ms", "start ms", "MiB"
    );
    let engine = Engine::printing_to(io::sink()).expect("an engine");
    let mut first = None;
    for language in LANGUAGES {
        let module = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("languages")
            .join(language)
            .join("names.wasm");
        let Ok(file) = module.metadata() else {
            println!("{language:<12}   there is no {}", module.display());
            continue;
        };
        let begin = Instant::now();
        let filter = load(&engine, &module);
        let compile = begin.elapsed();
        let starts = (0..5).map(|_| {
            let begin = Instant::now();
            drop(filter.instantiate().expect("an instance"));
            begin.elapsed()
        });
        let start = starts.min().unwrap_or_default();
        let figures = CALLS.map(|(_, name, batch)| measure(&filter, name, batch));
        let by = first.get_or_insert(figures);
        let ratios: String = figures
            .iter()
            .zip(by)
            .map(|(figure, by)| format!("{figure:>11.0} {:>6.1}", figure / *by))
            .collect();
        println!(
            "{language:<12}{:>9}{:>12.0}{:>10.2}{:>8.1}{ratios}",
            file.len() >> 10,
            compile.as_secs_f64() * 1e3,
            start.as_secs_f64() * 1e3,
            filter.counters().memory.load(Ordering::Relaxed) as f64 / f64::from(1 << 20),
        );
    }
}

fn load(engine: &Engine, module: &Path) -> Arc<Filter> {
    let text = format!(
        "listen \"127.0.0.1\"\nfilter \"f\" {{ module \"{}\"; limits memory=\"64MiB\" time=\"1s\"\n\
         config {{ host \"hello.example\" \"192.0.2.7\"; block \"ads.example\" }} }}\n\
         zone \".\" {{ use \"f\"; forward \"192.0.2.1\" }}",
        module.display()
    );
    let config: Config = config::parse("the benchmark", &text, Path::new("/"), &[]).expect("a configuration");
    let zones = [".".to_owned()];
    let filter = Filter::load(engine, &config.filters[0], &zones, None);
    filter.expect("a filter")
}

/// Returns the nanoseconds per query of the fastest of as many short runs as fit in two seconds: the others
/// were disturbed.
fn measure(filter: &Arc<Filter>, name: &[u8], size: u64) -> f64 {
    let mut instance = filter.instantiate().expect("an instance");
    let mut batch = Batch::default();
    for number in 0..size {
        batch.push_query(query(), name[..].into(), number);
    }
    let calls = (1000 / size).max(20);
    let mut out = Vec::new();
    let mut best = Duration::MAX;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let begin = Instant::now();
        for _ in 0..calls {
            instance.queries(UnixTime::from_millis(1_000), &batch, &mut out);
        }
        best = best.min(begin.elapsed());
    }
    best.as_nanos() as f64 / (calls * size) as f64
}

fn query() -> filter::Query {
    filter::Query {
        client_high: 0,
        client_low: 0xffff_7f00_0001,
        name_start: 0,
        name_length: 0,
        qtype: 1,
        qclass: 1,
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
