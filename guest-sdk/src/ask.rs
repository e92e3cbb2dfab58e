//! Asking the host before deciding.

use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Name, Rcode, Source, Type};

/// What became of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupStatus {
    /// There is a response that says something: records, or that there are none.
    Answered,
    /// Nothing could be found out: SERVFAIL, a filter dropped it, or there is no such zone.
    Failed,
    /// It took too long.
    TimedOut,
    /// It was not made, or given up, since a limit of the proxy's was reached.
    Limited,
}

#[cfg(any(doc, not(target_family = "wasm")))]
impl LookupStatus {
    pub(crate) fn number(self) -> u8 {
        match self {
            LookupStatus::Answered => 0,
            LookupStatus::Failed => 1,
            LookupStatus::TimedOut => 2,
            LookupStatus::Limited => 3,
        }
    }
}

/// What a filter wants to know before it decides: names and types that the host looks up, all at once.
/// The filter goes on in [`Filter::answers`](crate::Filter::answers) or
/// [`Filter::response_answers`](crate::Filter::response_answers); the client sees nothing of it.
///
/// Up to 16 lookups at a time, up to four times about one query. What is looked up may come by this
/// filter again, as [`Transport::Internal`](crate::Transport::Internal), unless it is asked
/// [`below`](Ask::below).
///
/// ```
/// use std::time::Duration;
/// use dnsweir_filter::{Ask, NameBuf, Type, Verdict};
///
/// let name: NameBuf = "banner.example.list.test".parse().unwrap();
/// let verdict = Verdict::ask(Ask::new().lookup(&name, Type::A).time(Duration::from_secs(1)));
/// # let _ = verdict;
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Ask(raw::Ask);

impl Ask {
    /// No lookup yet; two seconds for all of them.
    pub fn new() -> Ask {
        Ask(raw::Ask {
            lookups: Vec::new(),
            time: 0,
            state: Vec::new(),
        })
    }

    /// Looks up a name as if a client had asked for it, through the zone that owns it.
    pub fn lookup<'n>(mut self, name: impl Into<Name<'n>>, qtype: Type) -> Ask {
        self.0.lookups.push(raw::Lookup {
            name: name.into().as_wire().to_vec(),
            qtype: qtype.0,
            path: raw::Path::Top,
        });
        self
    }

    /// The last lookup goes on below this filter in the zone of the query, whatever its name: through the
    /// same cache and the same upstreams.
    pub fn below(self) -> Ask {
        self.path(raw::Path::Below)
    }

    /// The last lookup goes through this zone of the configuration, whatever its name.
    pub fn zone(self, zone: Name<'_>) -> Ask {
        self.path(raw::Path::Zone(zone.to_string()))
    }

    fn path(mut self, path: raw::Path) -> Ask {
        if let Some(lookup) = self.0.lookups.last_mut() {
            lookup.path = path;
        }
        self
    }

    /// How long all lookups together may take, to the millisecond; at most ten seconds.
    pub fn time(mut self, time: Duration) -> Ask {
        self.0.time = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1);
        self
    }

    /// What to hand back with the answers: at most 4096 octets. Whatever else the filter knows of the query
    /// may be gone by then, since another instance of it may go on.
    pub fn state(mut self, state: impl Into<Vec<u8>>) -> Ask {
        self.0.state = state.into();
        self
    }

    pub(crate) fn into_raw(self) -> raw::Ask {
        self.0
    }
}

impl Default for Ask {
    fn default() -> Ask {
        Ask::new()
    }
}

/// The answers to all lookups of an [`Ask`], in the same order.
#[derive(Clone, Copy)]
pub struct Answers<'a> {
    raw: &'a [raw::LookupAnswer],
    state: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Answers<'a> {
    /// Of all `answers`, `count` from `first` on. `state` is where it starts, and its length.
    pub(crate) fn new(
        answers: &'a [raw::LookupAnswer],
        (first, count): (u32, u32),
        state: (u32, u32),
        bytes: &'a [u8],
    ) -> Option<Answers<'a>> {
        let first = first as usize;
        let raw = answers.get(first..first.checked_add(count as usize)?)?;
        let all = raw
            .iter()
            .map(|answer| (answer.message_start, answer.message_length));
        for (start, length) in all {
            cut(bytes, start, length)?;
        }
        let state = cut(bytes, state.0, state.1)?;
        Some(Answers { raw, state, bytes })
    }

    /// What the filter had handed back.
    pub fn state(&self) -> &'a [u8] {
        self.state
    }

    /// How many lookups there were.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether there were none, which does not happen.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The answer to the lookup with this index.
    pub fn get(&self, index: usize) -> Option<Found<'a>> {
        self.iter().nth(index)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Found<'a>> + use<'a> {
        let bytes = self.bytes;
        self.raw.iter().map(move |raw| Found {
            raw,
            message: cut(bytes, raw.message_start, raw.message_length).unwrap_or_default(),
        })
    }
}

fn cut(bytes: &[u8], start: u32, length: u32) -> Option<&[u8]> {
    let start = start as usize;
    bytes.get(start..start.checked_add(length as usize)?)
}

/// What a lookup came to.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    raw: &'a raw::LookupAnswer,
    message: &'a [u8],
}

impl<'a> Found<'a> {
    /// What became of it.
    pub fn status(&self) -> LookupStatus {
        match self.raw.status {
            0 => LookupStatus::Answered,
            2 => LookupStatus::TimedOut,
            3 => LookupStatus::Limited,
            _ => LookupStatus::Failed,
        }
    }

    /// Whether there is a response that says something: records, or that there are none.
    pub fn answered(&self) -> bool {
        self.status() == LookupStatus::Answered
    }

    /// The response code; SERVFAIL where there is no response.
    pub fn rcode(&self) -> Rcode {
        Rcode(self.raw.rcode)
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        Source::from_number(self.raw.source)
    }

    /// Records in the answer section.
    pub fn answer_count(&self) -> u16 {
        self.raw.answer_count
    }

    /// The lowest TTL of its records in seconds; 0 if it has none.
    pub fn ttl(&self) -> u32 {
        self.raw.ttl
    }

    /// The response in wire format, without its OPT record; empty unless the lookup was answered.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }
}
