//! What a filter says of a query.

use std::net::IpAddr;
use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Answer, Ask, Class, ExtendedError, NameBuf, NamedSource, Prefix, Rcode, ResponseEdit, Type};

/// What happens to a query: a decision, and what goes with it.
///
/// ```
/// use std::time::Duration;
/// use dnsweir_filter::{Rcode, ResponseEdit, Verdict};
///
/// let blocked = Verdict::refuse(Rcode::NXDOMAIN).remember(Duration::from_secs(3600));
/// let short = Verdict::pass().edit(ResponseEdit::new().ttl_max(Duration::from_secs(10)));
/// assert_ne!(blocked, short);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Verdict {
    decision: raw::Decision,
    remember: u32,
    edit: Option<raw::ResponseEdit>,
    skip_response: bool,
    delay: u16,
    route: Option<raw::Route>,
}

impl Verdict {
    #[inline]
    fn new(decision: raw::Decision) -> Verdict {
        Verdict {
            decision,
            remember: 0,
            edit: None,
            skip_response: false,
            delay: 0,
            route: None,
        }
    }

    /// On to the next stage.
    #[inline]
    pub fn pass() -> Verdict {
        Verdict::new(raw::Decision::Pass)
    }

    /// On to the next stage under another name, type or class.
    #[inline]
    pub fn rewrite(rewrite: Rewrite) -> Verdict {
        Verdict::new(raw::Decision::Rewrite(rewrite.0))
    }

    /// Answered here; nothing below this filter sees the query.
    #[inline]
    pub fn answer(answer: Answer) -> Verdict {
        Verdict::new(raw::Decision::Answer(answer.into_raw()))
    }

    /// The client gets a CNAME to this name, and what that name resolves to. It is asked from the
    /// top, through the zone that owns it.
    pub fn alias(target: NameBuf) -> Verdict {
        Verdict::first_of([target])
    }

    /// The same with the first of these names that exists, as a resolver with a search list does.
    /// Every answer but NXDOMAIN ends the search; if there is none, the client gets that of the last
    /// name. The question's own name may be among them.
    ///
    /// What the proxy asks for them comes by this filter again if the names are in its zone, as
    /// [`Transport::Internal`](crate::Transport::Internal): pass it. And do not have the verdict
    /// [remembered](Verdict::remember) if the question is among the names: the host's memory does not know
    /// who asks. At least 1 name, at most 33.
    pub fn first_of(targets: impl IntoIterator<Item = NameBuf>) -> Verdict {
        let targets = targets.into_iter().map(NameBuf::into_wire).collect();
        Verdict::new(raw::Decision::Alias(targets))
    }

    /// An empty response with this code, marked as blocked (RFC 8914 section 4.16) unless an
    /// [error](Verdict::error) says something else.
    #[inline]
    pub fn refuse(rcode: Rcode) -> Verdict {
        Verdict::new(raw::Decision::Refuse(raw::Refusal {
            rcode: rcode.0,
            error: None,
        }))
    }

    /// Decided later, by [`Filter::answers`](crate::Filter::answers), which gets the answers to these
    /// lookups. The manifest has to say that the filter [asks](crate::Manifest::asks).
    ///
    /// If this is [remembered](Verdict::remember), everybody's query leads to the same lookups at once.
    /// What is decided then may be remembered as well, and holds in its place.
    pub fn ask(ask: Ask) -> Verdict {
        Verdict::new(raw::Decision::Ask(ask.into_raw()))
    }

    /// No response at all.
    pub fn drop() -> Verdict {
        Verdict::drop_for("")
    }

    /// No response at all, for this reason: the metrics count by it, as `dnsweir_filter_drops_total{filter, reason}`.
    /// One or a few words; what is longer than 64 octets is cut.
    pub fn drop_for(reason: &str) -> Verdict {
        Verdict::new(raw::Decision::Drop(drop_reason(reason)))
    }

    /// Says why the response is as it is.
    pub fn error(mut self, error: ExtendedError) -> Verdict {
        match &mut self.decision {
            raw::Decision::Refuse(refusal) => refusal.error = Some(error.into_raw()),
            raw::Decision::Answer(answer) => answer.error = Some(error.into_raw()),
            _ => {
                let edit = self.edit.get_or_insert_with(|| ResponseEdit::new().into_raw());
                edit.error = Some(error.into_raw());
            }
        }
        self
    }

    /// The same verdict holds this long for every query with the same name, type, class and zone,
    /// whoever asks: the host does not call the filter for them. Only for verdicts that depend on
    /// nothing else. To the millisecond, at most 49 days.
    #[inline]
    pub fn remember(mut self, time: Duration) -> Verdict {
        self.remember = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Changes the response, too, without a call of the response phase.
    #[inline]
    pub fn edit(mut self, edit: ResponseEdit) -> Verdict {
        self.edit = Some(edit.into_raw());
        self
    }

    /// Asks this source in the place of the zone's, if the query [goes on](Verdict::pass). The cache keeps its answers apart.
    pub fn via(mut self, source: NamedSource) -> Verdict {
        self.route().source = Some(source.0);
        self
    }

    /// Tells upstreams that the client is in this network (RFC 7871), if the query [goes on](Verdict::pass): nobody is told
    /// otherwise. The cache keeps the answers for each network apart; below `cache`, they are not kept.
    pub fn client_subnet(mut self, subnet: Prefix) -> Verdict {
        let address = match subnet.address() {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        self.route().client_subnet = Some(raw::Subnet {
            high: (address >> 64) as u64,
            low: address as u64,
            length: subnet.length(),
        });
        self
    }

    fn route(&mut self) -> &mut raw::Route {
        self.route.get_or_insert(raw::Route {
            source: None,
            client_subnet: None,
        })
    }

    /// Leaves the response phase out for this query.
    #[inline]
    pub fn skip_response(mut self) -> Verdict {
        self.skip_response = true;
        self
    }

    /// Holds the response back for this long once there is one, to the millisecond: at most two seconds. What several
    /// filters say adds up. The query waits among others, and holds none of them up; where there is no room to wait, the
    /// response goes out at once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use dnsweir_filter::{Rcode, Verdict};
    ///
    /// let slow = Verdict::refuse(Rcode::REFUSED).delay(Duration::from_millis(500));
    /// assert_ne!(slow, Verdict::refuse(Rcode::REFUSED));
    /// ```
    pub fn delay(mut self, time: Duration) -> Verdict {
        self.delay = milliseconds(time);
        self
    }

    /// What it asks for, if it does.
    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn asks(&self) -> Option<&raw::Ask> {
        match &self.decision {
            raw::Decision::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// What the host is told; nothing if that is what it would do anyway.
    #[inline]
    pub(crate) fn into_raw(self, query: u32) -> Option<raw::Verdict> {
        let Verdict {
            decision,
            remember,
            edit,
            skip_response,
            delay,
            route,
        } = self;
        let passes = matches!(decision, raw::Decision::Pass);
        let silent =
            passes && remember == 0 && edit.is_none() && !skip_response && delay == 0 && route.is_none();
        // What does not go on goes nowhere.
        let route = route.filter(|_| passes || matches!(decision, raw::Decision::Rewrite(_)));
        (!silent).then_some(raw::Verdict {
            query,
            remember,
            decision,
            edit,
            skip_response,
            delay,
            route,
        })
    }
}

/// What a query becomes. Whatever is not said stays.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Rewrite(raw::Rewrite);

impl Rewrite {
    /// No change yet.
    pub fn new() -> Rewrite {
        Rewrite(raw::Rewrite {
            name: None,
            qtype: None,
            qclass: None,
            revert: true,
        })
    }

    /// Asks for this name.
    pub fn name(mut self, name: NameBuf) -> Rewrite {
        self.0.name = Some(name.into_wire());
        self
    }

    /// Asks for this type.
    pub fn qtype(mut self, qtype: Type) -> Rewrite {
        self.0.qtype = Some(qtype.0);
        self
    }

    /// Asks for this class.
    pub fn class(mut self, class: Class) -> Rewrite {
        self.0.qclass = Some(class.0);
        self
    }

    /// Leaves the new name in the answer. Without this, records that carry it get the client's
    /// name back, since resolvers drop answers to other names.
    pub fn keep_answers(mut self) -> Rewrite {
        self.0.revert = false;
        self
    }
}

impl Default for Rewrite {
    fn default() -> Rewrite {
        Rewrite::new()
    }
}

/// A delay as long as the host takes it.
pub(crate) fn milliseconds(delay: Duration) -> u16 {
    delay.as_millis().min(2000) as u16
}

/// A reason as long as the host takes it.
pub(crate) fn drop_reason(reason: &str) -> String {
    reason[..reason.floor_char_boundary(64)].to_owned()
}

/// TTLs are 31 bits wide: one with the top bit set counts as 0 (RFC 2181 section 8).
pub(crate) fn seconds(ttl: Duration) -> u32 {
    u32::try_from(ttl.as_secs())
        .unwrap_or(u32::MAX)
        .min(i32::MAX as u32)
}
