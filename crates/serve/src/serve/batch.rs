//! A batch of messages from a socket, and their replies.

use std::sync::Arc;

use crate::source::Transfer;

use super::asked::Client;
use super::request::Request;
use super::state::State;

/// Messages read from a socket together, while they are processed.
#[derive(Default)]
pub struct Batch {
    pub(super) requests: Vec<Request>,
    pub(super) states: Vec<State>,
    /// How many of the requests are in use.
    pub(super) length: usize,
}

/// The outcome of [`Worker::admit`](super::Worker::admit).
pub enum Admission {
    /// It travels with the batch.
    Travelling,
    /// The reply is in the buffer, with this many bytes.
    Answered(usize),
    /// The reply is a zone of many messages; only on a stream.
    Transfer(Box<Transfer>),
    /// There is no reply.
    Silence,
}

/// Where a batch's replies go. `index` counts the travelling queries, in the order of admission.
pub trait Replies {
    /// The buffer for a reply: at least the client's `limit` bytes.
    fn buffer(&mut self, index: usize) -> &mut [u8];
    /// Sends the first `length` bytes of its buffer.
    fn reply(&mut self, index: usize, length: usize);
    /// Returns the way back for a reply that comes after the batch.
    fn defer(&mut self, index: usize) -> Box<dyn DeferredReply>;
}

/// The way back to a client whose query outlives its batch.
pub trait DeferredReply {
    /// Sends the reply. If dropped instead, the client gets none.
    fn send(self: Box<Self>, message: &[u8]);
}

impl Batch {
    /// The next slot, with an empty query or an earlier one.
    // Inlined like `look_up`.
    #[inline(always)]
    pub(super) fn next(&mut self, client: Client) -> &mut Request {
        if self.requests.len() == self.length {
            self.requests.push(Request::new(client));
            self.states.push(State::Request);
        }
        &mut self.requests[self.length]
    }

    /// Sets the TLS server name of the last query. A batch of queries from connections needs this for each
    /// one.
    pub fn set_server_name(&mut self, name: Option<&Arc<str>>) {
        if let Some(last) = self.length.checked_sub(1) {
            self.requests[last].asked.server_name = name.cloned();
        }
    }
}
