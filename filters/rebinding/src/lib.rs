//! Removes private addresses from answers for public names.
//!
//! An attacker can point a name to 192.168.0.1, and so make a browser send a page's requests to a device at
//! home, as if the page came from that device: DNS rebinding. Public names have no such addresses, except
//! those that the configuration allows.

use std::net::IpAddr;

use dnsweir_filter::{
    Answer, ExtendedError, Filter, Invalid, Manifest, NameBuf, NameMap, Prefix, Rcode, Record, Response,
    ResponseVerdict, Setup, Type, count,
};

/// Networks that are not globally reachable, from RFC 6890 and its registry.
const PRIVATE: [&str; 11] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::/127",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
];

/// The first 96 bits of IPv6 addresses that a NAT64 translates to IPv4 (RFC 6052 section 2.1).
const TRANSLATED: u128 = 0x0064_ff9b_0000_0000_0000_0000;

/// Filtered (RFC 8914 section 4.18), since the client did not ask for it.
const FILTERED: u16 = 17;

/// The filter.
pub struct Rebinding {
    private: Vec<Prefix>,
    allowed: NameMap<()>,
}

impl Filter for Rebinding {
    fn configure(setup: Setup<'_>) -> Result<(Rebinding, Manifest), Invalid> {
        let config = setup.config();
        let mut private: Vec<Prefix> = PRIVATE.iter().filter_map(|text| text.parse().ok()).collect();
        for node in config.nodes(&["private"]) {
            private.extend(node.arguments::<Prefix>(0).unwrap_or_default());
        }
        let mut allowed = NameMap::new();
        for node in config.nodes(&["allow"]) {
            for name in node.arguments::<NameBuf>(0).unwrap_or_default() {
                allowed.insert(name, ());
            }
        }
        let types = [Type::A, Type::AAAA, Type::SVCB, Type::HTTPS, Type::ANY];
        let manifest = Manifest::new().responses().messages().types(types);
        Ok((Rebinding { private, allowed }, manifest))
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        let name = response.query().name();
        if response.answer_count() == 0 || self.allowed.suffixes(name).next().is_some() {
            return ResponseVerdict::pass();
        }
        // A message that cannot be parsed may hide an address.
        let Ok(message) = response.read() else {
            return ResponseVerdict::replace(Answer::new(Rcode::SERVFAIL));
        };
        match message.without(|record| self.is_private(record)) {
            None => ResponseVerdict::pass(),
            Some(edit) => {
                count("stripped", 1);
                ResponseVerdict::edit(edit.error(ExtendedError::new(FILTERED).text("private address")))
            }
        }
    }
}

impl Rebinding {
    /// Whether a record has a private address, or hints at one (RFC 9460 section 7.3).
    fn is_private(&self, record: &Record) -> bool {
        let mut addresses = record.address().into_iter().chain(record.hints());
        addresses.any(|address| self.holds(address))
    }

    fn holds(&self, address: IpAddr) -> bool {
        let address = match address.to_canonical() {
            IpAddr::V6(v6) if v6.to_bits() >> 32 == TRANSLATED => IpAddr::V4((v6.to_bits() as u32).into()),
            address => address,
        };
        self.private.iter().any(|prefix| prefix.contains(address))
    }
}

dnsweir_filter::export!(Rebinding);
