//! `dnsweir explain`: sends a query through a whole configuration, and shows what each stage did.
//!
//! The proxy is built as by `dnsweir run`, but without listeners; the query is passed to a worker as a
//! listener would. The upstreams are real; the cache starts empty.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::LocalRuntime;
use tokio::time::timeout;

use super::Stop;
use crate::dns::Transport;
use crate::dns::name::Name;
use crate::dns::text::parse_type;
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, build, flag};
use crate::filter::Engine;
use crate::plain_text::{escape_into, escape_json};
use crate::run;
use crate::serve::generation::Generation;
use crate::serve::trace::{Direction, TraceEvent, TraceView};
use crate::serve::{Admission, Batch, Client, DeferredReply, Live, Replies, Shared, Worker};

/// Timeout, longer than any deadline in a configuration.
const PATIENCE: Duration = Duration::from_secs(120);

/// A query to explain.
pub struct Asked {
    /// The name, in presentation format.
    pub name: String,
    /// The record type's name.
    pub qtype: String,
    /// The client's address.
    pub client: IpAddr,
}

/// The trace as printed in JSON; the keys are stable.
#[derive(Serialize)]
struct Record {
    question: String,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    steps: Vec<StepRecord>,
    microseconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<ReplyRecord>,
}

#[derive(Serialize)]
struct StepRecord {
    stage: String,
    direction: &'static str,
    saw: String,
    did: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_microseconds: Option<f64>,
    at_microseconds: u64,
    alias_depth: u8,
}

#[derive(Serialize)]
struct ReplyRecord {
    rcode: String,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_error: Option<u16>,
    octets: usize,
    answers: Vec<String>,
}

/// Sends the query `times` times, and returns the trace of each. The folder is that of [`run::load_whole`].
///
/// # Errors
/// When the question or the configuration is invalid, or the machine prevents the proxy from running.
pub fn explain(
    file: &Path,
    compiled: Option<&Path>,
    asked: &Asked,
    times: u16,
    json: bool,
) -> Result<String, Stop> {
    let name = Name::parse(&asked.name)
        .map_err(|error| Stop::Refused(format!("{:?} is not a domain name: {error}", asked.name)))?;
    let qtype = parse_type(&asked.qtype)
        .ok_or_else(|| Stop::Refused(format!("{:?} is not a type: try AAAA or TYPE65280", asked.qtype)))?;
    let message = build::upstream_query(name.as_bytes(), qtype, CLASS_IN, flag::RD, false, None);

    let machine = |error: &dyn std::fmt::Display| Stop::Machine(error.to_string());
    let printed = Printed::default();
    let (engine, generation) = load(file, compiled, &printed)?;
    let instances = generation
        .filters
        .iter()
        .map(|loaded| loaded.filter.instantiate())
        .collect::<Result<Vec<_>, _>>();
    let instances = instances.map_err(|error| machine(&error))?;

    let records: Arc<Mutex<Vec<Record>>> = Arc::default();
    let heard = Arc::clone(&records);
    let shared = Shared::new(
        generation.config.cache_memory,
        Some(Box::new(move |told| heard.lock().push(record(told)))),
    );
    let refresher = run::Refresher::new(None);
    let server = shared.server(generation.config.listen.addresses[0]);
    let live = Live::new(Arc::clone(&generation), instances, None, Arc::clone(&shared), 0);
    let runtime = LocalRuntime::new().map_err(|error| machine(&error))?;
    runtime.block_on(async {
        let learnt = run::learn(&refresher, &generation).await;
        learnt.map_err(|error| machine(&error))?;
        let worker = Worker::new(shared, live);
        let client = SocketAddr::new(asked.client, 53_000);
        for _ in 0..times {
            ask(&worker, &message, client, server);
            let answered = timeout(PATIENCE, worker.drained()).await;
            answered.map_err(|_| Stop::Machine("there was neither an answer nor a failure".into()))?;
        }
        worker.tell();
        Ok::<(), Stop>(())
    })?;
    engine.finish_printing();

    let mut out = String::new();
    for record in records.lock().iter() {
        // Infallible for String.
        let _ = match json {
            true => escape_json(&mut out, &serde_json::to_string(record).unwrap_or_default()),
            false => escape_into(&mut out, &show(record), &['\n']),
        };
        out.push('\n');
    }
    let printed = printed.0.lock();
    if !json && !printed.is_empty() {
        let _ = write!(out, "filters printed\n{}", String::from_utf8_lossy(&printed));
    }
    Ok(out)
}

/// Loads a configuration, whose filters print to `printed`.
fn load(file: &Path, compiled: Option<&Path>, printed: &Printed) -> Result<(Engine, Arc<Generation>), Stop> {
    let (mut config, folder) = run::load_whole(file, compiled)?;
    for filter in &mut config.filters {
        // Show what a filter does now, even if its test cases fail.
        filter.test_cases = None;
    }
    let engine = Engine::printing_to(printed.clone()).map_err(|error| Stop::Machine(error.to_string()))?;
    let engine = run::compiling_once(engine, folder.as_ref());
    let generation = Generation::build(1, config, &engine, None, None)?;
    Ok((engine, Arc::new(generation)))
}

/// Passes a query to the worker as a listener does.
fn ask(worker: &Rc<Worker>, message: &[u8], client: SocketAddr, server: u16) {
    let client = Client {
        address: client,
        server,
        transport: Transport::Udp,
        received: worker.now(),
        limit: MESSAGE_MAXIMUM,
        keepalive: None,
    };
    let mut batch = Batch::default();
    let mut buffer = vec![0; MESSAGE_MAXIMUM];
    let admission = worker.admit(&mut batch, message, client, &mut buffer);
    if matches!(admission, Admission::Travelling) {
        worker.run(&mut batch, &mut Nowhere(buffer));
    }
}

/// Discards replies: the trace contains them.
struct Nowhere(Vec<u8>);

impl Replies for Nowhere {
    fn buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.0
    }

    fn reply(&mut self, _: usize, _: usize) {}

    fn defer(&mut self, _: usize) -> Box<dyn DeferredReply> {
        Box::new(NowhereLater)
    }
}

struct NowhereLater;

impl DeferredReply for NowhereLater {
    fn send(self: Box<Self>, _: &[u8]) {}
}

/// Collects the output of filters.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn record(told: &TraceView<'_>) -> Record {
    let step = |event: &TraceEvent| StepRecord {
        stage: event.stage.clone(),
        direction: match event.direction {
            Direction::In => "in",
            Direction::Out => "out",
        },
        saw: event.saw.clone(),
        did: event.did.clone(),
        took_microseconds: event.took.map(|took| took.as_nanos() as f64 / 1000.0),
        at_microseconds: event.at.as_micros() as u64,
        alias_depth: event.depth,
    };
    Record {
        question: told.question.clone(),
        client: told.client.ip().to_string(),
        identity: told.identity.map(str::to_owned),
        steps: told.events.iter().map(step).collect(),
        microseconds: told.took.as_micros() as u64,
        reply: told.reply.as_ref().map(|reply| ReplyRecord {
            rcode: reply.rcode.clone(),
            source: reply.source,
            extended_error: reply.error,
            octets: reply.size,
            answers: reply.answers.clone(),
        }),
    }
}

/// Formats the trace as text.
fn show(record: &Record) -> String {
    let identity = record.identity.as_ref();
    let identity = identity.map_or_else(String::new, |identity| format!(" ({identity})"));
    let mut out = format!("{} asked by {}{identity}\n", record.question, record.client);
    for step in &record.steps {
        let indent = "  ".repeat(usize::from(step.alias_depth));
        let took = step
            .took_microseconds
            .map(|took| format!("  took {}", time(took)))
            .unwrap_or_default();
        let at = time(step.at_microseconds as f64);
        // Infallible for String, here and below.
        let _ = writeln!(
            out,
            "{at:>10}  {indent}{:<3}  {:<18} {}{took}",
            step.direction, step.stage, step.saw
        );
        for line in &step.did {
            let _ = writeln!(out, "{:10}  {indent}     {:<18}   {line}", "", "");
        }
    }
    let at = time(record.microseconds as f64);
    match &record.reply {
        None => {
            let _ = writeln!(out, "{at:>10}  no reply: the query was dropped");
        }
        Some(reply) => {
            let error = reply
                .extended_error
                .map(|code| format!(", EDE {code}"))
                .unwrap_or_default();
            let (rcode, source, octets) = (&reply.rcode, reply.source, reply.octets);
            let _ = writeln!(
                out,
                "{at:>10}  reply: {rcode} from {source}, {octets} bytes{error}"
            );
            for answer in &reply.answers {
                let _ = writeln!(out, "{:10}    {answer}", "");
            }
        }
    }
    out
}

/// Formats microseconds in a readable unit. What was measured in whole ones has no fraction.
pub(super) fn time(microseconds: f64) -> String {
    match microseconds {
        whole if whole < 1000.0 && whole.fract() == 0.0 => format!("{whole} µs"),
        below if below < 1000.0 => format!("{below:.1} µs"),
        below if below < 1_000_000.0 => format!("{:.1} ms", below / 1000.0),
        longer => format!("{:.2} s", longer / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_precision_of_their_measurement() {
        let times = [0.0, 53.0, 304.7, 999.99, 1000.0, 12_340.0, 2_500_000.0].map(time);
        let expected = [
            "0 µs",
            "53 µs",
            "304.7 µs",
            "1000.0 µs",
            "1.0 ms",
            "12.3 ms",
            "2.50 s",
        ];
        assert_eq!(times, expected);
    }
}
