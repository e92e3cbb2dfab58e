//! The memory of one connection: what was read and not acted on, and replies that the network does not take yet, of the
//! connection itself or of its streams.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// Octets in which replies are kept that the network does not take yet.
const CHUNK: usize = 4 << 10;

/// The memory of one connection.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Octets that were read and not acted on.
    pub input: Vec<u8>,
    /// Replies with their lengths, in the order they leave.
    unsent: VecDeque<Vec<u8>>,
    /// How much of the first is sent.
    sent: usize,
    /// What its streams hold, where each query has one, by their numbers.
    streams: HashMap<u64, StreamBuffer>,
    /// Octets of memory of the replies, those of streams among them.
    unsent_octets: usize,
    /// Octets of memory of the queries of streams that are not whole.
    received_octets: usize,
}

/// The memory of one stream: a query that is not whole yet, or a reply that is not taken yet.
#[derive(Debug)]
enum StreamBuffer {
    Query(Vec<u8>),
    Reply { octets: Vec<u8>, taken: usize },
}

impl Buffers {
    /// Octets of memory.
    pub fn octets(&self) -> usize {
        self.input.capacity() + self.unsent_octets + self.received_octets
    }

    /// Octets of memory of the replies among them.
    pub fn unsent(&self) -> usize {
        self.unsent_octets
    }

    /// Keeps what came on a stream, behind what came there before.
    pub fn receive(&mut self, stream: u64, octets: &[u8]) {
        let query = self
            .streams
            .entry(stream)
            .or_insert_with(|| StreamBuffer::Query(Vec::new()));
        if let StreamBuffer::Query(query) = query {
            let before = query.capacity();
            query.extend_from_slice(octets);
            self.received_octets += query.capacity() - before;
        }
    }

    /// Keeps the reply of a stream, in place of what it held.
    pub fn reply(&mut self, stream: u64, octets: Vec<u8>) {
        self.forget(stream);
        self.unsent_octets += octets.capacity();
        self.streams
            .insert(stream, StreamBuffer::Reply { octets, taken: 0 });
    }

    /// The next octets of a stream's reply, so many at most; none when all are taken.
    pub fn piece(&mut self, stream: u64, most: usize) -> Option<Vec<u8>> {
        let Some(StreamBuffer::Reply { octets, taken }) = self.streams.get_mut(&stream) else {
            return None;
        };
        let rest = &octets[*taken..];
        // A copy, or the whole reply would be kept until the last piece of it has left.
        let piece = rest[..rest.len().min(most)].to_vec();
        *taken += piece.len();
        if *taken == octets.len() {
            self.forget(stream);
        }
        (!piece.is_empty()).then_some(piece)
    }

    /// Gives up what a stream holds: the result is its query, if that is what it was.
    pub fn forget(&mut self, stream: u64) -> Vec<u8> {
        match self.streams.remove(&stream) {
            Some(StreamBuffer::Query(query)) => {
                self.received_octets -= query.capacity();
                query
            }
            Some(StreamBuffer::Reply { octets, .. }) => {
                self.unsent_octets -= octets.capacity();
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Appends a reply; one that would not fit the last chunk begins another, so that it leaves in one write with its length
    /// (RFC 7766 section 8).
    pub fn push(&mut self, octets: &[&[u8]]) {
        let length: usize = octets.iter().map(|part| part.len()).sum();
        let fits = |last: &Vec<u8>| last.capacity() - last.len() >= length;
        if !self.unsent.back().is_some_and(fits) {
            let chunk = Vec::with_capacity(length.max(CHUNK));
            self.unsent_octets += chunk.capacity();
            self.unsent.push_back(chunk);
        }
        if let Some(last) = self.unsent.back_mut() {
            octets.iter().for_each(|part| last.extend_from_slice(part));
        }
    }

    /// Has the stream take some of the replies; the result says how many octets it took. Pending for ever if there are none.
    pub(crate) fn poll_write(
        &mut self,
        stream: Pin<&mut (impl AsyncWrite + ?Sized)>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let Some(first) = self.unsent.front() else {
            return Poll::Pending;
        };
        let count = ready!(stream.poll_write(context, &first[self.sent..]))?;
        self.sent += count;
        if self.sent == first.len() {
            self.unsent_octets -= first.capacity();
            self.sent = 0;
            self.unsent.pop_front();
        }
        if self.unsent.is_empty() {
            self.unsent = VecDeque::new();
        }
        Poll::Ready(Ok(count))
    }
}
