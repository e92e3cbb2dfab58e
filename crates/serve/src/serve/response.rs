//! A response on its way back: where its bytes are, and what was decided about them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cache::Entry;
use crate::dns::Origin;
use crate::dns::edns::{ExtendedError, ExtendedErrorCode};
use crate::dns::records::{Answer, Meaning, Section};
use crate::dns::reply::{self, Body, Head, Ttl};
use crate::dns::writer::{Writer, Written};
use crate::dns::{MESSAGE_MAXIMUM, QUESTION_TAIL, Transport, build, flag, rcode, u16_at};
use crate::filter::{Answer as FilterAnswer, Ede, Refusal, ResponseEdit};
use dnsweir_answer::Resolution;

use super::edits;
use super::live::Live;
use super::request::Request;

/// A response. Most edits change the fields beside the message; its bytes change only where they must.
#[derive(Clone)]
pub struct Response {
    /// Where the bytes are.
    pub content: Content,
    /// The full 12-bit rcode.
    pub rcode: u16,
    /// How the TTLs are changed when it is written.
    pub ttl: Ttl,
    /// Where it came from.
    pub origin: Origin,
    /// Whether AA is set: only on an answer that comes from its source, not from the cache.
    pub authoritative: bool,
    /// The extended error (RFC 8914).
    pub error: Option<ExtendedErrorCode>,
    /// Which caches may keep it.
    pub store: Store,
    /// Whether the cache may serve it past its TTL.
    pub stale: bool,
}

/// Which caches may keep a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Those above any query.
    Always,
    /// Those above the query from which aliases led to it, since another one would be led further.
    First,
    /// None.
    Never,
}

/// Where a response's bytes are.
#[derive(Clone)]
pub enum Content {
    /// There are only header and question.
    Empty,
    /// In the cache.
    Entry(Entry),
    /// In this message.
    Answer(Arc<Answer>),
    /// An upstream's unchanged message: the answer to a signed query.
    Verbatim(Arc<[u8]>),
}

impl Response {
    /// Creates an empty response of the proxy itself.
    pub fn error(rcode: u16, error: ExtendedError) -> Response {
        Response {
            content: Content::Empty,
            rcode,
            ttl: Ttl::AS_IS,
            origin: Origin::Local,
            authoritative: false,
            error: Some(error.code()),
            store: Store::Always,
            stale: true,
        }
    }

    /// The same, but about the moment or this client alone: no cache may keep it.
    pub(crate) fn unstored(rcode: u16, error: ExtendedError) -> Response {
        Response {
            store: Store::Never,
            ..Response::error(rcode, error)
        }
    }

    /// Creates a response with this answer.
    pub fn answer(answer: Arc<Answer>, origin: Origin, authoritative: bool) -> Response {
        let (rcode, error) = (answer.rcode, answer.error);
        let content = Content::Answer(answer);
        Response {
            content,
            rcode,
            ttl: Ttl::AS_IS,
            origin,
            authoritative,
            error,
            store: Store::Always,
            stale: true,
        }
    }

    /// Creates the proxy's own response from a message.
    pub fn local(message: Vec<u8>) -> Response {
        match Answer::read(message) {
            Ok(answer) => Response::answer(Arc::new(answer), Origin::Local, false),
            Err(_) => Response::error(rcode::SERVFAIL, ExtendedError::Other),
        }
    }

    /// Creates the response to a client from a source's answer, which came from there.
    pub(crate) fn of_source(resolution: Resolution, origin: Origin) -> Response {
        match resolution {
            Resolution::Answer {
                answer,
                authoritative,
            } => Response::answer(answer, origin, authoritative),
            Resolution::Verbatim(message) => Response {
                rcode: u16_at(&message, 2) & flag::RCODE,
                content: Content::Verbatim(message),
                origin,
                error: None,
                ..Response::unstored(rcode::NOERROR, ExtendedError::Other)
            },
            // RFC 9520 section 2: only failures of the resolution itself are cached.
            Resolution::Failed { error, local: true } => Response::unstored(rcode::SERVFAIL, error),
            Resolution::Failed { error, local: false } => Response::error(rcode::SERVFAIL, error),
            // As if no stage were left. Aliases have been followed before.
            Resolution::NotMine | Resolution::Alias(_) => {
                Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative)
            }
        }
    }

    /// The empty response to `question` that a filter asks for.
    pub fn refused(question: &[u8], refusal: &Refusal) -> Response {
        let mut empty = Response {
            origin: Origin::Filter,
            ..Response::error(refusal.rcode, ExtendedError::Blocked)
        };
        if let Some(error) = &refusal.error {
            // Only a message has room for its text.
            empty.replace(Some(empty.message(question)));
            empty.explain(error);
        }
        empty
    }

    /// The response to `question` that a filter built.
    pub(crate) fn from_filter(question: &[u8], records: &FilterAnswer) -> Response {
        let mut empty = build::empty(question, records.rcode);
        if records.is_cut {
            empty[2] |= (flag::TC >> 8) as u8;
        }
        let mut writer = Writer::new(&empty, question.len(), MESSAGE_MAXIMUM);
        for (section, all) in [
            (Section::Answer, &records.answers),
            (Section::Authority, &records.authority),
            (Section::Additional, &records.additional),
        ] {
            for record in all {
                writer.push(
                    section,
                    Written {
                        owner: &record.name,
                        rtype: record.rtype,
                        class: record.class,
                        ttl: record.ttl,
                        data: &record.rdata,
                    },
                );
            }
        }
        match Answer::read(writer.finish()) {
            Ok(answer) => {
                let answer = Arc::new(Answer {
                    rcode: records.rcode,
                    ..answer
                });
                let mut response = Response::answer(answer, Origin::Filter, records.authoritative);
                if let Some(error) = &records.error {
                    response.explain(error);
                }
                response
            }
            Err(_) => Response::error(rcode::SERVFAIL, ExtendedError::Other),
        }
    }

    /// Applies a filter's edit at this stage.
    #[inline]
    pub fn edit(&mut self, edit: &ResponseEdit, request: &Request, live: &Live, stage: usize) {
        let datagram = request.asked.client.transport == Transport::Udp;
        let count = |took| live.count_edit(request, stage, took);
        self.edit_as(
            edit,
            &request.question,
            datagram,
            || live.room(request, stage),
            count,
        );
    }

    /// The same for this question; more than `room` bytes are of no use. `count` receives the time that a
    /// change of the message took.
    // Like `push_event` of a batch: there is next to nothing to do, but every hit does it.
    #[inline]
    pub(super) fn edit_as(
        &mut self,
        edit: &ResponseEdit,
        question: &[u8],
        datagram: bool,
        room: impl FnOnce() -> usize,
        count: impl FnOnce(Duration),
    ) {
        if let Content::Verbatim(message) = &self.content {
            if changes_signed(edit, message, self.rcode, datagram) {
                *self = Response::unstored(rcode::REFUSED, ExtendedError::Other);
            }
            return;
        }
        if edit.changes_message() {
            let begun = Instant::now();
            self.edit_message(edit, question, datagram, room());
            count(begun.elapsed());
        }
        if edit.header_set & flag::AA != 0 {
            self.authoritative = true;
        }
        self.authoritative &= edit.header_clear & flag::AA == 0;
        if let Some(&(_, to)) = edit.rcodes.iter().find(|&&(from, _)| from == self.rcode) {
            self.rcode = to;
        }
        self.bound_ttl(edit.ttl_minimum, edit.ttl_maximum);
        if !edit.store {
            self.store = Store::Never;
        }
        self.stale &= edit.stale;
    }

    /// Copies the message and edits the copy.
    #[cold]
    #[inline(never)]
    fn edit_message(&mut self, edit: &ResponseEdit, question: &[u8], datagram: bool, room: usize) {
        let mut message = self.message(question);
        if !edit.records.is_empty() {
            let Some(edited) = edits::edited(&message, question.len(), room, &edit.records) else {
                return self.replace(None);
            };
            message = edited;
        }
        let mut set = edit.header_set & (flag::TC | flag::AD);
        if !datagram {
            // A client on a connection has no larger transport to turn to.
            set &= !flag::TC;
        }
        if edit.is_cut {
            set |= flag::TC;
        }
        let mut clear = edit.header_clear & (flag::TC | flag::AD);
        if edit.changes_data() {
            // AD was about other data, unless the filter sets it for its own.
            clear |= flag::AD & !set;
        }
        let flags = u16_at(&message, 2) & !clear | set;
        message[2..4].copy_from_slice(&flags.to_be_bytes());
        self.replace(Some(message));
        if let Some(error) = &edit.error {
            self.explain(error);
        }
    }

    /// Clamps every TTL to `minimum..=maximum` seconds.
    pub(crate) fn bound_ttl(&mut self, minimum: u32, maximum: u32) {
        let bound = |ttl: u32| ttl.max(minimum).min(maximum);
        self.ttl = match self.ttl {
            Ttl::Aged { by, min, max } => Ttl::Aged {
                by,
                min: bound(min),
                max: bound(max),
            },
            Ttl::Fixed(ttl) => Ttl::Fixed(bound(ttl)),
        };
    }

    /// The meaning of an answer's records under its current rcode; `None` for a response without records of
    /// its own.
    pub fn meaning(&self) -> Option<Meaning> {
        match &self.content {
            Content::Answer(answer) if answer.rcode == self.rcode => Some(answer.meaning),
            Content::Answer(answer) => Some(answer.meaning.with_rcode(self.rcode)),
            Content::Empty | Content::Entry(_) | Content::Verbatim(_) => None,
        }
    }

    /// Whether resolution failed (RFC 9520 section 2), so that a stale answer is better (RFC 8767 section 4).
    /// A filter's decision is not a failure.
    pub fn failed(&self) -> bool {
        match self.meaning() {
            Some(meaning) => meaning == Meaning::Failure && self.origin != Origin::Filter,
            None => self.rcode == rcode::SERVFAIL && matches!(self.origin, Origin::Local | Origin::Upstream),
        }
    }

    /// Turns the response to `below` into one to `question`: with `revert`, records owned by the name of
    /// `below` get the name of `question`.
    pub fn rename(&mut self, below: &[u8], question: &[u8], revert: bool) {
        let from = &below[..below.len() - QUESTION_TAIL];
        match &self.content {
            Content::Empty | Content::Verbatim(_) => {}
            Content::Entry(_) | Content::Answer(_) => {
                let message = self.message(below);
                self.replace(build::renamed(&message, from, question, revert));
            }
        }
    }

    /// Writes it under `head`; returns the number of bytes.
    pub fn write(&self, out: &mut [u8], head: &Head<'_>) -> usize {
        let (ttl, rcode, authoritative) = (self.ttl, self.rcode, self.authoritative);
        match &self.content {
            Content::Empty => reply::write_empty(out, head, rcode),
            Content::Entry(entry) => {
                let (message, ttl_offsets) = (entry.wire(), entry.ttl_offsets());
                reply::write(
                    out,
                    head,
                    Body {
                        message,
                        ttl_offsets,
                        ttl,
                        rcode,
                        authoritative,
                        error_text: "",
                    },
                )
            }
            Content::Answer(answer) => {
                let ttl_offsets = answer.ttl_offsets.iter().map(|&at| usize::from(at));
                reply::write(
                    out,
                    head,
                    Body {
                        message: &answer.message,
                        ttl_offsets,
                        ttl,
                        rcode,
                        authoritative,
                        error_text: &answer.error_text,
                    },
                )
            }
            Content::Verbatim(message) => reply::write_verbatim(out, head, message),
        }
    }

    /// The whole message with current TTLs, for what needs bytes: renaming, aliases, and filters that look at
    /// messages.
    pub fn message(&self, question: &[u8]) -> Vec<u8> {
        let head = Head {
            id: 0,
            flags: u16::MAX,
            question,
            opt: None,
            limit: MESSAGE_MAXIMUM,
        };
        let mut out = vec![0; MESSAGE_MAXIMUM];
        let length = self.write(&mut out, &head);
        out.truncate(length);
        out
    }

    /// Sets a filter's extended error, if it has a message of its own.
    fn explain(&mut self, error: &Ede) {
        if let Content::Answer(answer) = &mut self.content {
            let answer = Arc::make_mut(answer);
            (answer.error, answer.error_text) = (Some(error.code), error.text.clone());
            self.error = Some(error.code);
        }
    }

    /// The extended error, if it outlasts the moment: one from an upstream or a filter.
    pub(crate) fn lasting_error(&self) -> Option<ExtendedErrorCode> {
        match (self.origin, &self.content) {
            (Origin::Upstream, _) => self.error,
            (Origin::Filter, Content::Answer(answer)) => answer.error,
            _ => None,
        }
    }

    /// Replaces the message, keeping rcode, origin and extended error. Without a readable message it becomes
    /// SERVFAIL.
    fn replace(&mut self, message: Option<Vec<u8>>) {
        match message.and_then(|message| Answer::read(message).ok()) {
            Some(mut answer) => {
                if let Content::Answer(before) = &self.content {
                    (answer.error, answer.error_text) = (before.error, before.error_text.clone());
                }
                self.content = Content::Answer(Arc::new(answer));
                self.ttl = Ttl::AS_IS;
            }
            None => {
                let origin = self.origin;
                *self = Response {
                    origin,
                    ..Response::error(rcode::SERVFAIL, ExtendedError::Other)
                };
            }
        }
    }

    /// Size of its message in bytes; the memory may be shared with others.
    pub fn octets(&self) -> usize {
        match &self.content {
            Content::Empty => 0,
            Content::Entry(entry) => entry.wire().len(),
            Content::Answer(answer) => answer.message.len(),
            Content::Verbatim(message) => message.len(),
        }
    }

    /// The number of records in the answer section.
    #[inline]
    pub fn answer_count(&self) -> u16 {
        match &self.content {
            Content::Empty => 0,
            Content::Entry(entry) => crate::dns::u16_at(entry.wire(), 6),
            Content::Answer(answer) => answer.answer_count(),
            Content::Verbatim(message) => crate::dns::u16_at(message, 6),
        }
    }

    /// The lowest TTL that a client would see, in seconds; 0 without records.
    pub fn lowest_ttl(&self) -> u32 {
        let stored = match &self.content {
            Content::Empty | Content::Verbatim(_) => return 0,
            Content::Entry(entry) => entry.lifetime().ttl_secs,
            Content::Answer(answer) => answer.ttl,
        };
        match self.ttl {
            Ttl::Aged { by, min, max } => stored.saturating_sub(by).max(min).min(max),
            Ttl::Fixed(ttl) => ttl,
        }
    }

    /// The answer to cache, with all edits applied; `None` if there is none or it must stay unchanged.
    pub(crate) fn to_answer(&self) -> Option<Cow<'_, Answer>> {
        let Content::Answer(answer) = &self.content else {
            return None;
        };
        let mut answer = Cow::Borrowed(&**answer);
        if let Ttl::Aged { min, max, .. } = self.ttl
            && !answer.is_within(min, max)
        {
            answer.to_mut().clamp(min, max);
        }
        if answer.rcode != self.rcode {
            answer.to_mut().set_rcode(self.rcode);
        }
        Some(answer)
    }
}

/// Whether an edit would change what a signed answer says: records, rcode, or header bits. It is relayed
/// unchanged or not at all (RFC 5625 section 4.5): otherwise a signature, which nothing here can check, would
/// be a way around a policy. Edits to record order, TTLs and the extended error are just not applied.
#[cold]
#[inline(never)]
fn changes_signed(edit: &ResponseEdit, message: &[u8], rcode: u16, datagram: bool) -> bool {
    let mut set = edit.header_set;
    if !datagram {
        set &= !flag::TC;
    }
    let flags = u16_at(message, 2);
    flags & set != set
        || flags & edit.header_clear != 0
        || edit.rcodes.iter().any(|&(from, to)| from == rcode && to != rcode)
        || edits::would_change(message, &edit.records).unwrap_or(true)
}
