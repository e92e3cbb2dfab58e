//! Cache misses without a listener, from the bytes of the query to the bytes of the reply, with a socket to an upstream
//! that this program is itself.
//!
//! Made to be counted by callgrind, like [`hit`](crate::hit). It counts whole runs: the cost of a miss is the
//! difference of two runs, divided by the difference of their numbers of queries. The upstream answers a batch when
//! all of its queries have arrived, so that the counts do not depend on what else the machine does.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use dnsweir_config as config;
use dnsweir_engine::filter::BUILTINS;
use dnsweir_serve::serve::generation::Generation;
use dnsweir_serve::serve::{Admission, Batch, Replies as _, Shared};
use tokio::runtime::LocalRuntime;

use crate::datagrams::DATAGRAM;
use crate::hit::{self, ADDRESS, CACHE, Expected, Filters, Outbox, begin, client};
use crate::wire::{self, A, Question};

/// How often the runtime may run before a query has left.
const TURNS: u32 = 10_000;

/// The letter that names begin with.
const LETTER: u8 = b'm';

/// What to measure, on the command line.
#[derive(Args)]
pub struct Settings {
    /// Which filters see every query: each name is new, so that no verdict is remembered
    #[arg(long, value_enum, default_value = "bare")]
    filters: Filters,
    /// Queries in all
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    count: u32,
    /// Queries of a batch
    #[arg(long, value_name = "N", default_value_t = 16)]
    batch: u32,
    /// Where compiled filters are kept: one that is there need not be compiled
    #[arg(long, value_name = "FOLDER")]
    compiled: Option<PathBuf>,
}

/// Measures, and prints what was measured.
///
/// # Errors
///
/// If the proxy or the upstream cannot be started, or a query is not answered correctly.
pub fn run(settings: &Settings) -> Result<(), Box<dyn Error>> {
    let upstream = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    upstream.set_nonblocking(true)?;
    // One attempt: on a busy machine there would be more, and more to count.
    let (filters, stages) = settings.filters.configuration(None);
    let text = format!(
        "listen \"{ADDRESS}\"; workers 1; {filters}\n\
         zone \".\" {{ {stages}\n cache; forward \"{}\" {{ attempts 1; timeout \"10s\"; deadline \"10s\" }} }}",
        upstream.local_addr()?
    );
    let engine = hit::engine(settings.compiled.as_deref())?;
    let config = config::parse("the benchmark", &text, Path::new("/"), BUILTINS)?;
    let generation = Arc::new(Generation::build(1, config, &engine, None, None)?);
    let shared = Shared::new(CACHE, None);
    let took = LocalRuntime::new()?.block_on(ask(settings, &shared, &generation, &upstream))?;
    println!("{} misses, {took:.0} ns each", settings.count);
    Ok(())
}

/// Queries that many new names, one batch at a time. Returns nanoseconds per query.
async fn ask(
    settings: &Settings,
    shared: &Arc<Shared>,
    generation: &Arc<Generation>,
    upstream: &UdpSocket,
) -> Result<f64, Box<dyn Error>> {
    let worker = begin(shared, generation, 0)?;
    let mut client = client(shared, &worker)?;
    let mut outbox = Outbox::new(Expected::ONE_RECORD);
    let mut batch = Batch::default();
    let mut query = [0; 64];
    let mut waiting = 0;
    let start = Instant::now();
    for number in 0..settings.count {
        let question = Question {
            letter: LETTER,
            number,
            qtype: A,
            exists: true,
        };
        let length = question.write(number as u16, &mut query);
        client.received = worker.now();
        let admitted = worker.admit(&mut batch, &query[..length], client, outbox.buffer(0));
        debug_assert!(matches!(admitted, Admission::Travelling));
        waiting += 1;
        if waiting == settings.batch || number + 1 == settings.count {
            worker.run(&mut batch, &mut outbox);
            worker.tell_if_many();
            answer(upstream, std::mem::take(&mut waiting)).await?;
            worker.drained().await;
        }
    }
    let took = start.elapsed().as_nanos() as f64 / f64::from(settings.count.max(1));
    let count = u64::from(settings.count);
    let (answered, late) = (outbox.answered.get(), outbox.late);
    if answered != count || late != count {
        return Err(format!(
            "{answered} of {count} queries were answered correctly, {late} of them by the upstream"
        )
        .into());
    }
    Ok(took)
}

/// Waits for that many queries, and answers them.
async fn answer(upstream: &UdpSocket, count: u32) -> io::Result<()> {
    let mut queries: Vec<([u8; DATAGRAM], usize, SocketAddr)> = Vec::new();
    let mut turns = 0;
    loop {
        let mut buffer = [0; DATAGRAM];
        match upstream.recv_from(&mut buffer) {
            Ok((length, from)) => queries.push((buffer, length, from)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock || turns == TURNS => return Err(error),
            Err(_) if queries.len() >= count as usize => break,
            Err(_) => {
                turns += 1;
                tokio::task::yield_now().await;
            }
        }
    }
    for (mut message, length, from) in queries {
        let end = wire::question_end(&message[..length]).ok_or(io::ErrorKind::InvalidData)?;
        let length = wire::authoritative(&message[..length], end).answer(&mut message, end);
        upstream.send_to(&message[..length], from)?;
    }
    Ok(())
}
