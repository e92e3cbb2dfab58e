//! Edits of responses.

use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::verdict::seconds;
use crate::{ExtendedError, Name, Rcode, Record, Section, Type};

/// Edits of a response: made by the query's verdict if known by then, else by the response's. They apply
/// where the filter stands in the zone, so those of a filter below `cache` change what is cached.
///
/// ```
/// use dnsweir_filter::{ExtendedError, ResponseEdit, Selector, Type, Verdict};
///
/// let without_ipv6 = ResponseEdit::new()
///     .remove(Selector::of_type(Type::AAAA))
///     .shuffle()
///     .error(ExtendedError::FILTERED.text("IPv4 only"));
/// let verdict = Verdict::pass().edit(without_ipv6);
/// # let _ = verdict;
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct ResponseEdit(raw::ResponseEdit);

impl ResponseEdit {
    /// No change yet.
    #[inline]
    pub fn new() -> ResponseEdit {
        ResponseEdit(raw::ResponseEdit {
            rcodes: Vec::new(),
            records: Vec::new(),
            header_set: 0,
            header_clear: 0,
            error: None,
            ttl_minimum: 0,
            ttl_maximum: u32::MAX,
            store: true,
            stale: true,
        })
    }

    /// Removes records, and the signatures of RRsets that lose one. Edits of records are applied in the order
    /// of these calls; at most 64.
    pub fn remove(mut self, selector: Selector) -> ResponseEdit {
        self.0.records.push(raw::RecordEdit::Remove(selector.0));
        self
    }

    /// Replaces the first selected record by these, if there is one, and removes the others.
    pub fn replace(mut self, selector: Selector, records: impl IntoIterator<Item = Record>) -> ResponseEdit {
        let records = records.into_iter().map(Record::into_raw).collect();
        self.0
            .records
            .push(raw::RecordEdit::Replace((selector.0, records)));
        self
    }

    /// Adds a record to the end of a section.
    pub fn append(mut self, section: Section, record: Record) -> ResponseEdit {
        let append = raw::RecordEdit::Append((section.into_raw(), record.into_raw()));
        self.0.records.push(append);
        self
    }

    /// Rotates each RRset of the answer section so that the record with this index comes first.
    pub fn rotate(mut self, by: u32) -> ResponseEdit {
        let order = raw::Order::Rotate(by);
        self.0.records.push(raw::RecordEdit::Order(order));
        self
    }

    /// Shuffles each RRset of the answer section, differently for each response, even if the verdict is
    /// [remembered](crate::Verdict::remember).
    pub fn shuffle(mut self) -> ResponseEdit {
        let order = raw::Order::Shuffle;
        self.0.records.push(raw::RecordEdit::Order(order));
        self
    }

    /// Reorders the answer section by these indices. Records that are not listed follow.
    pub fn permute(mut self, order: impl IntoIterator<Item = u32>) -> ResponseEdit {
        let order = raw::Order::Permute(order.into_iter().collect());
        self.0.records.push(raw::RecordEdit::Order(order));
        self
    }

    /// Sets or clears TC. It is set only over UDP, where it makes the client retry over TCP.
    pub fn truncated(self, set: bool) -> ResponseEdit {
        self.header(0x0200, set)
    }

    /// Sets or clears AA.
    pub fn authoritative(self, set: bool) -> ResponseEdit {
        self.header(0x0400, set)
    }

    /// Sets or clears AD. Clients that sent neither DO nor AD do not get it.
    pub fn authentic(self, set: bool) -> ResponseEdit {
        self.header(0x0020, set)
    }

    fn header(mut self, bit: u16, set: bool) -> ResponseEdit {
        let raw = &mut self.0;
        let (to, from) = match set {
            true => (&mut raw.header_set, &mut raw.header_clear),
            false => (&mut raw.header_clear, &mut raw.header_set),
        };
        *to |= bit;
        *from &= !bit;
        self
    }

    /// Adds an extended DNS error.
    pub fn error(mut self, error: ExtendedError) -> ResponseEdit {
        self.0.error = Some(error.into_raw());
        self
    }

    /// Replaces one rcode by another. Of several replacements of the same rcode, the first wins.
    #[inline]
    pub fn rcode(mut self, from: Rcode, to: Rcode) -> ResponseEdit {
        self.0.rcodes.push((from.0, to.0));
        self
    }

    /// Raises lower TTLs to this, in whole seconds.
    #[inline]
    pub fn ttl_min(mut self, ttl: Duration) -> ResponseEdit {
        self.0.ttl_minimum = seconds(ttl);
        self
    }

    /// Lowers higher TTLs to this, in whole seconds.
    #[inline]
    pub fn ttl_max(mut self, ttl: Duration) -> ResponseEdit {
        self.0.ttl_maximum = seconds(ttl);
        self
    }

    /// Bypasses `cache`, which neither stores the response nor answers from its entries.
    pub fn no_store(mut self) -> ResponseEdit {
        self.0.store = false;
        self
    }

    /// Keeps `cache` from serving the response past its TTL (RFC 8767).
    pub fn no_stale(mut self) -> ResponseEdit {
        self.0.stale = false;
        self
    }

    #[inline]
    pub(crate) fn into_raw(self) -> raw::ResponseEdit {
        self.0
    }
}

impl Default for ResponseEdit {
    fn default() -> ResponseEdit {
        ResponseEdit::new()
    }
}

/// A selection of records: all of them, until it is narrowed down.
///
/// ```
/// use dnsweir_filter::{Section, Selector, Type};
///
/// let second_address = Selector::of_type(Type::A).section(Section::Answer).index(1);
/// # let _ = second_address;
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Selector(raw::Selector);

impl Selector {
    /// All records.
    pub fn all() -> Selector {
        Selector(raw::Selector {
            section: None,
            name: None,
            rtype: None,
            index: None,
        })
    }

    /// Selects the records of this type.
    pub fn of_type(rtype: Type) -> Selector {
        let mut selector = Selector::all();
        selector.0.rtype = Some(rtype.0);
        selector
    }

    /// Narrows the selection to this section.
    pub fn section(mut self, section: Section) -> Selector {
        self.0.section = Some(section.into_raw());
        self
    }

    /// Narrows the selection to this owner.
    pub fn name<'b>(mut self, name: impl Into<Name<'b>>) -> Selector {
        self.0.name = Some(name.into().as_wire().to_vec());
        self
    }

    /// Narrows the selection to the record with this index, from 0, among those selected otherwise.
    pub fn index(mut self, index: u32) -> Selector {
        self.0.index = Some(index);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_about_a_bit_holds() {
        let edit = ResponseEdit::new()
            .truncated(true)
            .authentic(true)
            .truncated(false);
        assert_eq!((edit.0.header_set, edit.0.header_clear), (0x0020, 0x0200));
        let edit = edit.authoritative(true).truncated(true);
        assert_eq!((edit.0.header_set, edit.0.header_clear), (0x0620, 0));
    }
}
