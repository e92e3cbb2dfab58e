//! Queries whose answers are the proxy's own work, from the bytes of the query to those of the reply: zones
//! as wide as they may be, and a filter that reorders cached records.

use std::cell::Cell;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use clap::ValueEnum;
use dnsweir_config as config;
use dnsweir_engine::filter::BUILTINS;
use dnsweir_os::clock::Uptime;
use dnsweir_serve::serve::generation::Generation;
use dnsweir_serve::serve::{Admission, Batch, Client, DeferredReply, Replies, Shared, Worker};
use dnsweir_wire::dns::{MESSAGE_MAXIMUM, Transport};
use tokio::runtime::LocalRuntime;

/// What the answer is made of.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Own {
    /// A set of as many addresses as a zone may have
    Set,
    /// Records that name as many hosts, each with as many addresses
    Hosts,
    /// A set from the cache, which a filter puts in another order
    Edited,
}

/// The most records of a name and type that a zone may have.
const WIDE: usize = 5000;

/// As many as fit in a message, so that they are cached.
const KEPT: usize = 4000;

impl Own {
    /// Returns the configuration except for the listener.
    fn configuration(self, zone: &Path) -> String {
        let (filter, stages) = match self {
            Own::Set | Own::Hosts => ("", ""),
            // The longest limit allowed: instrumented code is slow.
            Own::Edited => (
                "filter \"rotation\" { module \"builtin:rotation\"; limits time=\"1s\" }",
                "use \"rotation\"; cache;",
            ),
        };
        format!("workers 1; {filter}\nzone \"own.test\" {{ {stages} file {zone:?} }}")
    }

    fn zone(self) -> String {
        let mut zone = "$TTL 300\n@ SOA ns host 1 7200 3600 86400 300\n@ NS ns\nns A 192.0.2.53\n".to_owned();
        let (owner, count) = match self {
            Own::Set => ("wide", WIDE),
            Own::Hosts => ("*", WIDE),
            Own::Edited => ("wide", KEPT),
        };
        for number in 0..count {
            let _ = writeln!(zone, "{owner} A 10.0.{}.{}", number / 250, number % 250);
            if matches!(self, Own::Hosts) {
                let _ = writeln!(zone, "wide SRV 0 0 1 t{number}");
            }
        }
        zone
    }

    fn query(self) -> Vec<u8> {
        let qtype = if matches!(self, Own::Hosts) { 33 } else { 1 };
        let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(b"\x04wide\x03own\x04test\0");
        query.extend([0, qtype, 0, 1]);
        query
    }
}

/// Asks `count` times, as a client that takes `octets` bytes. Returns what the reply is.
///
/// # Errors
///
/// If the proxy cannot be set up, or does not answer immediately.
pub fn run(own: Own, octets: usize, count: u64, compiled: Option<&Path>) -> Result<String, Box<dyn Error>> {
    let folder = Folder::new()?;
    let zone = folder.0.join("zone");
    fs::write(&zone, own.zone())?;
    let address: SocketAddr = "127.0.0.1:53".parse()?;
    let text = format!("listen \"{address}\"; {}", own.configuration(&zone));
    let config = config::parse("the measurement", &text, Path::new("/"), BUILTINS)?;
    let engine = crate::hit::engine(compiled)?;
    let generation = Arc::new(Generation::build(1, config, &engine, None, None)?);
    let shared = Shared::new(1 << 30, None);
    let client = Client {
        address: "127.0.0.2:40000".parse()?,
        server: shared.server(address),
        transport: Transport::Tcp,
        received: Uptime::START,
        limit: octets.min(MESSAGE_MAXIMUM),
        keepalive: None,
    };
    let query = own.query();
    LocalRuntime::new()?.block_on(async {
        let worker = crate::hit::begin(&shared, &generation, 0)?;
        let mut outbox = Outbox {
            buffer: vec![0; MESSAGE_MAXIMUM],
            length: Rc::default(),
        };
        // Fill the cache.
        ask(&worker, &query, client, &mut outbox);
        worker.drained().await;
        outbox.length.set(0);
        for _ in 0..count {
            answer(&worker, &query, client, &mut outbox);
        }
        match outbox.length.get() {
            0 => Err("no answer, or not at once".into()),
            length => Ok(format!("{length} octets")),
        }
    })
}

/// The part to count.
#[inline(never)]
fn answer(worker: &Rc<Worker>, query: &[u8], client: Client, outbox: &mut Outbox) {
    ask(worker, query, client, outbox);
}

fn ask(worker: &Rc<Worker>, query: &[u8], client: Client, outbox: &mut Outbox) {
    let mut batch = Batch::default();
    let client = Client {
        received: worker.now(),
        ..client
    };
    let admitted = worker.admit(&mut batch, query, client, &mut outbox.buffer);
    debug_assert!(matches!(admitted, Admission::Travelling));
    worker.run(&mut batch, outbox);
}

/// Holds the last reply.
struct Outbox {
    buffer: Vec<u8>,
    /// Its length; 0 if it was deferred, or there was none.
    length: Rc<Cell<usize>>,
}

impl Replies for Outbox {
    fn buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }

    fn reply(&mut self, _: usize, length: usize) {
        self.length.set(length);
    }

    fn defer(&mut self, _: usize) -> Box<dyn DeferredReply> {
        self.length.set(0);
        Box::new(Late)
    }
}

struct Late;

impl DeferredReply for Late {
    fn send(self: Box<Self>, _: &[u8]) {}
}

/// A folder for the zone file, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        let name = format!("dnsweir-bench-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder)?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that they are as large as a message can be, and no larger than the client takes.
    #[test]
    fn answers_are_as_large_as_may_be() -> Result<(), Box<dyn Error>> {
        for own in Own::value_variants().iter().copied() {
            let octets = |limit| -> Result<usize, Box<dyn Error>> {
                let said = run(own, limit, 1, None)?;
                Ok(said.trim_end_matches(" octets").parse()?)
            };
            assert!(octets(MESSAGE_MAXIMUM)? > 60_000, "{own:?}");
            assert!((400..=512).contains(&octets(512)?), "{own:?}");
        }
        Ok(())
    }
}
