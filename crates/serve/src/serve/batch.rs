//! Messages that were taken from a socket at once, and what becomes of them.

use std::sync::Arc;

use crate::source::Transfer;

use super::asked::Client;
use super::request::Request;
use super::state::State;

/// Messages taken from a socket at once, on their way.
#[derive(Default)]
pub struct Batch {
    pub(super) requests: Vec<Request>,
    pub(super) states: Vec<State>,
    /// How many of the requests are in use.
    pub(super) length: usize,
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

impl Batch {
    /// The place for the next query; it counts only once `length` is raised.
    // As `look_up`.
    #[inline(always)]
    pub(super) fn next(&mut self, client: Client) -> &mut Request {
        if self.requests.len() == self.length {
            self.requests.push(Request::new(client));
            self.states.push(State::Inward);
        }
        &mut self.requests[self.length]
    }

    /// Notes the name that the client of the last query asked for in TLS. A batch that takes queries of connections is told
    /// for each.
    pub fn set_server_name(&mut self, name: Option<&Arc<str>>) {
        if let Some(last) = self.length.checked_sub(1) {
            self.requests[last].asked.server_name = name.cloned();
        }
    }
}
