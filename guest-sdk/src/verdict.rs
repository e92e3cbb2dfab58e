//! What a filter decides about a query.

use std::net::IpAddr;
use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Answer, Ask, Class, ExtendedError, NameBuf, NamedSource, Prefix, Rcode, ResponseEdit, Type};

/// The decision about a query, and its options.
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

    /// Passes the query on to the next stage.
    #[inline]
    pub fn pass() -> Verdict {
        Verdict::new(raw::Decision::Pass)
    }

    /// Passes the query on to the next stage under another name, type or class.
    #[inline]
    pub fn rewrite(rewrite: Rewrite) -> Verdict {
        Verdict::new(raw::Decision::Rewrite(rewrite.0))
    }

    /// Answers the query; nothing below this filter sees it.
    #[inline]
    pub fn answer(answer: Answer) -> Verdict {
        Verdict::new(raw::Decision::Answer(answer.into_raw()))
    }

    /// Answers with a CNAME to this name, and with what that name resolves to. The name is resolved from the
    /// top, through the zone that owns it.
    pub fn alias(target: NameBuf) -> Verdict {
        Verdict::first_of([target])
    }

    /// Like [`alias`](Verdict::alias), to the first of these names that exists, as a resolver with a search
    /// list does. Every answer but NXDOMAIN ends the search; if no name exists, the client gets the answer
    /// for the last one. The question's own name may be among them.
    ///
    /// The proxy's queries for these names pass through this filter again if they are in its zone, with
    /// [`Transport::Internal`](crate::Transport::Internal): let them pass. And do not let the host
    /// [remember](Verdict::remember) the verdict if the question's name is among the names: the remembered
    /// verdict applies to the proxy's own queries, too. 1 to 33 names.
    pub fn first_of(targets: impl IntoIterator<Item = NameBuf>) -> Verdict {
        let targets = targets.into_iter().map(NameBuf::into_wire).collect();
        Verdict::new(raw::Decision::Alias(targets))
    }

    /// Answers with an empty response with this rcode, marked as Blocked (RFC 8914 section 4.16) unless
    /// [`error`](Verdict::error) sets another code.
    #[inline]
    pub fn refuse(rcode: Rcode) -> Verdict {
        Verdict::new(raw::Decision::Refuse(raw::Refusal {
            rcode: rcode.0,
            error: None,
        }))
    }

    /// Asks first: the host makes these lookups, and passes their answers to
    /// [`Filter::answers`](crate::Filter::answers), which decides. Needs [`asks`](crate::Manifest::asks) in
    /// the manifest.
    ///
    /// If this verdict is [remembered](Verdict::remember), every matching query starts the same lookups
    /// without a call of the filter. The verdict that follows may be remembered as well, and then replaces
    /// it.
    pub fn ask(ask: Ask) -> Verdict {
        Verdict::new(raw::Decision::Ask(ask.into_raw()))
    }

    /// Drops the query: the client gets no response.
    pub fn drop() -> Verdict {
        Verdict::drop_for("")
    }

    /// Drops the query for this reason, a label of the metric `dnsweir_filter_drops_total{filter, reason}`.
    /// Use one or a few words; the text is cut after 64 bytes.
    pub fn drop_for(reason: &str) -> Verdict {
        Verdict::new(raw::Decision::Drop(drop_reason(reason)))
    }

    /// Adds an extended DNS error to the response.
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

    /// Lets the host apply this verdict to every query with the same name, type, class and zone, from
    /// any client, for this long, without calling the filter. Only for verdicts that depend on nothing else.
    /// Resolution 1 ms, at most 49 days.
    #[inline]
    pub fn remember(mut self, time: Duration) -> Verdict {
        self.remember = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Edits the response as well, without a call of the response phase.
    #[inline]
    pub fn edit(mut self, edit: ResponseEdit) -> Verdict {
        self.edit = Some(edit.into_raw());
        self
    }

    /// Sends the query to this source instead of the zone's, if it [goes on](Verdict::pass). The cache keeps
    /// the answers of each source separately.
    pub fn via(mut self, source: NamedSource) -> Verdict {
        self.route().source = Some(source.0);
        self
    }

    /// Sends this client subnet to upstreams (RFC 7871), if the query [goes on](Verdict::pass). By default
    /// none is sent. The cache keeps the answers of each subnet separately; if the filter is below `cache`,
    /// they are not cached.
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

    /// Skips the response phase for this query.
    #[inline]
    pub fn skip_response(mut self) -> Verdict {
        self.skip_response = true;
        self
    }

    /// Delays the response by this long, at most two seconds (resolution 1 ms). Delays of several filters add
    /// up. A delayed query holds up no other; if too many are waiting, the response is sent immediately.
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

    /// The lookups, if the verdict asks for some.
    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn asks(&self) -> Option<&raw::Ask> {
        match &self.decision {
            raw::Decision::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// The verdict for the host; none if it is what the host does by default.
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
        // Only a query that goes on has a route.
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

/// Changes to a query. Everything else stays the same.
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

    /// Changes the name.
    pub fn name(mut self, name: NameBuf) -> Rewrite {
        self.0.name = Some(name.into_wire());
        self
    }

    /// Changes the type.
    pub fn qtype(mut self, qtype: Type) -> Rewrite {
        self.0.qtype = Some(qtype.0);
        self
    }

    /// Changes the class.
    pub fn class(mut self, class: Class) -> Rewrite {
        self.0.qclass = Some(class.0);
        self
    }

    /// Keeps the new name in the answer. By default, records with the new name get the client's name back,
    /// since resolvers drop answers to other names.
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

/// A delay, limited to what the host accepts.
pub(crate) fn milliseconds(delay: Duration) -> u16 {
    delay.as_millis().min(2000) as u16
}

/// A reason, limited to what the host accepts.
pub(crate) fn drop_reason(reason: &str) -> String {
    reason[..reason.floor_char_boundary(64)].to_owned()
}

/// A TTL in seconds, limited to 31 bits: for the host, one with the top bit set is 0 (RFC 2181 section 8).
pub(crate) fn seconds(ttl: Duration) -> u32 {
    u32::try_from(ttl.as_secs())
        .unwrap_or(u32::MAX)
        .min(i32::MAX as u32)
}
