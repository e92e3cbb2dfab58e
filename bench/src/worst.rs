//! The most expensive messages of a given size: what a client or an upstream can make the proxy do with one
//! message.
//!
//! Made for callgrind, as a hit is: count [`admit`] and [`read`].

mod input;
mod own_answers;

use std::error::Error;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use clap::{ArgGroup, Args, ValueEnum};
use dnsweir_config as config;
use dnsweir_engine::filter::Engine;
use dnsweir_os::clock::Uptime;
use dnsweir_serve::serve::generation::Generation;
use dnsweir_serve::serve::{Admission, Batch, Client, Live, Shared, Worker};
use dnsweir_wire::dns::Transport;
use dnsweir_wire::dns::records::{Answer, BadRecords};
use dnsweir_wire::dns::reply::{self, Body, Head, Ttl};
use dnsweir_wire::dns::{HEADER, MESSAGE_MAXIMUM, QUERY_RECORDS};

use input::Reader;
use own_answers::Own;

/// Which message, and how often.
#[derive(Args)]
#[command(group(ArgGroup::new("message").required(true)))]
pub struct Settings {
    /// A query, and what it is full of
    #[arg(long, value_enum, group = "message")]
    query: Option<Filling>,
    /// An answer, and what it is full of
    #[arg(long, value_enum, group = "message")]
    answer: Option<Filling>,
    /// A query whose answer the proxy makes itself, and of what; --octets is what the client takes
    #[arg(long, value_enum, group = "message")]
    own: Option<Own>,
    /// What a file is read as, in place of a message; --file says which
    #[arg(long, value_enum, group = "message", requires = "file")]
    read: Option<Reader>,
    /// The file
    #[arg(long, value_name = "FILE", requires = "read")]
    file: Option<PathBuf>,
    /// Its size
    #[arg(long, value_name = "N", default_value_t = 512)]
    octets: usize,
    /// How often it comes
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,
    /// Where compiled filters are kept: one that is there need not be compiled
    #[arg(long, value_name = "FOLDER")]
    compiled: Option<PathBuf>,
}

/// Processes the message. Returns how it was handled.
///
/// # Errors
///
/// If the proxy cannot be set up.
pub fn run(settings: &Settings) -> Result<String, Box<dyn Error>> {
    let Settings { octets, count, .. } = *settings;
    if let (Some(reader), Some(file)) = (settings.read, &settings.file) {
        return input::run(reader, file, count);
    }
    match (settings.query, settings.answer, settings.own) {
        (Some(filling), ..) => query(filling, octets, count),
        (_, Some(filling), _) => Ok(answer(filling, octets, count)),
        (.., Some(own)) => own_answers::run(own, octets, count, settings.compiled.as_deref()),
        _ => Err("no message".into()),
    }
}

/// What a message is full of.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Filling {
    /// Records that lead to chains of pointers, as long as they may be.
    Pointers,
    /// Records of which each leads through a pointer to the name with the most labels.
    Compressed,
    /// Records with as many labels as a name can have, written out.
    Labels,
    /// The smallest records, each of another type.
    Records,
    /// The smallest options of an OPT record.
    Options,
}

impl Filling {
    /// Returns a message full of it: an answer, or a query with no more records than are read.
    fn message(self, octets: usize, answer: bool) -> Vec<u8> {
        let mut message = Message::new(octets, answer);
        let first = message.octets.len() + 11;
        match self {
            Filling::Pointers => message.fill_with_pointers(first),
            Filling::Compressed => {
                message.push(&[0], OPAQUE, &deep());
                while message.push(&to(first), CNAME, &to(first)) {}
            }
            Filling::Labels => {
                while message.push(&deep(), CNAME, &deep()) {}
                while message.push(&[0], OPAQUE, &[]) {}
            }
            Filling::Records => {
                let mut rtype = OPAQUE;
                while message.push(&[0], rtype, &[]) {
                    rtype -= 1;
                }
            }
            Filling::Options => {
                let options = [0, 100, 0, 0].repeat(octets.saturating_sub(first) / 4);
                message.push(&[0], OPT, &options);
            }
        }
        // An answer has them in its answer section, a query in the additional section.
        let in_answer_section = answer && !matches!(self, Filling::Options);
        message.finish(if in_answer_section { 6 } else { 10 })
    }
}

/// A message under construction.
struct Message {
    octets: Vec<u8>,
    /// Its final size.
    size: usize,
    records: u16,
    /// The most records that are read.
    most: u16,
}

impl Message {
    /// Starts a message with its question.
    fn new(size: usize, answer: bool) -> Message {
        let mut octets = vec![0, 1, if answer { 0x81 } else { 1 }, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        octets.extend(b"\x01a\x04test\0\0\x01\0\x01");
        Message {
            octets,
            size,
            records: 0,
            most: if answer { u16::MAX } else { QUERY_RECORDS as u16 },
        }
    }

    /// Adds a record, if there is room.
    fn push(&mut self, owner: &[u8], rtype: u16, data: &[u8]) -> bool {
        let length = self.octets.len() + owner.len() + 10 + data.len();
        let fits = self.records < self.most && length <= self.size;
        if fits {
            self.octets.extend(owner);
            self.octets.extend(rtype.to_be_bytes());
            self.octets.extend([0, 1, 0, 0, 0, 60]);
            self.octets.extend((data.len() as u16).to_be_bytes());
            self.octets.extend(data);
            self.records += 1;
        }
        fits
    }

    /// The data of the first record, whose type has no names, is the root and chains of pointers to it; all
    /// others point there.
    fn fill_with_pointers(&mut self, first: usize) {
        let mut data = vec![0];
        for link in 0..self.size.min(0x3fff).saturating_sub(first + 30) / 4 {
            let chain_begins = link % 15 == 0;
            let before = if chain_begins { 0 } else { data.len() - 2 };
            data.extend(to(first + before));
        }
        let links = (data.len() - 1) / 2;
        self.push(&[0], OPAQUE, &data);
        let mut link = 0;
        let last = to(first + 1 + 2 * (links - 1));
        while self.push(&to(first + 1 + 2 * (link % links)), CNAME, &last) {
            link += 7;
        }
    }

    /// Writes the number of records at `count_at`, and pads the rest.
    fn finish(mut self, count_at: usize) -> Vec<u8> {
        self.octets[count_at..count_at + 2].copy_from_slice(&self.records.to_be_bytes());
        self.octets.resize(self.size, 0);
        self.octets
    }
}

/// Returns a compression pointer (RFC 1035 section 4.1.4).
fn to(at: usize) -> [u8; 2] {
    (0xc000 | at as u16).to_be_bytes()
}

/// Returns the name with the most labels.
fn deep() -> Vec<u8> {
    [[1, b'x'].repeat(127), vec![0]].concat()
}

const CNAME: u16 = 5;
const OPT: u16 = 41;
/// For private use (RFC 6895 section 3.1): any data is well formed.
const OPAQUE: u16 = 0xff00;

/// Processes such a query `count` times. Returns how it was handled.
///
/// # Errors
///
/// If the proxy cannot be set up.
fn query(filling: Filling, octets: usize, count: u64) -> Result<String, Box<dyn Error>> {
    let message = filling.message(octets, false);
    let address: SocketAddr = "127.0.0.1:53".parse()?;
    let text = format!("listen \"{address}\"; zone \".\" {{ cache; forward \"192.0.2.53\" }}");
    let config = config::parse("the measurement", &text, Path::new("/"), &[])?;
    let engine = Engine::printing_to(io::sink())?;
    let generation = Arc::new(Generation::build(1, config, &engine, None, None)?);
    let shared = Shared::new(1 << 20, None);
    let client = Client {
        address: "127.0.0.2:40000".parse()?,
        server: shared.server(address),
        transport: Transport::Tcp,
        received: Uptime::START,
        limit: MESSAGE_MAXIMUM,
        keepalive: None,
    };
    let worker = Worker::new(
        Arc::clone(&shared),
        Live::new(generation, Vec::new(), None, shared, 0),
    );
    let mut out = vec![0; MESSAGE_MAXIMUM];
    let mut met = String::new();
    for _ in 0..count {
        // The growth of an earlier batch must not count.
        let mut batch = Batch::default();
        met = match admit(&worker, &mut batch, &message, client, &mut out) {
            Admission::Travelling => "served".to_owned(),
            Admission::Answered(_) => format!("rcode {}", out[3] & 0x0f),
            Admission::Transfer(_) => "a transfer".to_owned(),
            Admission::Silence => "silence".to_owned(),
        };
    }
    Ok(met)
}

#[inline(never)]
fn admit(
    worker: &Rc<Worker>,
    batch: &mut Batch,
    message: &[u8],
    client: Client,
    out: &mut [u8],
) -> Admission {
    worker.admit(batch, message, client, out)
}

/// Parses such an answer `count` times, and truncates it for a client without EDNS. Returns the outcome.
fn answer(filling: Filling, octets: usize, count: u64) -> String {
    let message = filling.message(octets, true);
    let mut out = vec![0; MESSAGE_MAXIMUM];
    let mut met = String::new();
    for _ in 0..count {
        met = match read(message.clone(), &mut out) {
            Ok(size) => format!("{size} octets"),
            Err(error) => error.to_string(),
        };
    }
    met
}

#[inline(never)]
fn read(message: Vec<u8>, out: &mut [u8]) -> Result<usize, BadRecords> {
    let mut answer = Answer::read(message)?;
    answer.clamp(1, 3600);
    let client = Head {
        id: 1,
        flags: 0,
        question: &answer.message[HEADER..HEADER + 11],
        opt: None,
        limit: 512,
    };
    let body = Body {
        message: &answer.message,
        ttl_offsets: answer.ttl_offsets.iter().map(|&at| usize::from(at)),
        ttl: Ttl::AS_IS,
        rcode: answer.rcode,
        authoritative: false,
        error_text: "",
    };
    Ok(black_box(reply::write(out, &client, body)))
}

#[cfg(test)]
mod tests {
    use dnsweir_wire::dns::QUERY_MAXIMUM;

    use super::*;

    /// Checks that they are complete, of the full size, and not rejected for another reason.
    #[test]
    fn messages_are_dear() -> Result<(), Box<dyn Error>> {
        for filling in Filling::value_variants().iter().copied() {
            for octets in [512, 4096, MESSAGE_MAXIMUM] {
                assert_eq!(filling.message(octets, true).len(), octets, "{filling:?}");
                let met = query(filling, octets, 1)?;
                assert_eq!(
                    met == "served",
                    octets <= QUERY_MAXIMUM,
                    "{filling:?}, {octets} octets: {met}"
                );
                assert!(
                    answer(filling, octets, 1).ends_with("octets"),
                    "{filling:?}, {octets} octets"
                );
            }
        }
        Ok(())
    }
}
