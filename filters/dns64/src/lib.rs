//! Gives names with only IPv4 addresses IPv6 addresses that a NAT64 translates (RFC 6147).

mod address;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use dnsweir_filter::{
    Answer, Answers, Ask, Class, Filter, Found, Invalid, Manifest, Message, NameBuf, Prefix, Query, Rcode,
    Rdata, Record, Response, ResponseVerdict, Setup, Type, Verdict,
};

pub use address::Translation;

/// The maximum TTL if no SOA bounds how long AAAA records are missing (RFC 6147 section 5.1.7).
const UNSAID: Duration = Duration::from_secs(600);

/// The prefix of IPv4-mapped addresses (RFC 4291 section 2.5.5.2).
const MAPPED: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0);

/// The filter.
pub struct Dns64 {
    translation: Translation,
    /// AAAA records with these addresses are ignored (RFC 6147 section 5.1.4).
    exclude: Vec<Prefix>,
    /// Whether names with IPv6 addresses of their own are translated as well, contrary to RFC 6147
    /// section 5.1.1.
    always: bool,
    /// Whether clients that ask over IPv4, and so can reach IPv4 addresses, are left out.
    only_ipv6: bool,
}

impl Filter for Dns64 {
    fn configure(setup: Setup<'_>) -> Result<(Dns64, Manifest), Invalid> {
        let config = setup.config();
        let translation = config.setting_or("prefix", Translation::WELL_KNOWN);
        let exclude = match config.node("exclude")? {
            None => vec![Prefix::of(MAPPED.into(), 96)],
            Some(node) => node.arguments(0)?,
        };
        let always = config.node("always")?.is_some();
        let only_ipv6 = config.node("only-ipv6-clients")?.is_some();
        let manifest = Manifest::new().queries().responses().messages().asks();
        let filter = Dns64 {
            translation,
            exclude,
            always,
            only_ipv6,
        };
        Ok((filter, manifest.types([Type::AAAA, Type::PTR])))
    }

    /// Redirects a PTR query for a translated address to the name of the IPv4 address (RFC 6147
    /// section 5.3.1).
    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let is_ptr = query.qtype() == Type::PTR;
        match self.translation.extract(query.name()).filter(|_| is_ptr) {
            Some(address) => Verdict::alias(NameBuf::reverse(IpAddr::V4(address))),
            None => Verdict::pass(),
        }
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        let query = response.query();
        // A client that validates itself would find the answer forged (section 5.5).
        let validates = query.dnssec_ok() && query.checking_disabled();
        let here = query.qtype() == Type::AAAA && query.class() == Class::IN;
        // A name that does not exist has no A records either; any other error counts as no AAAA records
        // (section 5.1.2).
        let left_out = self.only_ipv6 && query.client().is_ipv4();
        if !here || validates || left_out || response.rcode() == Rcode::NXDOMAIN {
            return ResponseVerdict::pass();
        }
        match response.read() {
            Ok(message) if self.always || message.addresses().all(|address| self.excludes(address)) => {
                ResponseVerdict::ask(Ask::new().lookup(query.name(), Type::A).below())
            }
            Ok(message) => self.strip(&message),
            Err(_) => ResponseVerdict::pass(),
        }
    }

    fn response_answers(&mut self, response: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        match (response.read(), answers.get(0).filter(Found::answered)) {
            (Ok(message), Some(found)) => match self.translated(&message, &found) {
                Some(answer) => ResponseVerdict::replace(answer),
                None => self.strip(&message),
            },
            // It is unknown whether there are addresses.
            _ => ResponseVerdict::replace(Answer::new(Rcode::SERVFAIL)),
        }
    }
}

impl Dns64 {
    fn excludes(&self, address: IpAddr) -> bool {
        self.exclude.iter().any(|prefix| prefix.contains(address))
    }

    /// Removes the excluded addresses from an answer (section 5.1.4).
    fn strip(&self, message: &Message) -> ResponseVerdict {
        let excluded = |record: &Record| record.address().is_some_and(|address| self.excludes(address));
        let edit = message.without(excluded);
        edit.map_or(ResponseVerdict::pass(), ResponseVerdict::edit)
    }

    /// Turns an A answer into an AAAA answer, with the CNAME and DNAME records that lead to it (section 5.4).
    /// Returns `None` if it has no address that may be translated.
    fn translated(&self, empty: &Message, found: &Found<'_>) -> Option<Answer> {
        let message = found.read().ok()?;
        let soa = (empty.authority().iter()).find(|record| record.rtype() == Type::SOA);
        let most = soa.map_or(UNSAID, Record::ttl);
        let mut answer = Answer::noerror();
        let mut any = false;
        for record in message.answers() {
            let rdata = match (record.rtype(), record.address()) {
                (_, Some(IpAddr::V4(address))) => self.translation.embed(address).map(Rdata::Aaaa),
                (Type::CNAME | Type::DNAME, _) => Some(record.rdata()),
                _ => None,
            };
            let Some(rdata) = rdata else { continue };
            any |= matches!(rdata, Rdata::Aaaa(_));
            answer = answer.record(record.name(), record.ttl().min(most), rdata);
        }
        any.then_some(answer)
    }
}

dnsweir_filter::export!(Dns64);
