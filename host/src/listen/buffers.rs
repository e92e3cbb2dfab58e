//! The memory of one connection: what was read and not acted on, and replies that the network does not take yet.

use std::collections::VecDeque;
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
    /// Octets of memory of the replies.
    unsent_octets: usize,
    /// Octets that others hold for it.
    pub lent: usize,
}

impl Buffers {
    /// Octets of memory.
    pub fn octets(&self) -> usize {
        self.input.capacity() + self.unsent_octets + self.lent
    }

    /// Octets of memory of the replies among them.
    pub fn unsent(&self) -> usize {
        self.unsent_octets
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
    pub fn poll_write(
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
