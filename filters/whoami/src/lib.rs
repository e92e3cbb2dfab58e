//! Answers clients with their own address, port and transport.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{Answer, Filter, Invalid, Manifest, NameBuf, Query, Rdata, Setup, Transport, Verdict};

/// The TTL: an answer for one client must not be cached.
const AT_ONCE: Duration = Duration::ZERO;

/// The filter.
pub struct Whoami;

impl Filter for Whoami {
    fn configure(_: Setup<'_>) -> Result<(Whoami, Manifest), Invalid> {
        Ok((Whoami, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let proto = match query.transport() {
            Transport::Udp => "_udp",
            _ => "_tcp",
        };
        let address = match query.client() {
            IpAddr::V4(address) => Rdata::A(address),
            IpAddr::V6(address) => Rdata::Aaaa(address),
        };
        let mut answer = Answer::noerror().authoritative();
        answer = answer.additional(query.name(), AT_ONCE, address);
        // A name of maximum length has no room for another label.
        if let Ok(owner) = query.name().child(proto) {
            let port = Rdata::Srv {
                priority: 0,
                weight: 0,
                port: query.client_port(),
                target: NameBuf::root(),
            };
            answer = answer.additional(&owner, AT_ONCE, port);
        }
        Verdict::answer(answer)
    }
}

dnsweir_filter::export!(Whoami);
