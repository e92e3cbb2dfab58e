//! What a filter changes in a response.

use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::verdict::seconds;
use crate::{ExtendedError, Name, Rcode, Record, Section, Type};

/// What happens to a response: with the query's verdict if it is known by then, else with the
/// response's. Applied where the filter stands, so a filter below `cache` changes what is kept.
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

    /// Removes records, and the signatures over what is left of their sets. Edits of records are done in the order in which
    /// they are said; at most 64.
    pub fn remove(mut self, selector: Selector) -> ResponseEdit {
        self.0.records.push(raw::RecordEdit::Remove(selector.0));
        self
    }

    /// Puts these in the place of the first of the records selected, if there is one, and removes the others.
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

    /// Has the records of each set in the answer section begin with the one that has this index, and go round.
    pub fn rotate(mut self, by: u32) -> ResponseEdit {
        let order = raw::Order::Rotate(by);
        self.0.records.push(raw::RecordEdit::Order(order));
        self
    }

    /// Puts the records of each set in the answer section in an order by chance: another one for each response, even if the
    /// verdict is [remembered](crate::Verdict::remember).
    pub fn shuffle(mut self) -> ResponseEdit {
        let order = raw::Order::Shuffle;
        self.0.records.push(raw::RecordEdit::Order(order));
        self
    }

    /// Puts the answer section in the order of these indices. Records that are not named follow.
    pub fn permute(mut self, order: impl IntoIterator<Item = u32>) -> ResponseEdit {
        let order = raw::Order::Permute(order.into_iter().collect());
        self.0.records.push(raw::RecordEdit::Order(order));
        self
    }

    /// Sets TC, or clears it. It is set in datagrams only: the client asks again over TCP.
    pub fn truncated(self, set: bool) -> ResponseEdit {
        self.header(0x0200, set)
    }

    /// Sets AA, or clears it.
    pub fn authoritative(self, set: bool) -> ResponseEdit {
        self.header(0x0400, set)
    }

    /// Sets AD, or clears it. Clients that asked with neither DO nor AD do not get it.
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

    /// Says why the response is as it is.
    pub fn error(mut self, error: ExtendedError) -> ResponseEdit {
        self.0.error = Some(error.into_raw());
        self
    }

    /// Puts one response code in place of another. Of several for the same code, the first holds.
    #[inline]
    pub fn rcode(mut self, from: Rcode, to: Rcode) -> ResponseEdit {
        self.0.rcodes.push((from.0, to.0));
        self
    }

    /// Raises lower TTLs to this, to the second.
    #[inline]
    pub fn ttl_min(mut self, ttl: Duration) -> ResponseEdit {
        self.0.ttl_minimum = seconds(ttl);
        self
    }

    /// Lowers higher TTLs to this, to the second.
    #[inline]
    pub fn ttl_max(mut self, ttl: Duration) -> ResponseEdit {
        self.0.ttl_maximum = seconds(ttl);
        self
    }

    /// `cache` neither keeps the response nor answers from what it kept.
    pub fn no_store(mut self) -> ResponseEdit {
        self.0.store = false;
        self
    }

    /// `cache` does not serve the response past its TTL (RFC 8767).
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

/// Which records are meant: all of them, until it is said which.
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

    /// Those of this type.
    pub fn of_type(rtype: Type) -> Selector {
        let mut selector = Selector::all();
        selector.0.rtype = Some(rtype.0);
        selector
    }

    /// Those in this section.
    pub fn section(mut self, section: Section) -> Selector {
        self.0.section = Some(section.into_raw());
        self
    }

    /// Those with this owner.
    pub fn name<'b>(mut self, name: impl Into<Name<'b>>) -> Selector {
        self.0.name = Some(name.into().as_wire().to_vec());
        self
    }

    /// Of those that the rest selects the one with this index, counted from 0.
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
