//! Messages that were taken from a socket at once, and what becomes of them.

use std::sync::Arc;

use crate::dns::edns::ExtendedError;
use crate::dns::records::Answer;
use crate::filter::Verdict;
use crate::source::Transfer;
use dnsweir_answer::Alias;

use super::request::{Client, Request};
use super::response::{AskingResponse, Response};

/// Messages taken from a socket at once, on their way.
#[derive(Default)]
pub struct Batch {
    pub(super) requests: Vec<Request>,
    pub(super) steps: Vec<Step>,
    pub(super) responses: Vec<Option<Response>>,
    /// How many of the requests are in use.
    pub(super) length: usize,
}

/// What has become of a query on its way in.
#[derive(Clone)]
pub(super) enum Step {
    /// It goes on from its stage, which at the end of the way in is the cache, or none.
    Passing,
    /// Its stage is a source that takes its time.
    AtSource,
    /// A filter decided.
    Decided(Arc<Verdict>),
    /// A source had this answer at once; whether AA is set.
    Answered(Arc<Answer>, bool),
    /// A source said at once that another name is to be asked for.
    Aliased(Arc<Alias>),
    /// A source failed at once; whether a bound of this proxy's own is why.
    Unresolved(ExtendedError, bool),
    /// It has a response, whose filter asks first.
    Responding(Box<AskingResponse>),
    /// It has its response, which filters want held back.
    HeldBack(Box<Response>),
    /// A filter failed, and the configuration says what the client gets.
    Failed(u16),
    /// It has left.
    Gone,
}

/// What [`Worker::admit`](super::Worker::admit) made of a message.
pub enum Admission {
    /// It travels with the batch.
    Travelling,
    /// The reply is in the buffer, this many octets.
    Answered(usize),
    /// The reply is a zone, in many messages; only where there is a stream for them.
    Transfer(Box<Transfer>),
    /// There is no reply.
    Silence,
}

/// Where a batch's replies go. `index` counts the queries that travel, in the order they were admitted.
pub trait Replies {
    /// Where its reply is written: at least the client's `limit` octets.
    fn buffer(&mut self, index: usize) -> &mut [u8];
    /// Sends as many octets of its buffer.
    fn reply(&mut self, index: usize, length: usize);
    /// The way back for a reply that will come after the batch.
    fn defer(&mut self, index: usize) -> Box<dyn DeferredReply>;
}

/// The way back to a client whose query outlives its batch.
pub trait DeferredReply {
    /// Sends the reply. Dropped unsent: the client gets none.
    fn send(self: Box<Self>, message: &[u8]);
}

/// What a query that came as far as it could gets.
pub(super) enum Immediate {
    Response(Response),
    Drop,
    /// Only an upstream, or another name's answer, can tell.
    Deferred,
}

impl Batch {
    /// The place for the next query; it counts only once `length` is raised.
    // As `look_up`.
    #[inline(always)]
    pub(super) fn next(&mut self, client: Client) -> &mut Request {
        if self.requests.len() == self.length {
            self.requests.push(Request::new(client));
            self.steps.push(Step::Gone);
            self.responses.push(None);
        }
        &mut self.requests[self.length]
    }

    /// Notes the name that the client of the last query asked for in TLS. A batch that takes queries of connections is told
    /// for each.
    pub fn set_server_name(&mut self, name: Option<&Arc<str>>) {
        if let Some(last) = self.length.checked_sub(1) {
            self.requests[last].server_name = name.cloned();
        }
    }
}
