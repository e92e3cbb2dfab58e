//! Lookups that a filter makes before it decides.

use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Name, Rcode, Source, Type};

/// The outcome of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupStatus {
    /// Answered with records, or with a denial.
    Answered,
    /// Failed: SERVFAIL, dropped by a filter, or no such zone.
    Failed,
    /// Not answered in time.
    TimedOut,
    /// Not made, or abandoned, because a limit of the proxy was reached.
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

/// Lookups that the host makes before the filter decides, all at the same time. Their answers go to
/// [`Filter::answers`](crate::Filter::answers) or
/// [`Filter::response_answers`](crate::Filter::response_answers); the client sees nothing of it.
///
/// At most 16 lookups at a time, and four times per query. Lookups may pass through this filter again, with
/// [`Transport::Internal`](crate::Transport::Internal), unless they are made [`below`](Ask::below) it.
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
    /// No lookup yet; a timeout of two seconds for all of them.
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

    /// Starts the last lookup below this filter, in the zone of the query, whatever its name: it uses the
    /// same cache and the same upstreams.
    pub fn below(self) -> Ask {
        self.path(raw::Path::Below)
    }

    /// Makes the last lookup in this zone of the configuration, whatever its name.
    pub fn zone(self, zone: Name<'_>) -> Ask {
        self.path(raw::Path::Zone(zone.to_string()))
    }

    fn path(mut self, path: raw::Path) -> Ask {
        if let Some(lookup) = self.0.lookups.last_mut() {
            lookup.path = path;
        }
        self
    }

    /// The timeout for all lookups together: at most ten seconds, with a resolution of 1 ms.
    pub fn time(mut self, time: Duration) -> Ask {
        self.0.time = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1);
        self
    }

    /// State to return with the answers: at most 4096 bytes. Keep nothing about the query in the filter
    /// itself, since another instance may receive the answers.
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
    /// Takes `count` of the `answers`, beginning with `first`. `state` is an offset and a length in `bytes`.
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

    /// The state that the filter passed to [`Ask::state`].
    pub fn state(&self) -> &'a [u8] {
        self.state
    }

    /// The number of lookups.
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

    /// All answers.
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

/// The result of a lookup.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    raw: &'a raw::LookupAnswer,
    message: &'a [u8],
}

impl<'a> Found<'a> {
    /// The outcome of the lookup.
    pub fn status(&self) -> LookupStatus {
        match self.raw.status {
            0 => LookupStatus::Answered,
            2 => LookupStatus::TimedOut,
            3 => LookupStatus::Limited,
            _ => LookupStatus::Failed,
        }
    }

    /// Whether there is a usable response: with records, or with a denial.
    pub fn answered(&self) -> bool {
        self.status() == LookupStatus::Answered
    }

    /// The rcode; SERVFAIL if there is no response.
    pub fn rcode(&self) -> Rcode {
        Rcode(self.raw.rcode)
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        Source::from_number(self.raw.source)
    }

    /// The number of records in the answer section.
    pub fn answer_count(&self) -> u16 {
        self.raw.answer_count
    }

    /// The lowest TTL of the response's records in seconds; 0 if it has none.
    pub fn ttl(&self) -> u32 {
        self.raw.ttl
    }

    /// The response in wire format, without its OPT record; empty unless the lookup was answered.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }
}
