//! The records of one call, and the bytes they point into.

use std::ops::Range;

use super::bindings::dnsweir::filter::types::{Event, Query, Response};
use super::details::{Details, Known};

/// Records to be passed to a filter. Made once per worker and phase and cleared for each call, so that
/// filling it allocates nothing once it has grown.
#[derive(Debug, Clone)]
pub struct Batch<R> {
    records: Vec<R>,
    bytes: Vec<u8>,
    /// Hash of each query's name, for the memo; empty in batches of other records.
    hashes: Vec<u64>,
}

/// What goes into the bytes for one query.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// In lowercase wire format.
    pub name: &'a [u8],
    /// The details the filter requested, and what is known of them; none: no details.
    pub details: Option<(&'a Details, Known<'a>)>,
}

impl<'a> From<&'a [u8]> for Asked<'a> {
    fn from(name: &'a [u8]) -> Asked<'a> {
        Asked { name, details: None }
    }
}

/// Maximum bytes of names and messages of pending events. Beyond it, messages are left out.
pub(super) const EVENT_OCTETS: usize = 2 << 20;

/// Maximum bytes of client labels and annotations in pending events: those of a batch and those pending
/// before it, which are delivered once they weigh as much as 256 events.
pub(super) const LABEL_OCTETS: usize = 4 << 20;

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
    /// Removes the records but keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
        self.hashes.clear();
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records, in the order they were pushed.
    pub fn records(&self) -> &[R] {
        &self.records
    }

    /// The bytes that the records point into.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The hash pushed with a query.
    pub(super) fn hash(&self, index: usize) -> u64 {
        self.hashes[index]
    }

    /// Appends the name and details of a query, and sets the record's offsets.
    fn place(&mut self, query: &mut Query, asked: Asked<'_>) {
        query.name_start = self.append(asked.name);
        query.name_length = asked.name.len() as u16;
        let begin = self.bytes.len();
        if let Some((wanted, known)) = asked.details {
            wanted.gather(known, &mut self.bytes);
        }
        query.details_length = (self.bytes.len() - begin) as u16;
    }

    /// Appends bytes and returns their start. A batch never nears 4 GiB: it holds at most as many messages as
    /// a worker reads from a socket in one go, of at most 65,535 bytes each.
    fn append(&mut self, bytes: &[u8]) -> u32 {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        start
    }
}

impl Batch<Query> {
    /// Adds a query and fills in its offsets. `name` is in lowercase wire format; `hash` is the one that
    /// [`recall`](super::Instance::recall) will be called with.
    pub fn push_query(&mut self, mut query: Query, asked: Asked<'_>, hash: u64) {
        self.place(&mut query, asked);
        self.records.push(query);
        self.hashes.push(hash);
    }

    /// The name of a query in the batch.
    pub fn name(&self, index: usize) -> &[u8] {
        let query = &self.records[index];
        &self.bytes[query.name_start as usize..][..usize::from(query.name_length)]
    }
}

impl Batch<Response> {
    /// Adds a response and fills in its offsets. `message` is empty unless the filter requests
    /// [messages](super::Interest::messages).
    pub fn push_response(&mut self, mut response: Response, asked: Asked<'_>, message: &[u8]) {
        self.place(&mut response.query, asked);
        response.message_start = self.append(message);
        response.message_length = message.len() as u32;
        self.records.push(response);
    }
}

impl Batch<Event> {
    /// Adds an event, fills in its offsets and returns how many bytes it takes beside its record. `message`
    /// is empty unless the filter requests [messages](super::Interest::messages), and left out if too many
    /// bytes are pending.
    // Runs for every hit where a filter receives events; the compiler would not inline it by itself.
    #[inline]
    pub fn push_event(&mut self, mut event: Event, asked: Asked<'_>, message: &[u8]) -> usize {
        let begin = self.bytes.len();
        self.place(&mut event.query, asked);
        event.message_start = self.bytes.len() as u32;
        if !message.is_empty() && self.bytes.len() + message.len() <= EVENT_OCTETS {
            self.append(message);
            event.message_length = message.len() as u32;
        }
        self.records.push(event);
        self.bytes.len() - begin
    }
}

/// One record of a batch with its own bytes, as if they were the whole batch.
pub(super) struct Alone<'a, R> {
    pub(super) record: R,
    pub(super) bytes: &'a [u8],
}

/// A record that can be separated from its batch.
pub(super) trait Portable: Copy {
    /// The range of bytes it points into; one range, since each `push` appends them together.
    fn span(&self) -> Range<usize>;
    /// Lowers its offsets by `by`.
    fn rebase(&mut self, by: u32);

    /// Copies one record and borrows its bytes.
    fn isolate(batch: &Batch<Self>, index: usize) -> Alone<'_, Self> {
        let mut record = batch.records[index];
        let span = record.span();
        record.rebase(span.start as u32);
        let bytes = &batch.bytes[span];
        Alone { record, bytes }
    }
}

impl Portable for Query {
    fn span(&self) -> Range<usize> {
        let start = self.name_start as usize;
        start..start + usize::from(self.name_length) + usize::from(self.details_length)
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
        self.query.name_start as usize..self.message_start as usize + self.message_length as usize
    }
    fn rebase(&mut self, by: u32) {
        self.query.rebase(by);
        self.message_start -= by;
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
            batch.push_query(query(1), name.into(), 0);
        }
        for (index, name) in names.into_iter().enumerate() {
            let Alone { record, bytes } = Portable::isolate(&batch, index);
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
            batch.push_response(crate::filter::tests::response(1, 0), name.into(), message);
        }
        for (index, (name, message)) in items.into_iter().enumerate() {
            let Alone { record, bytes } = Portable::isolate(&batch, index);
            let cut = |start: u32, length: usize| &bytes[start as usize..][..length];
            assert_eq!(
                cut(record.query.name_start, usize::from(record.query.name_length)),
                name
            );
            assert_eq!(cut(record.message_start, record.message_length as usize), message);
        }
    }

    #[test]
    fn messages_of_events_are_bounded() {
        let mut batch = Batch::default();
        let message = vec![0; 60_000];
        for _ in 0..100 {
            batch.push_event(crate::filter::tests::event(1), b"\0"[..].into(), &message);
        }
        assert!(batch.bytes().len() <= EVENT_OCTETS + 100);
        let whole = batch
            .records()
            .iter()
            .filter(|event| event.message_length > 0)
            .count();
        assert_eq!(
            (whole, batch.len()),
            (EVENT_OCTETS / message.len(), 100),
            "none is lost"
        );
        let Alone { record, bytes } = Portable::isolate(&batch, 0);
        assert_eq!(
            (record.message_start, record.message_length, bytes.len()),
            (1, 60_000, 60_001)
        );
    }
}
