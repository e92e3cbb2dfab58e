//! Filters as a worker sees them: good, broken and hostile.

mod boundaries;
mod calls;
mod checks;
mod data;
mod failures;
mod guests;
mod interface;
mod loading;
mod packed;
mod phases;
mod refreshes;
mod repeated;
mod tables;
mod wasi;

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use dnsweir_os::clock::UnixTime;

use super::cancel::Cancel;
use super::configure::ConfigError;
use super::failure::Reason;
use super::load_error::MODULE_MAXIMUM;
use super::verdict::ResponseVerdict;
use super::*;
use crate::config::{self, ConfigNode, ConfigValue, Limits, Module, Span};

/// Long enough for any machine, short enough for a test that exceeds it.
const LIMIT: Duration = Duration::from_millis(20);

const SPAN: Span = Span { start: 0, length: 0 };

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::printing_to(io::sink()).unwrap());

/// A `filter` block with this module and one `config` node with two arguments.
pub(super) fn block(module: Vec<u8>) -> config::Filter {
    config::Filter {
        name: "test".into(),
        module: Module::File("test.wasm".into()),
        code: module.into(),
        probation: 0,
        limits: Limits {
            memory: 2 << 20,
            time: LIMIT,
            ..Limits::default()
        },
        config: vec![ConfigNode {
            name: "node".into(),
            arguments: vec![ConfigValue::Null, ConfigValue::Text("x".into())],
            properties: Vec::new(),
            parent: None,
            span: SPAN,
            argument_spans: vec![SPAN, SPAN],
            property_spans: Vec::new(),
        }],
        ..config::Filter::default()
    }
}

fn load(engine: &Engine, module: Vec<u8>) -> Result<Arc<Filter>, LoadError> {
    Filter::load(engine, &block(module), &["example.".into()], None)
}

/// An instance of the puppet.
fn puppet() -> Instance {
    load(&ENGINE, guests::puppet()).unwrap().instantiate().unwrap()
}

pub(super) fn query(qtype: u16) -> Query {
    Query {
        client_high: 0,
        client_low: 0xffff_7f00_0001,
        name_start: 0,
        name_length: 0,
        qtype,
        qclass: 1,
        header: 0x0100,
        udp_size: 1232,
        edns_flags: 0,
        client_port: 53_000,
        zone: 0,
        transport: 0,
        edns: 1,
        details_length: 0,
    }
}

pub(super) fn response(qtype: u16, rcode: u16) -> Response {
    Response {
        query: query(qtype),
        rcode,
        source: 0,
        answer_count: 0,
        ttl: 0,
        message_start: 0,
        message_length: 0,
    }
}

pub(super) fn event(qtype: u16) -> Event {
    Event {
        query: query(qtype),
        time: 0,
        duration: 0,
        id: 0,
        query_size: 0,
        response_size: 0,
        rcode: 0,
        response_header: 0,
        has_answers: 0,
        source: 1,
        message_start: 0,
        message_length: 0,
    }
}

/// A batch with one query per type, each with a name and a client of its own, so that a failure is blamed on
/// nothing that others query.
fn batch(qtypes: &[u16]) -> Batch<Query> {
    let mut batch = Batch::default();
    for &qtype in qtypes {
        let [high, low] = qtype.to_be_bytes();
        let query = Query {
            client_low: 0xffff_0a00_0000 + u64::from(qtype),
            ..query(qtype)
        };
        batch.push_query(query, [2, high, low, 0][..].into(), 7);
    }
    batch
}

/// The query phase's outcomes in short: the rcode of a refusal, `-` for a pass without a verdict, `+` for one
/// with a verdict, `!` for a failure.
fn ask(instance: &mut Instance, batch: &Batch<Query>) -> String {
    let mut out = Vec::new();
    instance.queries(UnixTime::from_millis(1_000), batch, &mut out);
    assert_eq!(out.len(), batch.len());
    out.iter()
        .map(|outcome| match outcome {
            Outcome::Passed => "-".into(),
            Outcome::Failed => "!".into(),
            Outcome::Decided(verdict) => match &verdict.decision {
                Decision::Pass => "+".into(),
                Decision::Refuse(refusal) => refusal.rcode.to_string(),
                other => format!("{other:?}"),
            },
        })
        .collect()
}
