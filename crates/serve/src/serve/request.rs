//! A query on its way: what was asked, how far it has come, and what happens to it on the way back.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use crate::admission::Place;
use crate::cache::Leader;
use crate::dns::Transport;
use crate::dns::edns::{self, ClientSubnet, Edns, Opt};
use crate::dns::name::Name;
use crate::dns::query::Query;
use crate::dns::reply::Head;
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, QUESTION_TAIL, flag, u16_at};
use crate::filter::{ResponseEdit, Verdict};
use dnsweir_answer::Resolution;
use dnsweir_answer::identity::Identity;

use super::trace::{Trace, TraceEvent};

/// Who sent a query, through which listener, and when.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Who asks.
    pub address: SocketAddr,
    /// Index of the listener that took it.
    pub server: u16,
    /// How it came.
    pub transport: Transport,
    /// Microseconds of the worker's clock.
    pub received: u64,
    /// Octets of the largest reply the listener sends; 65 535 over TCP.
    pub limit: usize,
    /// The idle timeout in units of 100 ms that a TCP client may be told (RFC 7828).
    pub keepalive: Option<u16>,
}

/// Octets of the longest query that is kept whole to be told; of a longer one it is the header and the question. A query may wait,
/// and takes its message along.
pub const MESSAGE_KEPT: usize = 1232;

/// One query on its way through a pipeline.
pub struct Request {
    /// Who sent it.
    pub client: Client,
    /// The name that the client asked for in TLS, if there is one.
    pub server_name: Option<Arc<str>>,
    /// Who that is, if the generation wants to know: only [`Live::identity`](super::Live::identity) may read it.
    pub identity: Identity,
    /// The message ID.
    pub id: u16,
    /// The second 16 bits of the header.
    pub flags: u16,
    /// The OPT record.
    pub edns: Option<Edns>,
    /// Octets of the query.
    pub size: u16,
    /// The options of its OPT record, if a filter of the generation wants to know them.
    pub options: Vec<u8>,
    /// The message as it came, if somebody is told of messages.
    pub message: Vec<u8>,
    /// The whole message, if it is signed and may only be relayed as it is.
    pub signed: Option<Box<[u8]>>,
    /// The question as it stands now, in the letter case it came in: name, type, class.
    pub question: Vec<u8>,
    /// The name of the question, lowercased.
    pub name: Name,
    /// The type of the question.
    pub qtype: u16,
    /// The class of the question.
    pub qclass: u16,
    /// The hash of name, type and class, for every table that is keyed by them.
    pub hash: u64,
    /// Index of the pipeline.
    pub pipeline: usize,
    /// Which of the pipeline's zones owns the name.
    pub zone: usize,
    /// The stage it has come to.
    pub stage: usize,
    /// What filters have decided for the way back, in the order of the stages.
    pub changes: Vec<Change>,
    /// Whether a filter has said who is asked, so that it is worth looking through the changes for that.
    pub routed: bool,
    /// For how many milliseconds filters want its response held back.
    pub delay: u16,
    /// How many aliases and lookups led here.
    pub depth: u8,
    /// Its place among the queries that wait; none while it does not, and for the proxy's own.
    pub place: Option<Place>,
    /// Until when it waits for something fresh, if there is something stale.
    pub until: Option<Instant>,
    /// How many lookups were made for the client's query, once there was one.
    pub lookups: OnceCell<Rc<Cell<u8>>>,
    /// What others wait for, who are told when it leaves the cache behind, or is dropped.
    pub led: Option<Leader<Resolution>>,
    /// What happens to it, for those who asked to be told; as a rule nobody.
    pub trace: Option<Rc<Trace>>,
}

/// What of a query is kept beside what answering it takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keeps {
    /// EDNS options: a filter wants to know them.
    pub options: bool,
    /// The message: somebody is told of messages.
    pub message: bool,
}

/// What a filter decided about a response before there was one.
#[derive(Debug, Clone)]
pub struct Change {
    /// The stage of the filter.
    pub stage: usize,
    /// What is to be done there.
    pub what: ChangeKind,
}

/// The kinds of [`Change`].
#[derive(Debug, Clone)]
pub enum ChangeKind {
    /// Records, TTLs, rcodes, and what the cache may do: the edit of this verdict.
    Edit(Arc<Verdict>),
    /// The question was another one above this stage.
    Renamed {
        /// The question above.
        question: Vec<u8>,
        /// Whether records owned by the name below get the name above.
        revert: bool,
    },
    /// The filter does not want to see the response.
    SkipResponse,
    /// Below this stage, this source is asked in the place of the zone's (an index into the generation's), and upstreams are
    /// told this subnet.
    Route(Option<usize>, Option<ClientSubnet>),
}

impl Request {
    /// An empty one, to be [`admit`](Request::admit)ted into.
    pub fn new(client: Client) -> Request {
        Request {
            client,
            server_name: None,
            identity: Identity::Unknown,
            id: 0,
            flags: 0,
            edns: None,
            size: 0,
            options: Vec::new(),
            message: Vec::new(),
            signed: None,
            question: Vec::new(),
            name: Name::ROOT,
            qtype: 0,
            qclass: 0,
            hash: 0,
            pipeline: 0,
            zone: 0,
            stage: 0,
            changes: Vec::new(),
            routed: false,
            delay: 0,
            depth: 0,
            place: None,
            until: None,
            lookups: OnceCell::new(),
            led: None,
            trace: None,
        }
    }

    /// Whether its reply is a datagram.
    pub(crate) fn takes_datagrams(&self) -> bool {
        self.client.transport == Transport::Udp
    }

    /// Whether there is no query here: it went on elsewhere.
    pub fn is_empty(&self) -> bool {
        self.question.is_empty()
    }

    /// Becomes the start of a new query's way, keeping its buffers.
    pub fn admit(&mut self, query: &Query<'_>, client: Client, keeps: Keeps) {
        self.client = client;
        self.id = query.id;
        self.flags = query.flags;
        self.edns = query.edns;
        self.size = query.message.len() as u16;
        self.options.clear();
        if keeps.options || keeps.message {
            self.keep(query, keeps);
        }
        self.signed = query.signed.then(|| query.message.into());
        self.question.clear();
        self.question.extend_from_slice(query.question());
        self.name.set_lowercased(query.name());
        self.qtype = query.qtype;
        self.qclass = query.qclass;
        self.stage = 0;
        // Left to itself, the compiler calls what drops them, of which there are none for most queries.
        if !self.changes.is_empty() {
            self.changes.clear();
        }
        self.routed = false;
        self.delay = 0;
        self.depth = 0;
        self.trace = None;
    }

    /// Becomes an empty one, keeping room for a question and changes.
    pub fn clear(&mut self) {
        let mut question = std::mem::take(&mut self.question);
        question.clear();
        let mut changes = std::mem::take(&mut self.changes);
        changes.clear();
        *self = Request {
            question,
            changes,
            ..Request::new(self.client)
        };
    }

    #[cold]
    #[inline(never)]
    fn keep(&mut self, query: &Query<'_>, keeps: Keeps) {
        if keeps.options && query.edns.is_some() {
            self.options.extend_from_slice(query.options());
        }
        if keeps.message {
            self.message.clear();
            match query.message.len() {
                0..=MESSAGE_KEPT => self.message.extend_from_slice(query.message),
                _ => {
                    self.message.extend_from_slice(&query.message[..6]);
                    self.message.extend([0; 6]);
                    self.message.extend_from_slice(query.question());
                }
            }
        }
    }

    /// Takes the question above a filter that had put another in its place, and gives that one back.
    pub(crate) fn restore(&mut self, question: Vec<u8>) -> Vec<u8> {
        let below = std::mem::replace(&mut self.question, question);
        let tail = self.question.len() - QUESTION_TAIL;
        self.name.set_lowercased(&self.question[..tail]);
        self.qtype = u16_at(&self.question, tail);
        self.qclass = u16_at(&self.question, tail + 2);
        below
    }

    /// Forgets what was to be done on the way back: there is none. The question is the client's again.
    pub fn end(&mut self) {
        while let Some(change) = self.changes.pop() {
            if let ChangeKind::Renamed { question, .. } = change.what {
                self.restore(question);
            }
        }
    }

    /// Adds to the trace, if one is told.
    // A look at a pointer that is never set, where nobody watches.
    #[inline(always)]
    pub fn trace(&self, event: impl FnOnce() -> TraceEvent) {
        if let Some(trace) = &self.trace {
            trace.add(self.depth, event());
        }
    }

    /// How many lookups were made so far for the client's query, over all that it leads to.
    pub(crate) fn lookups_made(&self) -> &Rc<Cell<u8>> {
        self.lookups.get_or_init(Rc::default)
    }

    /// A query of the proxy's own for `name`, with the wishes of the client it is asked for, who waits for it.
    pub fn internal(&self, name: &[u8]) -> Request {
        let mut question = name.to_vec();
        question.extend(self.qtype.to_be_bytes());
        question.extend(self.qclass.to_be_bytes());
        let client = Client {
            transport: Transport::Internal,
            limit: MESSAGE_MAXIMUM,
            ..self.client
        };
        Request {
            identity: self.identity.clone(),
            id: self.id,
            flags: self.flags,
            edns: self.edns,
            size: self.size,
            question,
            name: Name::lowercased(name),
            qtype: self.qtype,
            qclass: self.qclass,
            hash: self.hash,
            pipeline: self.pipeline,
            zone: self.zone,
            depth: self.depth + 1,
            place: self.place.clone(),
            until: self.until,
            lookups: OnceCell::from(Rc::clone(self.lookups_made())),
            trace: self.trace.clone(),
            ..Request::new(client)
        }
    }

    /// A query of the proxy's own for what a filter asks about this one.
    pub fn lookup(&self, name: &[u8], qtype: u16) -> Request {
        let mut question = name.to_vec();
        question.extend(qtype.to_be_bytes());
        question.extend(CLASS_IN.to_be_bytes());
        Request {
            // Whether the client wants recursion is no reason not to answer the filter.
            flags: self.flags | flag::RD,
            question,
            qtype,
            qclass: CLASS_IN,
            ..self.internal(name)
        }
    }

    /// A query of the proxy's own for the same again, for which nobody waits. It begins at the same stage. What it
    /// brings is for everybody: nothing in it but DO, CD and its route, which the cache keeps apart, is the client's wish.
    pub fn refresh(&self) -> Request {
        let routes = self.changes.iter();
        let routes = routes.filter(|change| matches!(change.what, ChangeKind::Route(..)));
        Request {
            identity: Identity::Unknown,
            flags: self.flags & flag::CD | flag::RD,
            stage: self.stage,
            changes: routes.cloned().collect(),
            routed: self.routed,
            depth: 0,
            place: None,
            until: None,
            lookups: OnceCell::new(),
            trace: None,
            ..self.internal(self.name.as_bytes())
        }
    }

    /// Whether what an upstream says to it may be kept and shared: not the answer to a signed query, which is for its
    /// client alone, nor that of an upstream which was not asked to recurse.
    pub(crate) fn may_share(&self) -> bool {
        self.signed.is_none() && self.recursion_desired()
    }

    /// Resolves when somebody else has taken its place among those who wait.
    pub fn poll_displaced(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.place {
            Some(place) => place.poll_displaced(context),
            None => Poll::Pending,
        }
    }

    /// Whether DNSSEC records are wanted.
    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok())
    }

    /// Whether upstreams are asked not to validate.
    pub fn checking_disabled(&self) -> bool {
        self.flags & flag::CD != 0
    }

    /// Whether an upstream may be asked to recurse.
    pub fn recursion_desired(&self) -> bool {
        self.flags & flag::RD != 0
    }

    /// Whether no filter so far forbade the cache to answer or to keep.
    #[inline]
    pub(crate) fn may_store(&self) -> bool {
        self.edits().all(|edit| edit.store)
    }

    /// Who is asked, and what upstreams are told, as far as filters so far have said so.
    pub fn route(&self) -> (Option<usize>, Option<ClientSubnet>) {
        let routes = self.changes.iter();
        routes.fold((None, None), |(before, told), change| match change.what {
            ChangeKind::Route(source, subnet) => (source.or(before), subnet.or(told)),
            _ => (before, told),
        })
    }

    /// Whether a filter below this stage has upstreams told where the client is.
    pub(crate) fn tells_subnet_below(&self, stage: usize) -> bool {
        let mut below = self.changes.iter().filter(|change| change.stage > stage);
        below.any(|change| matches!(change.what, ChangeKind::Route(_, Some(_))))
    }

    /// Whether no filter so far forbade stale answers.
    pub(crate) fn may_be_stale(&self) -> bool {
        self.edits().all(|edit| edit.stale)
    }

    fn edits(&self) -> impl Iterator<Item = &ResponseEdit> {
        self.changes.iter().filter_map(|change| match &change.what {
            ChangeKind::Edit(verdict) => verdict.edit.as_ref(),
            _ => None,
        })
    }

    /// The client as the reply's writer sees it.
    #[inline]
    pub(crate) fn reply_head(&self, error: Option<u16>) -> Head<'_> {
        let keepalive = self
            .client
            .keepalive
            .filter(|_| self.edns.is_some_and(|edns| edns.keepalive));
        Head {
            id: self.id,
            flags: self.flags,
            question: &self.question,
            opt: self.edns.map(|edns| Opt {
                rcode_high: 0,
                dnssec_ok: edns.dnssec_ok(),
                error,
                keepalive,
            }),
            limit: self.limit(),
        }
    }

    /// Octets of the largest reply: what the client takes (RFC 6891 section 6.2.3), and what the
    /// listener sends.
    pub fn limit(&self) -> usize {
        match self.client.transport {
            Transport::Udp => {
                let size = self.edns.map_or(edns::UDP_CLASSIC, |edns| edns.udp_size);
                usize::from(size).min(self.client.limit)
            }
            Transport::Tcp | Transport::Tls | Transport::Https | Transport::Quic | Transport::Internal => {
                self.client.limit
            }
        }
    }
}
