//! The memory of one connection: input not acted on yet, and replies that cannot be written yet, of the
//! connection or of its streams.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// The least size in bytes of a chunk of unsent replies.
const CHUNK: usize = 4 << 10;

/// The memory of one connection.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Input not acted on yet.
    pub input: Vec<u8>,
    /// Replies with their length prefixes, in sending order.
    unsent: VecDeque<Vec<u8>>,
    /// How much of the first chunk is sent.
    sent: usize,
    /// Buffers of streams by number, if each query has a stream.
    streams: HashMap<u64, StreamBuffer>,
    /// Bytes of memory of replies, including those of streams.
    unsent_octets: usize,
    /// Bytes of memory of incomplete queries of streams.
    received_octets: usize,
}

/// The memory of one stream: an incomplete query, or a reply not fully taken.
#[derive(Debug)]
enum StreamBuffer {
    Query(Vec<u8>),
    Reply { octets: Vec<u8>, taken: usize },
}

impl Buffers {
    /// Returns the bytes of memory in total.
    pub fn octets(&self) -> usize {
        self.input.capacity() + self.unsent_octets + self.received_octets
    }

    /// Returns the bytes of memory of replies.
    pub fn unsent(&self) -> usize {
        self.unsent_octets
    }

    /// Appends received bytes to a stream's query.
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

    /// Stores a stream's reply, in place of what it held.
    pub fn reply(&mut self, stream: u64, octets: Vec<u8>) {
        self.forget(stream);
        self.unsent_octets += octets.capacity();
        self.streams
            .insert(stream, StreamBuffer::Reply { octets, taken: 0 });
    }

    /// Takes up to `most` bytes of a stream's reply; `None` if nothing is left.
    pub fn piece(&mut self, stream: u64, most: usize) -> Option<Vec<u8>> {
        let Some(StreamBuffer::Reply { octets, taken }) = self.streams.get_mut(&stream) else {
            return None;
        };
        let rest = &octets[*taken..];
        // A copy: otherwise the whole reply would be kept until its last piece is sent.
        let piece = rest[..rest.len().min(most)].to_vec();
        *taken += piece.len();
        if *taken == octets.len() {
            self.forget(stream);
        }
        (!piece.is_empty()).then_some(piece)
    }

    /// Frees what a stream holds; returns its query, if it held one.
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

    /// Appends a reply. If it does not fit in the last chunk, it starts another, so that it leaves in one
    /// write together with its length (RFC 7766 section 8).
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

    /// Writes replies to the stream; returns how many bytes it took. Stays pending if there are none.
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
