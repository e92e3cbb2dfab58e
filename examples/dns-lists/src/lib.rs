//! Refuses queries by means of DNS-based lists: of the name asked for, or of addresses in the answer.
//!
//! What a list says depends only on the name, so the host remembers the verdict for the TTL of the list's
//! answer.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Answers, Ask, ExtendedError, Filter, Found, Invalid, Manifest, Name, NameBuf, Query, Rcode,
    Response, ResponseVerdict, Setup, Type, Verdict, count_with,
};

/// The maximum number of lookups per ask.
const AT_ONCE: usize = 16;

/// The filter.
pub struct DnsLists {
    names: Vec<NameBuf>,
    addresses: Vec<NameBuf>,
    time: Duration,
}

impl Filter for DnsLists {
    fn configure(setup: Setup<'_>) -> Result<(DnsLists, Manifest), Invalid> {
        let config = setup.config();
        let lists = |node| -> Result<Vec<NameBuf>, Invalid> {
            config
                .node(node)?
                .map_or(Ok(Vec::new()), |node| node.arguments(0))
        };
        let filter = DnsLists {
            names: lists("names")?,
            addresses: lists("addresses")?,
            time: config.setting_or("time", Duration::from_millis(500)),
        };
        let both = filter.names.len().max(filter.addresses.len());
        if both == 0 || both > AT_ONCE {
            let mistake = config.mistake(format!("{both} lists; 1 to {AT_ONCE} of each kind can be asked"));
            return Err(mistake.help("such as: names \"dbl.example\"").report());
        }
        let mut manifest = Manifest::new().asks();
        if !filter.names.is_empty() {
            manifest = manifest.queries();
        }
        if !filter.addresses.is_empty() {
            manifest = manifest.responses().messages().types([Type::A, Type::AAAA]);
        }
        Ok((filter, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        if self.is_of_a_list(query.name()) {
            return Verdict::pass();
        }
        let lists = self.names.iter();
        let listed = lists.map(|list| NameBuf::join(query.name().labels(), list));
        // A name too long to be on a list is not listed.
        ask(listed.flatten(), self.time).map_or(Verdict::pass(), Verdict::ask)
    }

    fn answers(&mut self, _: &Query<'_>, answers: &Answers<'_>) -> Verdict {
        match listed(answers) {
            Some(found) => {
                count_with("listed", &[("by", "name")], 1);
                Verdict::refuse(Rcode::NXDOMAIN)
                    .error(reason())
                    .remember(hold(&found))
            }
            // If a list does not answer, the query passes, and the list is asked again next time.
            None if answers.iter().any(|found| !found.answered()) => Verdict::pass(),
            None => Verdict::pass().remember(Duration::from_secs(60)),
        }
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        if response.answer_count() == 0 || self.is_of_a_list(response.query().name()) {
            return ResponseVerdict::pass();
        }
        // A message that cannot be parsed may hide an address.
        let Ok(message) = response.read() else {
            return ResponseVerdict::replace(Answer::new(Rcode::SERVFAIL));
        };
        let lists = &self.addresses;
        let listed = message.addresses().flat_map(|address| {
            let lists = lists.iter();
            lists.map(move |list| reversed(address, list))
        });
        ask(listed.flatten(), self.time).map_or(ResponseVerdict::pass(), ResponseVerdict::ask)
    }

    fn response_answers(&mut self, _: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        match listed(answers) {
            Some(_) => {
                count_with("listed", &[("by", "address")], 1);
                ResponseVerdict::replace(Answer::new(Rcode::NXDOMAIN).error(reason()))
            }
            None => ResponseVerdict::pass(),
        }
    }
}

impl DnsLists {
    /// Whether a name is on one of the lists' zones: this filter's own lookups pass through it again.
    fn is_of_a_list(&self, name: Name<'_>) -> bool {
        let mut lists = self.names.iter().chain(&self.addresses);
        lists.any(|list| name.is_at_or_below(list))
    }
}

/// As many lookups as one ask can hold; `None` if there are none.
fn ask(listed: impl Iterator<Item = NameBuf>, time: Duration) -> Option<Ask> {
    let mut listed = listed.take(AT_ONCE).peekable();
    listed.peek()?;
    let ask = Ask::new().time(time);
    Some(listed.fold(ask, |ask, name| ask.lookup(&name, Type::A)))
}

/// The name of an address on a list (RFC 5782 section 2.1).
fn reversed(address: IpAddr, list: &NameBuf) -> Option<NameBuf> {
    let reverse = NameBuf::reverse(address);
    let labels = reverse.as_name().labels();
    let labels = labels.take_while(|label| !matches!(*label, b"in-addr" | b"ip6"));
    NameBuf::join(labels, list).ok()
}

/// The answer of a list that has an entry: an address in 127.0.0.0/8 (RFC 5782 section 2.1), except for those
/// with which lists refuse to answer.
fn listed<'a>(answers: &Answers<'a>) -> Option<Found<'a>> {
    let says = |address| match address {
        IpAddr::V4(address) => address.is_loopback() && address.octets()[1] != 255,
        IpAddr::V6(_) => false,
    };
    answers
        .iter()
        .find(|found| found.read().is_ok_and(|message| message.addresses().any(says)))
}

/// The TTL of the list's answer, at most an hour.
fn hold(found: &Found<'_>) -> Duration {
    Duration::from_secs(found.ttl().min(3600).into())
}

fn reason() -> ExtendedError {
    ExtendedError::BLOCKED.text("on a list in DNS")
}

dnsweir_filter::export!(DnsLists);
