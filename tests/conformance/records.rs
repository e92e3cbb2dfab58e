//! Record data that a forwarder must pass unchanged: RFC 3597, 9460, 5625 section 4.3.

use crate::harness::message::decode_hex;
use crate::harness::{Proxy, Record, Reply, Upstream, forward_once};

/// Unknown types, and data that looks like compressed names, are the same byte by byte.
#[test]
fn data_of_any_type_passes_unchanged() {
    let lines = [
        // In unknown data, an apparent pointer is not one (RFC 3597 section 4).
        "u.example. 300 TYPE65400 \\# 6 c00cc00c0003",
        "empty.example. 300 TYPE65401 \\# 0",
        // HTTPS with an unknown key (RFC 9460 section 2.2).
        "h.example. 300 HTTPS \\# 11 0001 00 ffee 0004 01020304",
        "h2.example. 300 TYPE64 \\# 13 0000 03 777777 07 6578616d 70 6c65",
        "srv.example. 300 SRV 1 2 5060 sip.example.",
        "mx.example. 300 MX 10 mail.example.",
        "txt.example. 300 TXT \"one\" \"\" \"three\"",
        "loc.example. 300 TYPE29 \\# 16 00000000000000000000000000000000",
    ];
    let upstream = Upstream::zone(&lines);
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    for line in lines {
        let record = Record::parse(line);
        let qtype = crate::harness::message::type_name(record.rtype);
        for _ in 0..2 {
            let answer = proxy.query(&record.name, &qtype);
            assert_eq!(answer.answers.len(), 1, "{line}: {answer}");
            assert_eq!(answer.answers[0].data, record.data, "{line}");
        }
        assert_eq!(upstream.count(&record.name), 1, "{line}");
    }
}

/// The upstream may compress names in the data of RFC 1035's types; they stay the same after the cache has
/// changed what precedes them.
#[test]
fn compressed_answers_survive_the_cache() {
    let upstream = Upstream::start(|asked| {
        let mut octets = asked.message_with(&[]).encode();
        if asked.message.edns.is_some() {
            // The OPT record comes last; without it the message is a header and a question.
            octets.truncate(octets.len() - 11);
            octets[10..12].copy_from_slice(&[0, 0]);
        }
        octets[6..8].copy_from_slice(&[0, 2]);
        // `www.example.` in the question at 12: CNAME to `host` + pointer to `example.` at 16.
        octets.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 1, 44, 0, 7, 4]);
        let target = octets.len() - 1;
        octets.extend(b"host");
        octets.extend([0xc0, 16]);
        octets.extend([
            0xc0 | (target >> 8) as u8,
            target as u8,
            0,
            1,
            0,
            1,
            0,
            0,
            1,
            44,
            0,
            4,
            192,
            0,
            2,
            1,
        ]);
        Reply::Octets(vec![octets])
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    for name in ["www.example", "WWW.Example", "www.EXAMPLE"] {
        let answers: Vec<String> = proxy
            .query(name, "A")
            .answers()
            .iter()
            .map(|line| line.to_ascii_lowercase())
            .collect();
        assert_eq!(
            answers,
            ["www.example. cname host.example.", "host.example. a 192.0.2.1"]
        );
    }
    assert_eq!(upstream.count("www.example"), 1);
}

/// An upstream's pointers may lead anywhere: into themselves, forward, past the end.
#[test]
fn hostile_compression_is_no_answer() {
    for pointer in [[0xc0, 0xff], [0xc0, 29], [0xff, 0xff]] {
        let upstream = Upstream::start(move |asked| {
            let mut octets = asked.message_with(&[]).encode();
            octets.truncate(29);
            octets[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
            octets.extend(pointer);
            octets.extend([0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 1]);
            Reply::Octets(vec![octets])
        });
        let mut proxy = Proxy::start(&format!(
            "zone \".\" {{ cache; forward \"{}\" {{ timeout \"200ms\"; deadline \"500ms\" }} }}",
            upstream.address
        ));
        assert_eq!(proxy.query("www.example", "A").rcode(), "SERVFAIL", "{pointer:?}");
        assert!(proxy.process.running());
    }
}

/// A name in record data that extends beyond its data, over the next record, and ends in the OPT record,
/// which is not relayed: the answer would end in the middle of a name.
#[test]
fn a_name_that_ends_in_what_is_cut_off_is_no_answer() {
    let upstream = Upstream::start(|asked| {
        let id = asked.message.id.to_be_bytes();
        let rest = decode_hex(
            "8180 0001 0002 0000 0001  03777777 0474657374 00 0001 0001 \
             c00c 0005 0001 0000003c 0004 0e61c010  c026 0001 0001 0000001e 0004 7f000001 \
             00 0029 04d0 00000000 0000",
        );
        Reply::Octets(vec![[id.to_vec(), rest].concat()])
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; forward \"{}\" {{ timeout \"200ms\"; deadline \"500ms\" }} }}",
        upstream.address
    ));
    for _ in 0..2 {
        // In any case, the reply is well formed.
        assert_eq!(proxy.query_edns("www.test", "A").rcode(), "SERVFAIL");
    }
}

/// Many records in all sections are returned.
#[test]
fn every_section_passes() {
    let upstream = Upstream::start(|asked| {
        let lines: Vec<String> = (1..=20)
            .map(|number| format!("{} 300 A 192.0.2.{number}", asked.name()))
            .collect();
        let mut message = asked.message_with(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        message
            .authority
            .push(Record::parse("example. 300 NS ns.example."));
        message
            .additional
            .push(Record::parse("ns.example. 300 AAAA 2001:db8::53"));
        Reply::Message(message)
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    let query = crate::harness::Message::query("www.example", "A").edns(1232);
    for _ in 0..2 {
        let answer = proxy.ask(&query);
        assert_eq!(
            (
                answer.answers.len(),
                answer.authority.len(),
                answer.additional.len()
            ),
            (20, 1, 1),
            "{answer}"
        );
    }
}
