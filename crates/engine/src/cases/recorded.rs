//! Makes test cases from queries and responses of a server.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::read::TRANSPORTS;
use super::snapshot::{Snapshot, number, word};
use crate::config::ConfigValue;
use crate::dns::name::{Name, expand};
use crate::dns::query::Query;
use crate::dns::records::{Section, Walk, counts};
use crate::dns::text::{class_text, data_text, type_text};
use crate::dns::{
    CLASS_IN, HEADER, QUESTION_TAIL, RCODES, Transport, edns, flag, name, rcode_text, rtype, u16_at,
};

/// Documentation networks, each with 254 hosts (RFC 5737).
const NETWORKS: [[u8; 3]; 3] = [[192, 0, 2], [198, 51, 100], [203, 0, 113]];

/// The documentation network for IPv6 (RFC 3849).
const NETWORK_SIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);

/// Clients that get distinct addresses; later ones get the same addresses again.
const CLIENTS: usize = NETWORKS.len() * 254;

/// Replaces clients' addresses with documentation addresses, consistently.
#[derive(Debug, Default)]
pub struct Masks(HashMap<IpAddr, IpAddr>);

impl Masks {
    /// The documentation address for a client.
    pub fn mask(&mut self, client: IpAddr) -> IpAddr {
        let client = client.to_canonical();
        let count = self.0.len() % CLIENTS;
        if self.0.len() >= CLIENTS && !self.0.contains_key(&client) {
            self.0.clear();
        }
        *self.0.entry(client).or_insert_with(|| match client {
            IpAddr::V4(_) => {
                let [a, b, c] = NETWORKS[count / 254];
                Ipv4Addr::new(a, b, c, (count % 254) as u8 + 1).into()
            }
            IpAddr::V6(_) => Ipv6Addr::from_bits(NETWORK_SIX.to_bits() + count as u128 + 1).into(),
        })
    }
}

/// The question of a message, lowercased.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asked {
    name: Vec<u8>,
    qtype: u16,
    qclass: u16,
}

impl Asked {
    /// Parses a message; none: it has no question that filters see.
    pub fn of(message: &[u8]) -> Option<Asked> {
        let is_query = message.len() >= HEADER && u16_at(message, 2) & flag::OPCODE == 0;
        let end = name::skip_plain(message, HEADER).ok().filter(|_| is_query)?;
        if u16_at(message, 4) != 1 || message.len() < end + QUESTION_TAIL {
            return None;
        }
        let (qtype, qclass) = (u16_at(message, end), u16_at(message, end + 2));
        // Types that no record has (RFC 6895 section 3.1), except ANY.
        let is_meta = (128..=254).contains(&qtype) || qtype == rtype::OPT;
        let name = Name::lowercased(&message[HEADER..end]).as_bytes().to_vec();
        (!is_meta).then_some(Asked { name, qtype, qclass })
    }

    /// Its end in the message.
    fn end(&self) -> usize {
        HEADER + self.name.len() + QUESTION_TAIL
    }

    fn head(&self, kind: &str, client: IpAddr, transport: Transport) -> Snapshot {
        let mut case = Snapshot::default();
        let name = Name::lowercased(&self.name).to_string();
        case.add(kind, [word(name), word(type_text(self.qtype))]);
        if self.qclass != CLASS_IN {
            case.property("class", word(class_text(self.qclass)));
        }
        case.property("client", word(client.to_string()));
        let mut transports = TRANSPORTS.iter();
        if transport != Transport::Udp
            && let Some((text, _)) = transports.find(|(_, known)| *known == transport)
        {
            case.property("transport", word(*text));
        }
        case
    }

    /// The lines of a query case for this query.
    pub fn query_case(&self, query: &[u8], client: IpAddr, transport: Transport) -> Vec<String> {
        let mut case = self.head("query", client, transport);
        if let Some(edns) = Query::parse(query).ok().and_then(|query| query.edns) {
            case.property("edns", number(edns.udp_size.into()));
            if edns.flags & edns::DO != 0 {
                case.property("dnssec", ConfigValue::Boolean(true));
            }
        }
        case.lines()
    }

    /// The lines of a response case with the records of this response; none if they are malformed, or the
    /// rcode has no name.
    pub fn response_case(
        &self,
        response: &[u8],
        client: IpAddr,
        transport: Transport,
    ) -> Option<Vec<String>> {
        let mut case = self.head("response", client, transport);
        let code = u16_at(response, 2) & flag::RCODE;
        RCODES.iter().find(|(_, known)| *known == code)?;
        if code != 0 {
            case.property("rcode", word(rcode_text(code)));
        }
        case.add_in(Some(0), "given", []);
        for record in Walk::new(response, self.end(), counts(response)) {
            let record = record.ok()?;
            if record.class != CLASS_IN || record.rtype == rtype::OPT {
                continue;
            }
            let mut owner = Name::ROOT;
            expand(response, record.start, &mut owner).ok()?;
            let section = match record.section {
                Section::Answer => "record",
                Section::Authority => "authority",
                Section::Additional => "additional",
            };
            let ttl = record.ttl.min(i32::MAX as u32);
            let data = data_text(response, record.rtype, record.data);
            let rtype = word(type_text(record.rtype));
            let arguments = [word(owner.to_string()), number(ttl.into()), rtype, word(data)];
            case.add_in(Some(1), section, arguments);
        }
        Some(case.lines())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::TestCases;
    use crate::config::Source;
    use crate::dns::build;

    fn client() -> IpAddr {
        "192.0.2.1".parse().unwrap()
    }

    /// A query for `WWW.example`, AAAA, with DO.
    fn query() -> Vec<u8> {
        let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        query.extend(b"\x03WWW\x07example\0\0\x1c\0\x01");
        query.extend([0, 0, 41, 4, 0xd0, 0, 0, 0x80, 0, 0, 0]);
        query
    }

    #[test]
    fn what_is_recorded_reads_back() {
        let query = query();
        let asked = Asked::of(&query).unwrap();
        let recorded = asked.query_case(&query, client(), Transport::Tls);
        let line = "query \"www.example.\" AAAA client=\"192.0.2.1\" transport=tls edns=1232 dnssec=#true";
        assert_eq!(
            recorded
                .join("\n")
                .replace("\"AAAA\"", "AAAA")
                .replace("\"tls\"", "tls"),
            line
        );

        let question = &query[HEADER..asked.end()];
        let mut response = build::empty(question, 3);
        let data = b"\x02ns\xc0\x10\x01h\xc0\x10\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05";
        build::push_record(&mut response, 8, b"\x07example\0", rtype::SOA, CLASS_IN, 60, data);
        build::push_record(&mut response, 10, b"\0", 65280, CLASS_IN, u32::MAX, b"\x01\xff");
        let mut lines = recorded;
        lines.extend(asked.response_case(&response, client(), Transport::Udp).unwrap());
        let text = lines.join("\n");
        for part in [
            "rcode=\"NXDOMAIN\"",
            "ns.example. h.example. 1 2 3 4 5",
            "2147483647",
            "TYPE65280",
            "\\\\# 2 01ff",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let cases = TestCases::parse(Source::new("recorded", text.as_str())).unwrap();
        assert_eq!(cases.cases.len(), 2);
    }

    #[test]
    fn what_filters_do_not_see_is_not_recorded() {
        let with = |at: usize, octet: u8| {
            let mut query = query();
            query[at] = octet;
            Asked::of(&query)
        };
        assert!(with(0, 1).is_some());
        // A NOTIFY, no question, two questions, a transfer.
        assert!(
            [with(2, 0x20), with(5, 0), with(5, 2), with(26, 252)]
                .iter()
                .all(Option::is_none)
        );
        for length in 0..29 {
            assert_eq!(Asked::of(&query()[..length]), None, "{length}");
        }
        let mut response = query();
        response[3] = 0x0c;
        let asked = Asked::of(&response).unwrap();
        assert_eq!(
            asked.response_case(&response, client(), Transport::Udp),
            None,
            "rcode 12"
        );
    }

    #[test]
    fn clients_are_told_apart_and_not_known() {
        let mut masks = Masks::default();
        let mut mask = |client: &str| masks.mask(client.parse().unwrap()).to_string();
        assert_eq!(mask("10.0.0.7"), "192.0.2.1");
        assert_eq!(mask("fd00::7"), "2001:db8::2");
        assert_eq!(mask("::ffff:10.0.0.7"), "192.0.2.1");
        for host in 0..5000_u32 {
            let masked: IpAddr = mask(&Ipv4Addr::from(0x0b00_0000 + host).to_string())
                .parse()
                .unwrap();
            let IpAddr::V4(four) = masked else {
                panic!("{masked}")
            };
            assert!(four.is_documentation(), "{masked}");
        }
        assert!(masks.0.len() <= CLIENTS);
    }
}
