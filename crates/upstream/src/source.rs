//! `forward` as a source of answers.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;

use super::arranged::arranged;
use super::bare;
use super::counters::Reason;
use super::message::Query;
use super::{Answer, Failure, Forward, Forwarder};
use crate::admission::Place;
use crate::config::Next;
use crate::dns::edns::{ClientSubnet, ExtendedError};
use crate::dns::records::{self, Meaning, Section, Walk};
use crate::dns::special::Special;
use crate::dns::text::record_lines;
use crate::dns::{HEADER, QUESTION_TAIL, build, flag, name, rcode, rcode_text, rtype, u16_at};
use dnsweir_answer::{Awaited, Question, Refused, Resolution, Resolved, Status, Upkeep, UpstreamStatus};
use dnsweir_counts::metrics::Metrics;

/// Names that share so many labels below the stage's zone form one group for `concurrent`: in the root zone,
/// a registered domain; in a cluster's domain, the services of a namespace.
const SHARED_LABELS: usize = 2;

impl Forwarder {
    /// The answer if no upstream is needed: `except` leaves the name to the next stage, `plain-names` denies
    /// it.
    #[inline]
    pub fn immediate(&self, question: &Question<'_>) -> Option<Resolution> {
        if self.except.longest(question.name).is_some() {
            return Some(Resolution::NotMine);
        }
        let denied = self.config.denies_plain_names && is_plain_host(question);
        denied.then(|| denial_of(question))
    }

    /// Takes a place among the `concurrent` queries.
    fn place(&self, question: &Question<'_>, now: Instant) -> Result<Place, Failure> {
        let labels = labels(question.zone.as_bytes()).count() + SHARED_LABELS;
        self.admit(question.client, last_labels(question.name, labels), now)
    }

    /// Leaves the question to the next stage if `next` lists this kind of answer.
    fn pass_on(&self, resolution: Resolution) -> Resolution {
        let next = match &resolution {
            Resolution::Answer { answer, .. } => match (answer.rcode, answer.meaning) {
                (rcode::NXDOMAIN, _) => Next::Nxdomain,
                (rcode::NOERROR, Meaning::Denial) => Next::Nodata,
                // Without an SOA record (RFC 2308 section 2.2, type 3); a truncated answer may have more.
                (rcode::NOERROR, Meaning::Unkept)
                    if answer.answer_count() == 0 && u16_at(&answer.message, 2) & flag::TC == 0 =>
                {
                    Next::Nodata
                }
                (rcode::SERVFAIL, _) => Next::Servfail,
                (rcode::REFUSED, _) => Next::Refused,
                _ => return resolution,
            },
            Resolution::Failed { local: false, .. } => Next::Servfail,
            _ => return resolution,
        };
        match self.config.next.contains(&next) {
            true => Resolution::NotMine,
            false => resolution,
        }
    }
}

impl Upkeep for Forwarder {
    fn word(&self) -> &'static str {
        "forward"
    }

    fn status(&self) -> Status {
        let upstreams = self.upstreams.iter().zip(&self.config.upstreams);
        let upstreams = upstreams.map(|(upstream, config)| UpstreamStatus {
            address: config.spelled(self.config.protocol),
            to: upstream.address.to_string(),
            healthy: upstream.healthy(),
            fault: upstream.fault(),
            looping: upstream.looping(),
            unanswered: upstream.counters.failures[Reason::Timeout as usize].load(Relaxed),
        });
        let upstreams: Vec<_> = upstreams.collect();
        let addresses: Vec<&str> = upstreams.iter().map(|upstream| &*upstream.address).collect();
        Status {
            text: format!("forward {}", addresses.join(" ")),
            upstreams,
        }
    }

    fn show(&self, metrics: &mut Metrics) {
        self.show_upstreams(metrics);
    }

    /// Starts probing every upstream: whether it answers, and whether it loops back.
    fn begin(&self) {
        self.begin_probing();
    }

    fn ready(&self) -> Awaited<'_> {
        Box::pin(self.answer())
    }

    fn not_ready(&self, starting: bool) -> Option<String> {
        if self.only_loops() {
            return Some("every upstream loops back to this proxy".into());
        }
        (starting && !self.has_answer()).then(|| "no upstream has answered yet".into())
    }

    fn is_own_probe(&self, name: &[u8]) -> bool {
        self.loop_found(name)
    }

    fn loops(&self) -> bool {
        self.upstreams.iter().any(|upstream| upstream.looping())
    }
}

impl Forward {
    /// Asks the upstreams, unless `concurrent` queries are under way; gives up if another query displaces it.
    pub fn ask(self: &Rc<Self>, question: &Question<'_>) -> impl Future<Output = Resolved> + use<> {
        let forward = Rc::clone(self);
        // The future is polled at once, so one reading of the clock is enough.
        let now = Instant::now();
        let place = self.shared.place(question, now);
        let query = match question.signed {
            Some(signed) => signed.to_vec(),
            None => build::upstream_query(
                question.name,
                question.qtype,
                question.qclass,
                question.flags,
                question.dnssec_ok,
                question.subnet,
            ),
        };
        let subnet = question.subnet;
        let (signed, traced) = (question.signed.is_some(), question.traced);
        let tap = question.tap.filter(|tap| tap.wants_upstreams()).cloned();
        let query = Query::new(query).map(|query| Rc::new(query.tapped(tap)));
        async move {
            let asked = match (place, &query) {
                (Ok(place), Ok(query)) => forward.race_in(&place, query, now).await,
                (Err(failure), _) => Err(failure),
                (_, Err(why)) => Err((*why).into()),
            };
            let words = traced.then(|| words(&asked));
            let refused = match &asked {
                Err(Failure::Overloaded { .. }) => Some(Refused::Rejected),
                Err(Failure::Displaced) => Some(Refused::Displaced),
                _ => None,
            };
            let resolution = match asked {
                Err(failure) => {
                    tracing::debug!(%failure, "no upstream answered");
                    Resolution::Failed {
                        error: failure.extended_error(),
                        local: failure.is_local(),
                    }
                }
                Ok(answer) if signed => verbatim(answer.message),
                Ok(answer) if subnet.is_some_and(|subnet| !echoes(&answer.message, subnet)) => UNUSABLE,
                Ok(answer) => {
                    let question = query.as_ref().map_or(&[][..], |query| query.question());
                    bare::led_on(question, read(question, answer.message))
                }
            };
            Resolved {
                resolution: forward.shared.pass_on(resolution),
                refused,
                words,
            }
        }
    }

    /// Resolves, unless another query displaces it.
    async fn race_in(
        self: &Rc<Self>,
        place: &Place,
        query: &Rc<Query>,
        now: Instant,
    ) -> Result<Answer, Failure> {
        tokio::select! {
            biased;
            asked = self.race(query, now) => asked,
            () = poll_fn(|context| place.poll_displaced(context)) => Err(Failure::Displaced),
        }
    }
}

/// Whether it asks for addresses of a single-label name: a host on the local network, unknown elsewhere.
/// Other types of such names belong to top-level domains, and validating clients need them.
fn is_plain_host(question: &Question<'_>) -> bool {
    matches!(question.qtype, rtype::A | rtype::AAAA) && labels(question.name).count() == 1
}

/// NXDOMAIN, as the root would answer.
fn denial_of(question: &Question<'_>) -> Resolution {
    let mut asked = question.name.to_vec();
    asked.extend(question.qtype.to_be_bytes());
    asked.extend(question.qclass.to_be_bytes());
    match records::Answer::read(Special::Nonexistent.answer(&asked)) {
        Ok(answer) => Resolution::Answer {
            answer: Arc::new(answer),
            authoritative: false,
        },
        Err(_) => UNUSABLE,
    }
}

/// The result if no readable reply came.
const UNUSABLE: Resolution = Resolution::Failed {
    error: ExtendedError::NetworkError,
    local: false,
};

fn verbatim(message: Vec<u8>) -> Resolution {
    match message.len() {
        0..HEADER => UNUSABLE,
        _ => Resolution::Verbatim(message.into()),
    }
}

/// Whether an upstream answers for the subnet that was sent, and no other (RFC 7871 section 7.3).
fn echoes(message: &[u8], subnet: ClientSubnet) -> bool {
    if message.len() < HEADER || u16_at(message, 4) != 1 {
        return true;
    }
    let start = name::skip_plain(message, HEADER).map_or(HEADER, |end| end + QUESTION_TAIL);
    let mut walk = Walk::new(message, start, records::counts(message));
    let opt = walk.find_map(|record| record.ok().filter(|record| record.rtype == rtype::OPT));
    opt.is_none_or(|opt| subnet.is_echoed(&message[opt.data]))
}

/// Parses an upstream's reply to `question`.
fn read(question: &[u8], message: Vec<u8>) -> Resolution {
    if message.len() < HEADER {
        return UNUSABLE;
    }
    let flags = u16_at(&message, 2);
    // Servers that cannot read a query answer without the question: put it back.
    let message = match u16_at(&message, 4) {
        0 => build::empty(question, flags & flag::RCODE),
        _ => message,
    };
    match records::Answer::read(arranged(message, question.len())) {
        Ok(answer) => Resolution::Answer {
            answer: Arc::new(answer),
            authoritative: flags & flag::AA != 0,
        },
        Err(error) => {
            tracing::debug!(%error, "an upstream's answer is malformed");
            UNUSABLE
        }
    }
}

/// The outcome as text for a trace.
fn words(asked: &Result<Answer, Failure>) -> String {
    match asked {
        Err(failure) => format!("no answer: {failure}"),
        Ok(answer) if answer.message.len() < HEADER => {
            format!("{} sent something that is not a message", answer.upstream)
        }
        Ok(answer) => {
            let rcode = rcode_text(u16_at(&answer.message, 2) & flag::RCODE);
            let answers = record_lines(&answer.message, Section::Answer).len();
            format!("{} said {rcode}, answers: {answers}", answer.upstream)
        }
    }
}

/// The offset of each label in a wire name, without the root's.
fn labels(name: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at;
        let length = usize::from(*name.get(begin)?);
        at += 1 + length;
        (length > 0).then_some(begin)
    })
}

/// The last `count` labels of a wire name; all of it if it has fewer.
fn last_labels(name: &[u8], count: usize) -> &[u8] {
    let before = labels(name).count().saturating_sub(count);
    let begin = labels(name).nth(before).unwrap_or(name.len().saturating_sub(1));
    &name[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::name::Name;

    #[test]
    fn names_share_the_labels_below_their_zone() {
        let name = Name::parse("a.b.example.org").unwrap();
        for (count, expected) in [
            (0, "."),
            (1, "org."),
            (2, "example.org."),
            (4, "a.b.example.org."),
            (9, "a.b.example.org."),
        ] {
            let expected = Name::parse(expected).unwrap();
            assert_eq!(
                last_labels(name.as_bytes(), count),
                expected.as_bytes(),
                "{count}"
            );
        }
        assert_eq!(last_labels(Name::ROOT.as_bytes(), 2), [0]);
        assert_eq!(labels(name.as_bytes()).count(), 4);
    }
}
