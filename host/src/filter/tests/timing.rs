//! What a call costs. Figures, not a test: run by hand with
//! `cargo test --release -p dnsweir --lib filter::tests::timing -- --ignored --nocapture`.

use std::time::Instant;

use super::*;
use crate::filter::tests::ways::{both, start};

const BATCHES: [usize; 4] = [1, 8, 32, 64];

fn node(name: &str, arguments: &[&str]) -> ConfigNode {
    ConfigNode {
        name: name.into(),
        arguments: arguments
            .iter()
            .map(|&text| ConfigValue::Text(text.into()))
            .collect(),
        properties: Vec::new(),
        parent: None,
        span: SPAN,
        argument_spans: vec![SPAN; arguments.len()],
        property_spans: Vec::new(),
    }
}

fn embedded(name: &str, config: Vec<ConfigNode>) -> [Arc<Filter>; 2] {
    both(builtin(name).unwrap(), config)
}

fn name(number: usize) -> Vec<u8> {
    let label = format!("host-{number:02}");
    [
        &[label.len() as u8][..],
        label.as_bytes(),
        b"\x03svc\x07example\x03org\0",
    ]
    .concat()
}

/// Nanoseconds per item, of the quickest of many short runs: the others were disturbed.
fn measure(size: usize, mut call: impl FnMut()) -> f64 {
    let calls = (1000 / size).max(20);
    let run = |call: &mut dyn FnMut()| {
        let begin = Instant::now();
        for _ in 0..calls {
            call();
        }
        begin.elapsed()
    };
    let best = (0..1000).map(|_| run(&mut call)).min().unwrap();
    best.as_nanos() as f64 / (calls * size) as f64
}

fn queries(what: &str, filters: [Arc<Filter>; 2]) {
    let mut line = format!("{what:<20}");
    let batches = BATCHES.map(|size| {
        let mut batch = Batch::default();
        for number in 0..size {
            batch.push_query(query(1), &name(number), number as u64);
        }
        batch
    });
    for filter in &filters {
        let mut executor = start(filter);
        for batch in &batches {
            let call = || drop(executor.queries(1_000, batch.records(), batch.bytes()).unwrap());
            line += &format!("{:>7.0}", measure(batch.len(), call));
        }
        line += "    ";
    }
    let mut instance = filters[1].instantiate().unwrap();
    let mut out = Vec::new();
    for batch in &batches {
        let call = || instance.queries(1_000, batch, &mut out);
        line += &format!("{:>7.0}", measure(batch.len(), call));
    }
    println!("{line}");
}

fn events(what: &str, filters: [Arc<Filter>; 2]) {
    let mut line = format!("{what:<20}");
    let batches = BATCHES.map(|size| {
        let mut batch = Batch::default();
        for number in 0..size {
            let event = Event {
                time: 1_767_225_599_001,
                duration: 420,
                id: 4711,
                query_size: 55,
                response_size: 120,
                response_header: 0x8180,
                has_answers: true,
                ..event(1)
            };
            batch.push_event(event, &name(number));
        }
        batch
    });
    for filter in &filters {
        let mut executor = start(filter);
        for batch in &batches {
            let call = || executor.events(batch.records(), batch.bytes()).unwrap();
            line += &format!("{:>7.0}", measure(batch.len(), call));
        }
        line += "    ";
    }
    let mut instance = filters[1].instantiate().unwrap();
    for batch in &batches {
        line += &format!("{:>7.0}", measure(batch.len(), || instance.events(batch)));
    }
    println!("{line}");
}

#[test]
#[ignore = "prints figures"]
fn calls() {
    let sizes = BATCHES.map(|size| format!("{size:>7}")).concat();
    println!(
        "ns per item: call by component, call by core module, and all that an instance does with the latter"
    );
    println!("{:<20}{sizes}    {sizes}    {sizes}", "in batches of");
    queries("pass all, text", both(&guests::passer(), Vec::new()));
    queries("pass all, SDK", embedded("log", Vec::new()));
    queries("rewrite, 1 rule", embedded("rewrite", rules(1)));
    queries("rewrite, 1000 rules", embedded("rewrite", rules(1000)));
    queries(
        "nodecache",
        embedded("nodecache", vec![node("no-cache", &["dev.example.org"])]),
    );
    events("log", embedded("log", Vec::new()));
}

fn rules(count: usize) -> Vec<ConfigNode> {
    (0..count)
        .map(|number| node("name", &["exact", &format!("a{number}.test"), "b.test"]))
        .collect()
}
