//! EDNS: RFC 6891, 8914, 9715, and truncation (RFC 2181 section 9).

use crate::harness::{Message, Proxy, Reply, Upstream, flags, forward_once};

/// An upstream with answers of every size: `N.example` has TXT records of about N bytes in all.
fn sizes() -> Upstream {
    Upstream::start(|asked| {
        let wanted: usize = asked
            .name()
            .split('.')
            .next()
            .and_then(|label| label.parse().ok())
            .unwrap_or(10);
        // Owner, type, class, TTL, length and a text of 80 bytes, uncompressed here.
        let record = format!("{} 300 TXT {}", asked.name(), "x".repeat(80));
        let lines = vec![record.as_str(); wanted.div_ceil(100)];
        let mut message = asked.message_with(&lines);
        for (number, record) in message.answers.iter_mut().enumerate() {
            // All different: equal records are one record.
            record.data[1] = b'0' + number as u8;
        }
        if !asked.tcp && message.encode().len() > 1232 {
            message.answers.clear();
            message.header |= flags::TC;
        }
        Reply::Message(message)
    })
}

fn proxy(upstream: &Upstream) -> Proxy {
    Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ))
}

/// The size of an answer over UDP, whether it was truncated, and its number of records.
fn over_udp(proxy: &Proxy, query: &Message) -> (usize, bool, usize) {
    let wire = crate::harness::exchange(proxy.address, &query.encode());
    let answer = Message::decode(&wire).expect("a whole message");
    (wire.len(), answer.has(flags::TC), answer.answers.len())
}

/// RFC 1035 section 4.2.1: 512 octets without EDNS. RFC 6891 section 6.2.3: the advertised size with it, and
/// less than 512 counts as 512.
#[test]
fn answers_fit_the_size_that_was_advertised() {
    let upstream = sizes();
    let proxy = proxy(&upstream);
    for (name, size, limit) in [
        ("300.example", None, 512),
        ("1000.example", None, 512),
        ("1000.example", Some(0), 512),
        ("1000.example", Some(100), 512),
        ("1000.example", Some(512), 512),
        ("1000.example", Some(800), 800),
        ("1000.example", Some(1232), 1232),
        ("3000.example", Some(1232), 1232),
        // Our own limit applies, too: larger datagrams may not arrive (RFC 9715 section 3.1).
        ("3000.example", Some(4096), 1232),
    ] {
        let query = Message::query(name, "TXT");
        let query = size.map_or(query.clone(), |size| query.edns(size));
        let whole = proxy.connect().ask(&query);
        // Once from upstream, once from the cache.
        for _ in 0..2 {
            let (length, cut, left) = over_udp(&proxy, &query);
            assert!(length <= limit, "{length} octets for {name} and {size:?}");
            assert_eq!(cut, left < whole.answers.len(), "{name} and {size:?}");
            // RFC 2181 section 9: as much as fits is included. One record takes at most 110 bytes.
            assert!(
                !cut || length + 110 > limit,
                "only {length} octets for {name} and {size:?}"
            );
        }
    }
}

/// `udp-size` may be larger for networks that carry more; a client still gets no more than it advertised.
#[test]
fn the_largest_datagram_is_configured() {
    let upstream = sizes();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ udp-size 4096 }}\nzone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    for (size, limit) in [(512, 512), (1400, 1400), (4096, 4096), (65_535, 4096)] {
        let (length, cut, _) = over_udp(&proxy, &Message::query("5000.example", "TXT").edns(size));
        assert!(
            cut && length <= limit && length + 110 > limit,
            "{length} octets for {size}"
        );
    }
    let (_, cut, left) = over_udp(&proxy, &Message::query("3000.example", "TXT").edns(4096));
    assert_eq!((cut, left), (false, 30));
}

/// Over TCP nothing is truncated, whatever size was advertised (RFC 6891 section 6.2.5 is about UDP).
#[test]
fn tcp_answers_are_whole() {
    let upstream = sizes();
    let proxy = proxy(&upstream);
    let answer = proxy
        .connect()
        .ask(&Message::query("5000.example", "TXT").edns(512));
    assert!(!answer.has(flags::TC));
    assert_eq!(answer.answers.len(), 50);
}

/// RFC 6891 section 6.1.1: OPT in the answer exactly if it was in the query. Section 6.2.3, RFC 9715
/// section 3.1: our own size is 1232.
#[test]
fn opt_answers_opt() {
    let upstream = sizes();
    let proxy = proxy(&upstream);
    for _ in 0..2 {
        assert_eq!(proxy.query("10.example", "TXT").edns, None);
        let edns = proxy
            .ask(&Message::query("10.example", "TXT").edns(4096))
            .edns
            .expect("OPT");
        assert_eq!(
            (edns.size, edns.version, edns.rcode_high, edns.flags),
            (1232, 0, 0, 0)
        );
        assert_eq!(edns.options, []);
    }
    // In errors as well.
    let refused = proxy.ask(&Message::query("10.example", "TXT").class(3).edns(4096));
    assert_eq!(refused.edns.map(|edns| edns.size), Some(1232));
}

/// RFC 6891 section 6.1.3: an unknown version gets BADVERS, with the version we support. The message must be
/// well formed even then.
#[test]
fn unknown_versions_are_badvers() {
    let upstream = sizes();
    let proxy = proxy(&upstream);
    for version in [1, 2, 255] {
        let mut query = Message::query("10.example", "TXT").edns(4096);
        query.edns.get_or_insert_default().version = version;
        let answer = proxy.ask(&query);
        assert_eq!(answer.rcode(), "BADVERS");
        assert_eq!(answer.edns.map(|edns| edns.version), Some(0));
        assert_eq!(answer.answers.len(), 0);
    }
    assert_eq!(upstream.count("10.example"), 0);
}

/// RFC 3225 section 3: DO is copied to the reply.
#[test]
fn dnssec_ok_comes_back() {
    let upstream = sizes();
    let proxy = proxy(&upstream);
    for _ in 0..2 {
        let with = proxy.ask(&Message::query("10.example", "TXT").dnssec_ok());
        assert_eq!(with.edns.map(|edns| edns.flags), Some(0x8000));
        let without = proxy.ask(&Message::query("10.example", "TXT").edns(1232));
        assert_eq!(without.edns.map(|edns| edns.flags), Some(0));
    }
}

/// RFC 8914 section 2: an extended error needs an OPT record, which needs one in the query. Every refusal has
/// one.
#[test]
fn extended_errors_say_why() {
    let upstream = sizes();
    let proxy = Proxy::start(&format!(
        "zone \"example\" {{ {} }}",
        forward_once(upstream.address)
    ));
    let answer = proxy.query_edns("www.elsewhere", "A");
    assert_eq!(answer.rcode(), "REFUSED");
    // 20: Not Authoritative, because no zone here has the name.
    assert_eq!(answer.extended_errors(), [20]);
    assert_eq!(proxy.query("www.elsewhere", "A").rcode(), "REFUSED");
}
