//! Asking upstreams, once for all who ask the same at the time.
//!
//! Queries come together here, below every filter, and not at the cache: each has been through filters of its own, so
//! that what they said of one client reaches nobody else. Shared is what the upstream said, and nothing more. Whoever
//! leads waits for the network alone and never for another query, so nobody can wait in a circle.
//!
//! Two things are bounded, and both let go of those who take most when they are full ([`admission`](crate::admission)):
//! the queries that an upstream is asked at a time (`concurrent`), and the clients' queries that wait
//! (`waiting-queries`). To be let go is no failure of the name's resolution (RFC 9520 section 2): it is not kept.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tokio::task::spawn_local;
use tokio::time::sleep_until;

use crate::admission::Place;
use crate::cache::{Join, Key, KeyFlags, Leader};
use crate::dns::Origin;
use crate::dns::edns::ExtendedError;
use crate::dns::records::Answer;
use crate::dns::{HEADER, QUESTION_TAIL, build, flag, rcode, u16_at};
use crate::source::forward::{self, Failure};

use super::counters::add;
use super::generation::Live;
use super::request::Request;
use super::response::{Content, Response};
use super::{Worker, trace};

/// Labels below the zone of the configuration by which names share `concurrent`: in the root zone those that one
/// registers, in a cluster's domain a namespace's services.
const SHARED_LABELS: usize = 2;

/// What came of an upstream query, for all who waited for it.
#[derive(Clone)]
pub enum Fetched {
    /// What an upstream said.
    Answer {
        /// Checked, its TTLs put right.
        answer: Arc<Answer>,
        /// Whether AA is set.
        authoritative: bool,
    },
    /// Nothing usable.
    Failed {
        /// What clients are told about it.
        error: ExtendedError,
        /// Whether a limit of this proxy's own is the reason: then it says nothing about the name.
        local: bool,
    },
}

/// Why a client's query waits no longer, although what it waited for is still to come.
enum GaveUp {
    /// Another query took its place.
    Displaced,
    /// Something stale is good enough by now.
    Overtime,
}

impl Worker {
    /// Asks the upstreams of a `forward` stage, or waits for somebody else's answer to the same.
    pub(super) async fn forwarded(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        index: usize,
    ) -> Response {
        if request.signed.is_some() {
            // In a box: it is rare, and all who wait would have room for it.
            return Box::pin(self.relayed(live, request, index)).await;
        }
        let flags = KeyFlags::new(request.dnssec_ok(), request.checking_disabled())
            .with_recursion(request.recursion_desired());
        let key = Key::new(
            request.hash,
            request.name.as_bytes(),
            request.qtype,
            request.qclass,
            flags,
            live.generation.sources[index],
        );
        let fetched = match self.shared.flights.join(&key) {
            Join::Lead(leader) => self.lead(live, request, index, leader).await,
            Join::Follow(fetched) => {
                add(&live.counters(request).coalesced, 1);
                let did = || "waits for somebody else's upstream query".into();
                request.trace(|| trace::forward(request, did()));
                match wait(request, pin!(fetched)).await {
                    Ok(Some(fetched)) => fetched,
                    // Whoever asked was turned away.
                    Ok(None) => Fetched::LIMITED,
                    Err(why) => self.gave_up(live, request, why),
                }
            }
        };
        fetched.response()
    }

    /// Asks, for itself and those who follow.
    async fn lead(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        index: usize,
        leader: Leader<Fetched>,
    ) -> Fetched {
        let place = match self.upstream_place(live, request, index) {
            Ok(place) => place,
            Err(failure) => return Fetched::failed(&failure),
        };
        let query = build::upstream_query(
            request.name.as_bytes(),
            request.qtype,
            request.qclass,
            request.flags,
            request.dnssec_ok(),
        );
        let begun = request.trace.as_ref().map(|_| Instant::now());
        // In a box, or all who wait would be as large as one who asks.
        let mut asking = Box::pin(ask(Rc::clone(live), index, query, place));
        match wait(request, asking.as_mut()).await {
            Ok((query, asked)) => {
                self.note(live, request, &asked, begun);
                let fetched = Fetched::read(question(&query), asked);
                // Those who follow are told when the answer is in the cache: who asks then finds it there.
                request.led = Some(leader.with(fetched.clone()));
                fetched
            }
            Err(why) => {
                // Who asked waits no longer. Others may.
                if leader.followers() > 0 {
                    spawn_local(async move {
                        let (query, asked) = asking.await;
                        leader.finish(Fetched::read(question(&query), asked));
                    });
                }
                self.gave_up(live, request, why)
            }
        }
    }

    /// Relays a signed query as it is, and the answer to it, which concerns nobody else.
    async fn relayed(&self, live: &Rc<Live>, request: &Request, index: usize) -> Response {
        let place = match self.upstream_place(live, request, index) {
            Ok(place) => place,
            Err(failure) => return Fetched::failed(&failure).response(),
        };
        let query = request.signed.as_deref().unwrap_or_default().to_vec();
        let begun = request.trace.as_ref().map(|_| Instant::now());
        let asking = Box::pin(ask(Rc::clone(live), index, query, place));
        let asked = match wait(request, asking).await {
            Ok((_, asked)) => asked,
            Err(why) => return self.gave_up(live, request, why).response(),
        };
        self.note(live, request, &asked, begun);
        match asked {
            Ok(answer) if answer.message.len() >= HEADER => Response {
                rcode: u16_at(&answer.message, 2) & flag::RCODE,
                content: Content::Verbatim(answer.message.into()),
                origin: Origin::Upstream,
                error: None,
                store: false,
                ..Response::error(rcode::NOERROR, ExtendedError::Other)
            },
            Ok(_) => Response::error(rcode::SERVFAIL, ExtendedError::NetworkError),
            Err(failure) => Fetched::failed(&failure).response(),
        }
    }

    /// A place among the queries that the upstreams of a stage are asked at a time.
    fn upstream_place(&self, live: &Live, request: &Request, index: usize) -> Result<Place, Failure> {
        let zone = &live.generation.pipelines[request.pipeline].zones[request.zone];
        let about = last_labels(
            request.name.as_bytes(),
            labels(zone.as_bytes()).count() + SHARED_LABELS,
        );
        live.generation.forwarders[index]
            .admit(request.client.address.ip(), about)
            .inspect_err(|failure| {
                add(&live.counters(request).rejects, 1);
                request.trace(|| trace::unanswered(request, failure, None));
            })
    }

    /// Tells the trace of what came from upstream, and counts.
    fn note(
        &self,
        live: &Live,
        request: &Request,
        asked: &Result<forward::Answer, Failure>,
        begun: Option<Instant>,
    ) {
        let took = begun.map(|begun| begun.elapsed());
        match asked {
            Ok(answer) => {
                request.trace(|| trace::forwarded(request, answer.upstream, &answer.message, took));
            }
            Err(failure) => {
                if matches!(failure, Failure::Displaced) {
                    add(&live.counters(request).displaced, 1);
                }
                request.trace(|| trace::unanswered(request, failure, took));
                tracing::debug!(name = %request.name, %failure, "no upstream answered");
            }
        }
    }

    fn gave_up(&self, live: &Live, request: &Request, why: GaveUp) -> Fetched {
        if matches!(why, GaveUp::Displaced) {
            add(&live.counters(request).waiting_displaced, 1);
            let did = || "gave way: too many queries wait".into();
            request.trace(|| trace::forward(request, did()));
        }
        Fetched::LIMITED
    }
}

/// Asks the upstreams, unless another query takes the place. Gives the query back.
async fn ask(
    live: Rc<Live>,
    index: usize,
    query: Vec<u8>,
    place: Place,
) -> (Vec<u8>, Result<forward::Answer, Failure>) {
    let asked = tokio::select! {
        biased;
        asked = live.forwards[index].resolve(&query) => asked,
        () = poll_fn(|context| place.poll_displaced(context)) => Err(Failure::Displaced),
    };
    (query, asked)
}

/// Where each label of a wire name begins; the root's is not counted.
fn labels(name: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at;
        let length = usize::from(*name.get(begin)?);
        at += 1 + length;
        (length > 0).then_some(begin)
    })
}

/// The end of a wire name that has so many labels; all of it if it has fewer.
fn last_labels(name: &[u8], count: usize) -> &[u8] {
    let before = labels(name).count().saturating_sub(count);
    let begin = labels(name).nth(before).unwrap_or(name.len().saturating_sub(1));
    &name[begin..]
}

/// The question of a query that was built here.
fn question(query: &[u8]) -> &[u8] {
    let end = crate::dns::name::skip_plain(query, HEADER).map_or(HEADER, |end| end + QUESTION_TAIL);
    &query[HEADER..end.min(query.len())]
}

/// Waits for something as long as the client may.
async fn wait<F: Future>(
    request: &Request,
    mut awaited: Pin<impl std::ops::DerefMut<Target = F>>,
) -> Result<F::Output, GaveUp> {
    let mut overtime = request.until.map(|until| Box::pin(sleep_until(until)));
    poll_fn(|context| {
        if let Poll::Ready(output) = awaited.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        if request.poll_displaced(context).is_ready() {
            return Poll::Ready(Err(GaveUp::Displaced));
        }
        match &mut overtime {
            Some(overtime) => overtime.as_mut().poll(context).map(|()| Err(GaveUp::Overtime)),
            None => Poll::Pending,
        }
    })
    .await
}

impl Fetched {
    /// Nothing, since there is no room to ask or to wait.
    const LIMITED: Fetched = Fetched::Failed {
        error: ExtendedError::Other,
        local: true,
    };

    fn failed(failure: &Failure) -> Fetched {
        Fetched::Failed {
            error: failure.extended_error(),
            local: failure.is_local(),
        }
    }

    /// Makes sense of what an upstream said to `question`.
    fn read(question: &[u8], asked: Result<forward::Answer, Failure>) -> Fetched {
        let message = match asked {
            Ok(answer) => answer.message,
            Err(failure) => return Fetched::failed(&failure),
        };
        let unusable = Fetched::Failed {
            error: ExtendedError::NetworkError,
            local: false,
        };
        if message.len() < HEADER {
            return unusable;
        }
        let flags = u16_at(&message, 2);
        // Servers that cannot read a query answer it without the question: put it back.
        let message = match u16_at(&message, 4) {
            0 => build::empty(question, flags & flag::RCODE),
            _ => message,
        };
        match Answer::read(message) {
            Ok(answer) => Fetched::Answer {
                answer: Arc::new(answer),
                authoritative: flags & flag::AA != 0,
            },
            Err(error) => {
                tracing::debug!(%error, "an upstream's answer is malformed");
                unusable
            }
        }
    }

    /// The response for one of those who waited.
    fn response(self) -> Response {
        match self {
            Fetched::Answer {
                answer,
                authoritative,
            } => Response::answer(answer, Origin::Upstream, authoritative),
            Fetched::Failed { error, local } => Response {
                // RFC 9520 section 2: resolution failed, or was not tried.
                store: !local,
                ..Response::error(rcode::SERVFAIL, error)
            },
        }
    }
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
