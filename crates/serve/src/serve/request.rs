//! A query in progress: how far it is, and what to do on the way back.

use std::rc::Rc;
use std::sync::Arc;

use tokio::time::Instant;

use crate::cache::{Entry, KeyHasher, Leader};
use crate::dns::Transport;
use crate::dns::edns::{self, ClientSubnet, Opt};
use crate::dns::name::Name;
use crate::dns::query::Query;
use crate::dns::reply::Head;
use crate::dns::{MESSAGE_MAXIMUM, QUESTION_TAIL, flag, u16_at};
use crate::filter::{ResponseEdit, Verdict};
use dnsweir_answer::Resolution;
use dnsweir_answer::identity::Identity;
use dnsweir_os::clock::Uptime;

use super::asked::{Asked, Client, Keeps};
use super::trace::{Trace, TraceEvent};

/// A query on its way through a pipeline: its question and its position. What only a waiting query needs is
/// in [`Waiting`](super::queue::Waiting).
pub struct Request {
    /// What the client sent.
    pub asked: Asked,
    /// The current question in its original letter case: name, type, class.
    pub question: Vec<u8>,
    /// The current name, in lower case.
    pub name: Name,
    /// The current type.
    pub qtype: u16,
    /// The current class.
    pub qclass: u16,
    /// The hash of name, type and class, for all tables keyed by them.
    pub hash: u64,
    /// Index of the pipeline.
    pub pipeline: usize,
    /// Index of the zone in the pipeline that owns the name.
    pub zone: usize,
    /// The stage that it has reached.
    pub stage: usize,
    /// The stage at which its response ends: the first, except for some of the proxy's own queries.
    pub floor: usize,
    /// Changes to make on the way back, in the order of the stages.
    pub changes: Vec<Change>,
    /// Whether a filter has set a route, so that searching the changes for one is worthwhile.
    pub routed: bool,
    /// Milliseconds by which filters delay its response.
    pub delay: u16,
    /// How many aliases and lookups led to this query.
    pub depth: u8,
    /// Its trace, if one is taken; usually none.
    pub trace: Option<Rc<Trace>>,
}

/// A change to make to a response that does not exist yet.
pub struct Change {
    /// The stage at which to make it.
    pub stage: usize,
    /// The change.
    pub what: ChangeKind,
}

/// The kinds of [`Change`]: decisions of filters on the way in, and the cache waiting for an answer.
pub enum ChangeKind {
    /// Records, TTLs, rcodes, and limits on the cache: the edit of this verdict.
    Edit(Arc<Verdict>),
    /// The question was a different one above this stage.
    Renamed {
        /// The question above.
        question: Vec<u8>,
        /// Its hash.
        hash: u64,
        /// Whether records owned by the name below are renamed to the name above.
        revert: bool,
    },
    /// The filter's response phase is skipped.
    SkipResponse,
    /// Below this stage, this source (an index into the generation's) replaces the zone's, and upstreams are
    /// sent this client subnet.
    Route(Option<usize>, Option<ClientSubnet>),
    /// The response is for this client alone: no cache stores it.
    Unshared,
    /// The cache has nothing fresh, and stores the response.
    Keep(Box<Fetch>),
}

/// The cache's state while it waits for an answer.
pub struct Fetch {
    /// When the wait began.
    pub began: Uptime,
    /// The entry to serve if nothing better comes, and until when to wait for that (RFC 8767 section 5).
    pub stale: Option<(Entry, Instant)>,
    /// The flight that it leads: followers continue once the answer is stored, or there is none.
    pub led: Option<Leader<Resolution>>,
}

impl Request {
    /// Creates an empty request to [`admit`](Request::admit) queries into.
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

    /// Resets this to a newly received query, reusing the buffers. Every field is named, so that none is left
    /// over from the query before by mistake.
    pub fn admit(&mut self, query: &Query<'_>, client: Client, keeps: Keeps, hasher: &KeyHasher) {
        let Request {
            asked,
            question,
            name,
            qtype,
            qclass,
            hash,
            pipeline,
            zone,
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
        *hash = hasher.question(name.as_bytes(), query.qtype, query.qclass);
        (*pipeline, *zone, *stage, *floor) = (0, 0, 0, 0);
        // Without this check, the compiler calls the drop code, although most queries have no changes.
        if !changes.is_empty() {
            changes.clear();
        }
        (*routed, *delay, *depth) = (false, 0, 0);
        *trace = None;
    }

    /// Resets this to an empty request, keeping the buffers for the question and the changes.
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

    /// Replaces the question, but not its hash; returns the one before.
    pub(crate) fn set_question(&mut self, question: Vec<u8>) -> Vec<u8> {
        let before = std::mem::replace(&mut self.question, question);
        let tail = self.question.len() - QUESTION_TAIL;
        self.name.set_lowercased(&self.question[..tail]);
        self.qtype = u16_at(&self.question, tail);
        self.qclass = u16_at(&self.question, tail + 2);
        before
    }

    /// The name, in lower case, and the type by which its zone was chosen: before filters replaced them.
    pub(crate) fn first_question(&self) -> (Name, u16) {
        let first = self.changes.iter().find_map(|change| match &change.what {
            ChangeKind::Renamed { question, .. } => Some(question),
            _ => None,
        });
        let question = first.unwrap_or(&self.question);
        let (name, tail) = question.split_at(question.len() - QUESTION_TAIL);
        (Name::lowercased(name), u16_at(tail, 0))
    }

    /// Discards the changes, because there is no way back. The question is the client's again.
    pub fn end(&mut self) {
        while let Some(change) = self.changes.pop() {
            if let ChangeKind::Renamed { question, hash, .. } = change.what {
                self.set_question(question);
                self.hash = hash;
            }
        }
    }

    /// Adds an event to the trace, if there is one.
    // Costs a test of a pointer, which is null without a trace sink.
    #[inline(always)]
    pub fn trace(&self, event: impl FnOnce() -> TraceEvent) {
        if let Some(trace) = &self.trace {
            trace.add(self.depth, event());
        }
    }

    /// The state of the nearest waiting cache above.
    pub(crate) fn fetch(&mut self) -> Option<&mut Fetch> {
        self.changes
            .iter_mut()
            .rev()
            .find_map(|change| match &mut change.what {
                ChangeKind::Keep(fetch) => Some(&mut **fetch),
                _ => None,
            })
    }

    /// Creates an internal query for `name`, with the flags and EDNS of the client that waits for it.
    pub fn internal(&self, hasher: &KeyHasher, name: &[u8], qtype: u16, qclass: u16) -> Request {
        let mut question = name.to_vec();
        question.extend(qtype.to_be_bytes());
        question.extend(qclass.to_be_bytes());
        let client = Client {
            transport: Transport::Internal,
            limit: MESSAGE_MAXIMUM,
            ..self.asked.client
        };
        let (empty, name) = (Request::new(client), Name::lowercased(name));
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
            hash: hasher.question(name.as_bytes(), qtype, qclass),
            name,
            qtype,
            qclass,
            pipeline: self.pipeline,
            zone: self.zone,
            depth: self.depth + 1,
            trace: self.trace.clone(),
            ..empty
        }
    }

    /// Creates an internal query that refreshes the same answer in the background: it starts behind the
    /// cache, which stores the result. The result is for all clients, so it depends on this client only in
    /// DO, CD and the route, which the cache's key includes.
    pub fn refresh(&self, hasher: &KeyHasher, began: Uptime) -> Request {
        let mut inner = self.internal(hasher, self.name.as_bytes(), self.qtype, self.qclass);
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
        inner.begin_fetch(began, None);
        inner
    }

    /// Keeps the caches above its stage from storing the response, which is for this client alone.
    pub(crate) fn unshare(&mut self) {
        self.changes.push(Change {
            stage: self.stage,
            what: ChangeKind::Unshared,
        });
    }

    /// Moves on behind the cache, which will store the response.
    pub(crate) fn begin_fetch(&mut self, began: Uptime, stale: Option<(Entry, Instant)>) {
        let fetch = Fetch {
            began,
            stale,
            led: None,
        };
        self.add_change(ChangeKind::Keep(Box::new(fetch)));
        self.stage += 1;
    }

    /// Adds a change to make when the response is back at this stage.
    pub(crate) fn add_change(&mut self, what: ChangeKind) {
        let stage = self.stage;
        self.changes.push(Change { stage, what });
    }

    /// Whether an upstream's answer to it may be cached and shared: not if it is signed, because the answer
    /// is for its client alone, nor if the upstream was not asked to recurse.
    pub(crate) fn may_share(&self) -> bool {
        self.asked.signed.is_none() && self.recursion_desired()
    }

    /// Whether DNSSEC records are requested.
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

    /// Whether every filter so far allows the cache to answer it and to store the answer.
    #[inline]
    pub(crate) fn may_store(&self) -> bool {
        self.edits().all(|edit| edit.store)
    }

    /// The source and the client subnet that filters have set so far.
    pub fn route(&self) -> (Option<usize>, Option<ClientSubnet>) {
        let routes = self.changes.iter();
        routes.fold((None, None), |(before, told), change| match change.what {
            ChangeKind::Route(source, subnet) => (source.or(before), subnet.or(told)),
            _ => (before, told),
        })
    }

    /// Whether every filter so far allows stale answers.
    pub(crate) fn may_be_stale(&self) -> bool {
        self.edits().all(|edit| edit.stale)
    }

    fn edits(&self) -> impl Iterator<Item = &ResponseEdit> {
        self.changes.iter().filter_map(|change| match &change.what {
            ChangeKind::Edit(verdict) => verdict.edit.as_ref(),
            _ => None,
        })
    }

    /// What the writer of its reply needs to know.
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

    /// Size limit of the reply in bytes: what the client accepts (RFC 6891 section 6.2.3), and what the
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
