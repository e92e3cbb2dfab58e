//! A query on its way: how far it has come, and what is to be done on the way back.

use std::rc::Rc;
use std::sync::Arc;

use tokio::time::Instant;

use crate::cache::{Entry, Leader};
use crate::dns::Transport;
use crate::dns::edns::{self, ClientSubnet, Opt};
use crate::dns::name::Name;
use crate::dns::query::Query;
use crate::dns::reply::Head;
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, QUESTION_TAIL, flag, u16_at};
use crate::filter::{ResponseEdit, Verdict};
use dnsweir_answer::Resolution;
use dnsweir_answer::identity::Identity;

use super::asked::{Asked, Client, Keeps};
use super::trace::{Trace, TraceEvent};

/// One query on its way through a pipeline: what was asked, and where it stands. What only one that waits has is
/// [`Waiting`](super::queue::Waiting).
pub struct Request {
    /// What the client sent.
    pub asked: Asked,
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
    /// The stage that its response comes back to: the first, but for some of the proxy's own queries.
    pub floor: usize,
    /// What is to be done on the way back, in the order of the stages.
    pub changes: Vec<Change>,
    /// Whether a filter has said who is asked, so that it is worth looking through the changes for that.
    pub routed: bool,
    /// For how many milliseconds filters want its response held back.
    pub delay: u16,
    /// How many aliases and lookups led here.
    pub depth: u8,
    /// What happens to it, for those who asked to be told; as a rule nobody.
    pub trace: Option<Rc<Trace>>,
}

/// What is to be done to a response before there is one.
pub struct Change {
    /// The stage where it is to be done.
    pub stage: usize,
    /// What is to be done there.
    pub what: ChangeKind,
}

/// The kinds of [`Change`]: what filters decided on the way in, and what the cache waits for.
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
    /// The cache has nothing fresh, and keeps what comes.
    Keep(Box<Fetch>),
}

/// What the cache knows of an answer that it waits for.
pub struct Fetch {
    /// When it began, in milliseconds of the worker's clock.
    pub began_ms: u64,
    /// The hash of the question there: filters below may ask another one.
    pub hash: u64,
    /// What is served if nothing better comes, and until when that is waited for (RFC 8767 section 5).
    pub stale: Option<(Entry, Instant)>,
    /// What others wait for, who are told when the answer is kept, or there is none.
    pub led: Option<Leader<Resolution>>,
}

impl Request {
    /// An empty one, to be [`admit`](Request::admit)ted into.
    pub fn new(client: Client) -> Request {
        Request {
            asked: Asked::new(client),
            question: Vec::new(),
            name: Name::ROOT,
            qtype: 0,
            qclass: 0,
            hash: 0,
            pipeline: 0,
            zone: 0,
            stage: 0,
            floor: 0,
            changes: Vec::new(),
            routed: false,
            delay: 0,
            depth: 0,
            trace: None,
        }
    }

    /// Whether its reply is a datagram.
    pub(crate) fn takes_datagrams(&self) -> bool {
        self.asked.client.transport == Transport::Udp
    }

    /// Becomes the start of a new query's way, keeping its buffers. Each field is named, so that none can be left over from the
    /// query before: `hash`, `pipeline` and `zone` are set when its zone is known, and the name in TLS and who that is where
    /// somebody wants to know.
    pub fn admit(&mut self, query: &Query<'_>, client: Client, keeps: Keeps) {
        let Request {
            asked,
            question,
            name,
            qtype,
            qclass,
            hash: _,
            pipeline: _,
            zone: _,
            stage,
            floor,
            changes,
            routed,
            delay,
            depth,
            trace,
        } = self;
        asked.admit(query, client, keeps);
        question.clear();
        question.extend_from_slice(query.question());
        name.set_lowercased(query.name());
        (*qtype, *qclass) = (query.qtype, query.qclass);
        (*stage, *floor) = (0, 0);
        // Left to itself, the compiler calls what drops them, of which there are none for most queries.
        if !changes.is_empty() {
            changes.clear();
        }
        (*routed, *delay, *depth) = (false, 0, 0);
        *trace = None;
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
            ..Request::new(self.asked.client)
        };
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

    /// What others wait for has come: they are told once the cache has it; at once, if none is above.
    pub(crate) fn lead(&mut self, leader: Leader<Resolution>) {
        if let Some(fetch) = self.fetch() {
            fetch.led = Some(leader);
        }
    }

    /// What the nearest cache above waits for.
    pub(crate) fn fetch(&mut self) -> Option<&mut Fetch> {
        self.changes
            .iter_mut()
            .rev()
            .find_map(|change| match &mut change.what {
                ChangeKind::Keep(fetch) => Some(&mut **fetch),
                _ => None,
            })
    }

    /// A query of the proxy's own for `name`, with the wishes of the client it is asked for, who waits for it.
    pub fn internal(&self, name: &[u8], qtype: u16, qclass: u16) -> Request {
        let mut question = name.to_vec();
        question.extend(qtype.to_be_bytes());
        question.extend(qclass.to_be_bytes());
        let client = Client {
            transport: Transport::Internal,
            limit: MESSAGE_MAXIMUM,
            ..self.asked.client
        };
        let empty = Request::new(client);
        Request {
            asked: Asked {
                identity: self.asked.identity.clone(),
                id: self.asked.id,
                flags: self.asked.flags,
                edns: self.asked.edns,
                size: self.asked.size,
                ..empty.asked
            },
            question,
            name: Name::lowercased(name),
            qtype,
            qclass,
            hash: self.hash,
            pipeline: self.pipeline,
            zone: self.zone,
            depth: self.depth + 1,
            trace: self.trace.clone(),
            ..empty
        }
    }

    /// A query of the proxy's own for what a filter asks about this one.
    pub fn lookup(&self, name: &[u8], qtype: u16) -> Request {
        let mut inner = self.internal(name, qtype, CLASS_IN);
        // Whether the client wants recursion is no reason not to answer the filter.
        inner.asked.flags |= flag::RD;
        inner
    }

    /// A query of the proxy's own for the same again, for which nobody waits: it stands behind the cache, which keeps what
    /// comes. What it brings is for everybody: nothing in it but DO, CD and its route, which the cache keeps apart, is the
    /// client's wish.
    pub fn refresh(&self, began_ms: u64) -> Request {
        let mut inner = self.internal(self.name.as_bytes(), self.qtype, self.qclass);
        inner.asked.identity = Identity::Unknown;
        inner.asked.flags = self.asked.flags & flag::CD | flag::RD;
        let routes = self.changes.iter().filter_map(|change| match change.what {
            ChangeKind::Route(source, subnet) => Some(Change {
                stage: change.stage,
                what: ChangeKind::Route(source, subnet),
            }),
            _ => None,
        });
        inner.changes = routes.collect();
        (inner.routed, inner.depth, inner.trace) = (self.routed, 0, None);
        (inner.stage, inner.floor) = (self.stage, self.stage);
        inner.begin_fetch(began_ms, None);
        inner
    }

    /// Goes on behind the cache, which keeps what comes.
    pub(crate) fn begin_fetch(&mut self, began_ms: u64, stale: Option<(Entry, Instant)>) {
        let fetch = Box::new(Fetch {
            began_ms,
            hash: self.hash,
            stale,
            led: None,
        });
        self.changes.push(Change {
            stage: self.stage,
            what: ChangeKind::Keep(fetch),
        });
        self.stage += 1;
    }

    /// Whether what an upstream says to it may be kept and shared: not the answer to a signed query, which is for its
    /// client alone, nor that of an upstream which was not asked to recurse.
    pub(crate) fn may_share(&self) -> bool {
        self.asked.signed.is_none() && self.recursion_desired()
    }

    /// Whether DNSSEC records are wanted.
    pub fn dnssec_ok(&self) -> bool {
        self.asked.edns.is_some_and(|edns| edns.dnssec_ok())
    }

    /// Whether upstreams are asked not to validate.
    pub fn checking_disabled(&self) -> bool {
        self.asked.flags & flag::CD != 0
    }

    /// Whether an upstream may be asked to recurse.
    pub fn recursion_desired(&self) -> bool {
        self.asked.flags & flag::RD != 0
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
            .asked
            .client
            .keepalive
            .filter(|_| self.asked.edns.is_some_and(|edns| edns.keepalive));
        Head {
            id: self.asked.id,
            flags: self.asked.flags,
            question: &self.question,
            opt: self.asked.edns.map(|edns| Opt {
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
        match self.asked.client.transport {
            Transport::Udp => {
                let size = self.asked.edns.map_or(edns::UDP_CLASSIC, |edns| edns.udp_size);
                usize::from(size).min(self.asked.client.limit)
            }
            Transport::Tcp | Transport::Tls | Transport::Https | Transport::Quic | Transport::Internal => {
                self.asked.client.limit
            }
        }
    }
}
