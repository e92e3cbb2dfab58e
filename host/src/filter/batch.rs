//! The records of one call, and the bytes they point into.

use std::ops::Range;

use super::bindings::dnsweir::filter::types::{Event, Query, Response};

/// Records on their way into a filter. Made once per worker and phase and cleared for each call, so that
/// filling it allocates nothing once it has grown.
#[derive(Debug, Clone)]
pub struct Batch<R> {
    records: Vec<R>,
    bytes: Vec<u8>,
    /// Of each query's name, for the memo; empty in batches of other records.
    hashes: Vec<u64>,
}

impl<R> Default for Batch<R> {
    fn default() -> Batch<R> {
        Batch {
            records: Vec::new(),
            bytes: Vec::new(),
            hashes: Vec::new(),
        }
    }
}

impl<R> Batch<R> {
    /// Forgets the records and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
        self.hashes.clear();
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// In the order they were pushed.
    pub fn records(&self) -> &[R] {
        &self.records
    }

    /// What the records point into.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The hash pushed with a query.
    pub(super) fn hash(&self, index: usize) -> u64 {
        self.hashes[index]
    }

    /// Appends bytes and says where they start. A batch never gets near four gigabytes: it holds as many
    /// messages as a worker takes from a socket at once, and a message has at most 65 535 octets.
    fn append(&mut self, bytes: &[u8]) -> u32 {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        start
    }
}

impl Batch<Query> {
    /// Adds a query; its offsets are filled in here. `name` is in lowercase wire format, `hash` the one that
    /// [`recall`](super::Instance::recall) will be asked with.
    pub fn push_query(&mut self, mut query: Query, name: &[u8], hash: u64) {
        query.name_start = self.append(name);
        query.name_length = name.len() as u16;
        self.records.push(query);
        self.hashes.push(hash);
    }

    /// The name of a query that was pushed.
    pub fn name(&self, index: usize) -> &[u8] {
        &self.bytes[self.records[index].span()]
    }
}

impl Batch<Response> {
    /// Adds a response; offsets are filled in here. `name` is in lowercase wire format, `message` empty unless
    /// the filter wants [messages](super::Interest::messages).
    pub fn push_response(&mut self, mut response: Response, name: &[u8], message: &[u8]) {
        response.query.name_start = self.append(name);
        response.query.name_length = name.len() as u16;
        response.message_start = self.append(message);
        response.message_length = message.len() as u32;
        self.records.push(response);
    }
}

impl Batch<Event> {
    /// Adds an event; offsets are filled in here. `name` is in lowercase wire format.
    pub fn push_event(&mut self, mut event: Event, name: &[u8]) {
        event.query.name_start = self.append(name);
        event.query.name_length = name.len() as u16;
        self.records.push(event);
    }
}

/// A record that can be taken out of its batch.
pub(super) trait Portable: Copy {
    /// The bytes it points into: one range, as `push` appends them in one go.
    fn span(&self) -> Range<usize>;
    /// Moves its offsets down by `by`.
    fn rebase(&mut self, by: u32);

    /// One record of a batch and its bytes alone, as if they were the whole batch.
    fn isolate(batch: &Batch<Self>, index: usize) -> (Self, &[u8]) {
        let mut record = batch.records[index];
        let span = record.span();
        record.rebase(span.start as u32);
        (record, &batch.bytes[span])
    }
}

impl Portable for Query {
    fn span(&self) -> Range<usize> {
        let start = self.name_start as usize;
        start..start + usize::from(self.name_length)
    }
    fn rebase(&mut self, by: u32) {
        self.name_start -= by;
    }
}

impl Portable for Response {
    fn span(&self) -> Range<usize> {
        self.query.name_start as usize..self.message_start as usize + self.message_length as usize
    }
    fn rebase(&mut self, by: u32) {
        self.query.name_start -= by;
        self.message_start -= by;
    }
}

impl Portable for Event {
    fn span(&self) -> Range<usize> {
        self.query.span()
    }
    fn rebase(&mut self, by: u32) {
        self.query.rebase(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::query;

    #[test]
    fn isolated_queries_keep_their_names() {
        let mut batch = Batch::default();
        let names = [&b"\x01a\0"[..], b"\0", b"\x03www\x01b\0"];
        for name in names {
            batch.push_query(query(1), name, 0);
        }
        for (index, name) in names.into_iter().enumerate() {
            let (record, bytes) = Portable::isolate(&batch, index);
            assert_eq!(bytes, name);
            assert_eq!(
                (record.name_start, usize::from(record.name_length)),
                (0, name.len())
            );
            assert_eq!(batch.name(index), name);
        }
        batch.clear();
        assert!(batch.is_empty());
        assert!(batch.bytes().is_empty());
    }

    #[test]
    fn isolated_responses_keep_their_messages() {
        let mut batch = Batch::default();
        let items = [
            (&b"\x01a\0"[..], &b"message"[..]),
            (b"\0", b""),
            (b"\x01b\0", b"other"),
        ];
        for (name, message) in items {
            batch.push_response(crate::filter::tests::response(1, 0), name, message);
        }
        for (index, (name, message)) in items.into_iter().enumerate() {
            let (record, bytes) = Portable::isolate(&batch, index);
            let cut = |start: u32, length: usize| &bytes[start as usize..][..length];
            assert_eq!(
                cut(record.query.name_start, usize::from(record.query.name_length)),
                name
            );
            assert_eq!(cut(record.message_start, record.message_length as usize), message);
        }
    }
}
