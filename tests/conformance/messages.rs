//! Queries of every form, and the replies: RFC 1035, 2136, 5625, 5936, 8490, 8906, 9619.

use crate::harness::message::{Edns, decode_hex, encode_name};
use crate::harness::{
    Message, Proxy, Record, Reply, Stream, Upstream, client, flags, forward_once, unanswered,
};

/// A proxy whose upstream answers everything, so that errors are the proxy's own.
fn proxy() -> (Proxy, Upstream) {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    (proxy, upstream)
}

/// A hand-made message: ID 4242, the second half of the header, the counts, and the body.
fn octets(header: u16, counts: [u16; 4], body: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x10, 0x92];
    octets.extend(header.to_be_bytes());
    counts.iter().for_each(|count| octets.extend(count.to_be_bytes()));
    octets.extend(body);
    octets
}

/// `www.example. A IN`
fn question() -> Vec<u8> {
    [encode_name("www.example."), vec![0, 1, 0, 1]].concat()
}

/// Every malformed message gets this rcode with its ID, over UDP and TCP, and the proxy keeps running.
#[test]
fn malformed_messages_are_answered_with_the_right_rcode() {
    let (proxy, upstream) = proxy();
    let question = question();
    let mut long_name: Vec<u8> = std::iter::repeat_n([&[63][..], &[b'a'; 63]].concat(), 4)
        .flatten()
        .collect();
    long_name.extend([0, 0, 1, 0, 1]);
    let opt = Edns {
        size: 1232,
        ..Edns::default()
    };
    let record = |record: Record| {
        let message = Message {
            additional: vec![record],
            ..Message::default()
        };
        message.encode()[12..].to_vec()
    };
    let opt_octets = record(opt.record());
    let owned_opt = record(Record {
        name: "x.".to_owned(),
        ..opt.record()
    });
    let overrun_opt = record(Record {
        data: vec![0, 10, 0, 8],
        ..opt.record()
    });
    let short_opt = record(Record {
        data: vec![0, 10, 0],
        ..opt.record()
    });
    let with = |more: &[u8]| [&question[..], more].concat();

    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        // RFC 9619 section 4: QDCOUNT is 1 in a query, or FORMERR.
        ("no question", octets(flags::RD, [0, 0, 0, 0], &[]), "FORMERR"),
        (
            "two questions",
            octets(flags::RD, [2, 0, 0, 0], &with(&question)),
            "FORMERR",
        ),
        (
            "two questions, one there",
            octets(flags::RD, [2, 0, 0, 0], &question),
            "FORMERR",
        ),
        (
            "65535 questions",
            octets(flags::RD, [u16::MAX, 0, 0, 0], &question),
            "FORMERR",
        ),
        (
            "a question that is not there",
            octets(flags::RD, [1, 0, 0, 0], &[]),
            "FORMERR",
        ),
        // RFC 1035 sections 4.1.2 and 4.1.4.
        (
            "a name that does not end",
            octets(flags::RD, [1, 0, 0, 0], b"\x03www\x07exam"),
            "FORMERR",
        ),
        (
            "no type",
            octets(flags::RD, [1, 0, 0, 0], b"\x03www\0"),
            "FORMERR",
        ),
        (
            "half a class",
            octets(flags::RD, [1, 0, 0, 0], b"\x03www\0\0\x01\0"),
            "FORMERR",
        ),
        (
            "a pointer to itself",
            octets(flags::RD, [1, 0, 0, 0], b"\xc0\x0c\0\x01\0\x01"),
            "FORMERR",
        ),
        (
            "a pointer to the header",
            octets(flags::RD, [1, 0, 0, 0], b"\x03www\xc0\x00\0\x01\0\x01"),
            "FORMERR",
        ),
        (
            "a pointer past the end",
            octets(flags::RD, [1, 0, 0, 0], b"\xff\xff\0\x01\0\x01"),
            "FORMERR",
        ),
        // RFC 1035 section 2.3.4, RFC 6891 section 5: label types 01 and 10 are not in use.
        (
            "a label of 64 octets",
            octets(
                flags::RD,
                [1, 0, 0, 0],
                &[&[64][..], &[b'a'; 64], b"\0\0\x01\0\x01"].concat(),
            ),
            "FORMERR",
        ),
        (
            "label type 10",
            octets(
                flags::RD,
                [1, 0, 0, 0],
                &[&[0x80][..], &[b'a'; 64], b"\0\0\x01\0\x01"].concat(),
            ),
            "FORMERR",
        ),
        (
            "a name of 257 octets",
            octets(flags::RD, [1, 0, 0, 0], &long_name),
            "FORMERR",
        ),
        // Counts that exceed the content.
        (
            "an answer that is not there",
            octets(flags::RD, [1, 1, 0, 0], &question),
            "FORMERR",
        ),
        (
            "an additional record that is not there",
            octets(flags::RD, [1, 0, 0, 1], &question),
            "FORMERR",
        ),
        (
            "a record cut off",
            octets(flags::RD, [1, 0, 0, 1], &with(&opt_octets[..7])),
            "FORMERR",
        ),
        (
            "data longer than the message",
            octets(flags::RD, [1, 0, 0, 1], &with(b"\0\0\x01\0\x01\0\0\0\0\xff\xff")),
            "FORMERR",
        ),
        // RFC 6891 section 6.1.1.
        (
            "two OPT records",
            octets(
                flags::RD,
                [1, 0, 0, 2],
                &with(&[opt_octets.clone(), opt_octets.clone()].concat()),
            ),
            "FORMERR",
        ),
        (
            "OPT with an owner",
            octets(flags::RD, [1, 0, 0, 1], &with(&owned_opt)),
            "FORMERR",
        ),
        (
            "OPT among the answers",
            octets(flags::RD, [1, 1, 0, 0], &with(&opt_octets)),
            "FORMERR",
        ),
        (
            "an option longer than OPT",
            octets(flags::RD, [1, 0, 0, 1], &with(&overrun_opt)),
            "FORMERR",
        ),
        (
            "half an option",
            octets(flags::RD, [1, 0, 0, 1], &with(&short_opt)),
            "FORMERR",
        ),
        (
            "OPT as the type asked for",
            Message::query("www.example", "TYPE41").encode(),
            "FORMERR",
        ),
        // RFC 1035 section 4.1.1: opcodes that are not implemented.
        (
            "IQUERY",
            Message::query("www.example", "A").opcode(1).encode(),
            "NOTIMP",
        ),
        (
            "STATUS",
            Message::query("www.example", "A").opcode(2).encode(),
            "NOTIMP",
        ),
        (
            "an opcode without a name",
            Message::query("www.example", "A").opcode(3).encode(),
            "NOTIMP",
        ),
        (
            "NOTIFY (RFC 1996)",
            Message::query("www.example", "SOA").opcode(4).encode(),
            "NOTIMP",
        ),
        (
            "UPDATE (RFC 2136)",
            Message::query("www.example", "SOA").opcode(5).encode(),
            "NOTIMP",
        ),
        ("DSO (RFC 8490)", octets(6 << 11, [0, 0, 0, 0], &[]), "NOTIMP"),
        (
            "opcode 15",
            Message::query("www.example", "A").opcode(15).encode(),
            "NOTIMP",
        ),
        // Only class IN is served.
        (
            "class CH",
            Message::query("version.bind", "TXT").class(3).encode(),
            "REFUSED",
        ),
        (
            "class HS",
            Message::query("www.example", "A").class(4).encode(),
            "REFUSED",
        ),
        (
            "class NONE",
            Message::query("www.example", "A").class(254).encode(),
            "REFUSED",
        ),
        (
            "class ANY",
            Message::query("www.example", "A").class(255).encode(),
            "REFUSED",
        ),
        (
            "class 0",
            Message::query("www.example", "A").class(0).encode(),
            "REFUSED",
        ),
        // A cache has no zone to transfer (RFC 5936, RFC 1995).
        ("AXFR", Message::query("example", "AXFR").encode(), "REFUSED"),
        ("IXFR", Message::query("example", "IXFR").encode(), "REFUSED"),
    ];
    let mut stream = proxy.connect();
    for (what, query, rcode) in &cases {
        let udp = Message::decode(&client::exchange(proxy.address, query));
        let udp = udp.unwrap_or_else(|error| panic!("{what}: {error}"));
        stream.write(&client::frame(query));
        let tcp = stream
            .receive()
            .unwrap_or_else(|| panic!("{what}: the connection was closed"));
        for answer in [udp, tcp] {
            assert_eq!(answer.rcode(), *rcode, "{what}: {answer}");
            assert_eq!(answer.id.to_be_bytes(), query[..2], "{what}: {answer}");
            assert!(answer.has(flags::QR), "{what}: {answer}");
            assert_eq!(
                answer.header & 0x7800,
                u16::from(query[2] & 0x78) << 8,
                "opcode, {what}: {answer}"
            );
            assert_eq!(
                (answer.answers.len(), answer.authority.len()),
                (0, 0),
                "{what}: {answer}"
            );
        }
    }
    assert_eq!(upstream.count("www.example"), 0);
    assert_eq!(proxy.query("www.example", "A").rcode(), "NOERROR");
    let formerr = cases.iter().filter(|(_, _, rcode)| *rcode == "FORMERR").count();
    proxy.await_metric(
        "dnsweir_responses_total",
        &[("rcode", "FORMERR")],
        2.0 * formerr as f64,
    );
}

/// A query has at most 4 096 bytes and 32 records besides its question, over UDP and TCP; a longer one is
/// counted and answered, whatever else it contains.
#[test]
fn what_no_query_needs_is_formerr() {
    let (proxy, upstream) = proxy();
    let record = b"\xff\xff\0\x01\0\x01\0\0\0\0\0\0";
    let with = |records: usize| {
        let body = [question(), record.repeat(records)].concat();
        octets(flags::RD, [1, 0, 0, records as u16], &body)
    };
    let long = |length: usize| {
        let mut query = with(0);
        query.resize(length, 0);
        query
    };
    let cases = [
        (with(32), "NOERROR"),
        (with(33), "FORMERR"),
        (with(300), "FORMERR"),
        (long(4096), "NOERROR"),
        (long(4097), "FORMERR"),
        (long(4161), "FORMERR"),
        (long(65_000), "FORMERR"),
    ];
    let mut stream = proxy.connect();
    for (query, rcode) in &cases {
        let udp = Message::decode(&client::exchange(proxy.address, query)).expect("an answer");
        stream.write(&client::frame(query));
        let tcp = stream.receive().expect("an answer over TCP");
        for answer in [udp, tcp] {
            assert_eq!(answer.rcode(), *rcode, "{} octets: {answer}", query.len());
            assert_eq!(answer.id.to_be_bytes(), query[..2]);
        }
    }
    assert_eq!(upstream.count("www.example"), 1);
    proxy.await_metric(
        "dnsweir_responses_total",
        &[("zone", "dropped"), ("rcode", "FORMERR")],
        10.0,
    );
}

/// Messages without any reply: responses, which would cause loops, and those without a full header.
#[test]
fn responses_and_fragments_are_met_with_silence() {
    let (proxy, _upstream) = proxy();
    let query = Message::query("www.example", "A");
    for (what, octets) in [
        ("a response", query.clone().set(flags::QR).encode()),
        (
            "an error",
            query.clone().set(flags::QR).rcode_set("FORMERR").encode(),
        ),
        ("nothing", vec![]),
        ("one octet", vec![7]),
        ("half a header", query.encode()[..11].to_vec()),
        ("a response without a question", octets(flags::QR, [0; 4], &[])),
    ] {
        eprintln!("{what}");
        unanswered(proxy.address, &octets);
    }
    // Over TCP, this connection may be closed, but no other.
    let mut stream = proxy.connect();
    stream.write(&client::frame(&query.clone().set(flags::QR).encode()));
    stream.half_close();
    assert_eq!(stream.receive(), None);
    assert_eq!(proxy.query("www.example", "A").rcode(), "NOERROR");
}

/// RFC 5625 section 4.1: unexpected flags and records must not prevent an answer.
#[test]
fn the_unexpected_is_let_be() {
    let (proxy, _upstream) = proxy();
    let plain = Message::query("www.example", "A");
    let mut with_answer = plain.clone();
    with_answer
        .answers
        .push(Record::parse("www.example. 1 A 203.0.113.1"));
    let mut with_additional = plain.clone();
    with_additional
        .additional
        .push(Record::parse("x. 1 TYPE65400 \\# 1 00"));
    for (what, query) in [
        ("AA", plain.clone().set(flags::AA)),
        ("RA", plain.clone().set(flags::RA)),
        ("TC", plain.clone().set(flags::TC)),
        ("Z", plain.clone().set(flags::Z)),
        ("AD", plain.clone().set(flags::AD)),
        ("an rcode", plain.clone().set(5)),
        ("an answer", with_answer),
        ("an additional record", with_additional),
    ] {
        let answer = proxy.ask(&query);
        assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"], "{what}");
        assert!(!answer.has(flags::TC), "{what}");
    }
    // Bytes after the message are ignored as well.
    let trailing = [plain.encode(), b"trailing".to_vec()].concat();
    let answer = Message::decode(&client::exchange(proxy.address, &trailing)).expect("a whole message");
    assert_eq!(
        client::check(&plain, answer).answers(),
        ["www.example. A 192.0.2.1"]
    );
}

/// RFC 8906 section 8: a responsive server answers every probe.
#[test]
fn no_probe_is_left_without_an_answer() {
    let (proxy, _upstream) = proxy();
    let soa = Message::query("example", "SOA");
    for (section, query, rcode) in [
        ("8.1.1 plain", soa.clone(), "NOERROR"),
        (
            "8.1.2 unknown type",
            Message::query("example", "TYPE1000"),
            "NOERROR",
        ),
        ("8.1.3.1 CD", soa.clone().set(flags::CD), "NOERROR"),
        ("8.1.3.2 Z", soa.clone().set(flags::Z), "NOERROR"),
        ("8.2.1 EDNS", soa.clone().edns(4096), "NOERROR"),
        (
            "8.2.2 unknown EDNS option",
            soa.clone().option(100, &[]),
            "NOERROR",
        ),
    ] {
        assert_eq!(proxy.ask(&query).rcode(), rcode, "{section}");
        assert_eq!(proxy.connect().ask(&query).rcode(), rcode, "{section} over TCP");
    }
    // 8.1.4, unknown opcode: the question is not repeated, since it may not be one.
    let opcode = soa.clone().opcode(15).clear(flags::RD).encode();
    let answer = Message::decode(&client::exchange(proxy.address, &opcode)).expect("a whole message");
    assert_eq!((answer.rcode().as_str(), answer.questions.len()), ("NOTIMP", 0));
    // 8.2.1, unknown version.
    let mut version = soa.clone().edns(4096);
    version.edns.get_or_insert_default().version = 1;
    assert_eq!(proxy.ask(&version).rcode(), "BADVERS");
    // 8.2.3, unknown flag: not echoed.
    let mut flag = soa.clone().edns(4096);
    flag.edns.get_or_insert_default().flags = 0x40;
    assert_eq!(proxy.ask(&flag).edns.map(|edns| edns.flags), Some(0));
    // 8.2.4, version, option and flag together.
    let mut all = soa.option(100, &[]);
    let edns = all.edns.get_or_insert_default();
    (edns.version, edns.flags) = (1, 0x40);
    let answer = proxy.ask(&all);
    assert_eq!(answer.rcode(), "BADVERS");
    assert_eq!(
        answer.edns.map(|edns| (edns.version, edns.flags, edns.options)),
        Some((0, 0, vec![]))
    );
}

/// RFC 1035 section 4.1.1: RD is copied, RA is ours. AA is only set by the authority: copied from the
/// upstream's answer, and clear in cached answers.
#[test]
fn header_flags_of_answers() {
    let upstream = Upstream::start(|asked| {
        Reply::Message(
            asked
                .message_with(&["www.example. 300 A 192.0.2.1"])
                .set(flags::AA | flags::AD),
        )
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    let query = Message::query("www.example", "A");
    let fresh = proxy.ask(&query);
    assert!(fresh.has(flags::AA | flags::RA | flags::RD), "{fresh}");
    let kept = proxy.ask(&query);
    assert!(!kept.has(flags::AA) && kept.has(flags::RA | flags::RD), "{kept}");
    // RFC 6840 section 5.8: AD for clients that ask for it.
    assert!(!kept.has(flags::AD), "{kept}");
    assert!(proxy.ask(&query.clone().set(flags::AD)).has(flags::AD));
}

/// Without RD: answered from the cache, or from an upstream without RD; that answer is not cached for queries
/// with RD.
#[test]
fn queries_without_recursion() {
    let upstream = Upstream::start(|asked| {
        let address = if asked.message.has(flags::RD) {
            "192.0.2.1"
        } else {
            "192.0.2.2"
        };
        asked.answer(&[&format!("{} 300 A {address}", asked.name())])
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    let without = Message::query("www.example", "A").clear(flags::RD);
    for count in 1..=2 {
        let answer = proxy.ask(&without);
        assert_eq!(answer.answers(), ["www.example. A 192.0.2.2"]);
        assert!(!answer.has(flags::RD) && answer.has(flags::RA), "{answer}");
        assert_eq!(upstream.count("www.example"), count);
    }
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert_eq!(proxy.ask(&without).answers(), ["www.example. A 192.0.2.1"]);
    assert_eq!(upstream.count("www.example"), 3);
}

/// RFC 5625 section 4.5: a signed message passes unchanged except for the ID, in both directions, and
/// bypasses the cache.
#[test]
fn signed_messages_pass_untouched() {
    // The algorithm `test`, a time, a fudge of 300 s, a MAC of 10 bytes, an original ID, no error, no other
    // data.
    let signature =
        "key.example. 0 TYPE250 \\# 32 04746573740000006553f100012c000a0102030405060708090aabcd00000000";
    let upstream = Upstream::start(move |asked| {
        let mut message = asked
            .message_with(&["www.example. 300 A 192.0.2.1"])
            .set(flags::AA);
        message.additional = asked.message.additional.clone();
        Reply::Message(message)
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    let mut query = Message::query("wWw.example", "A");
    query.additional.push(Record {
        class: 255,
        ..Record::parse(signature)
    });
    for count in 1..=2 {
        let answer = proxy.ask(&query);
        assert_eq!(answer.additional, query.additional);
        assert!(answer.has(flags::AA), "{answer}");
        let asked = upstream.asked("www.example");
        assert_eq!(asked.len(), count);
        let relayed = &asked[count - 1].message;
        assert_eq!(
            Message {
                id: query.id,
                ..relayed.clone()
            },
            query
        );
    }
}

/// Ten thousand datagrams of noise, all different and reproducible: a query with changed bytes. Afterwards,
/// the proxy still runs and has not panicked.
#[test]
fn noise_does_no_harm() {
    let (mut proxy, _upstream) = proxy();
    let seed = Message::query("www.example", "A")
        .edns(1232)
        .option(10, &[1; 8])
        .encode();
    let socket = client::socket(proxy.address);
    socket.set_nonblocking(true).expect("a socket that does not wait");
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..10_000 {
        let mut noise = seed.clone();
        for _ in 0..=(state % 4) {
            // xorshift64: the same noise in every run.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = (state >> 16) as usize % noise.len();
            noise[at] = (state >> 40) as u8;
        }
        noise.truncate(1 + (state >> 24) as usize % seed.len());
        // A full buffer does not matter.
        let _ = socket.send(&noise);
        let _ = socket.recv(&mut [0; 1500]);
    }
    assert_eq!(proxy.query("www.example", "A").rcode(), "NOERROR");
    assert!(proxy.process.running());
    assert!(
        !proxy
            .process
            .stderr()
            .iter()
            .any(|line| line.contains("panicked")),
        "{:#?}",
        proxy.process.stderr()
    );
}

/// Hand-made messages that have crashed other servers.
#[test]
fn messages_that_have_stopped_servers() {
    let (mut proxy, _upstream) = proxy();
    for hex in [
        // A chain of pointers in the question.
        "1092 0100 0001 0000 0000 0000 c00e c010 c012 c00c 0001 0001",
        // A name that points into itself.
        "1092 0100 0001 0000 0000 0000 0161 c00d 0001 0001",
        // RDLENGTH 65535 in the OPT record of a message of 39 bytes.
        "1092 0100 0001 0000 0000 0001 0377 7777 0000 0100 0100 0029 04d0 0000 0000 ffff",
        // All counts at their maximum.
        "1092 0100 ffff ffff ffff ffff 00",
        // Sixty-four root labels.
        &format!("1092 0100 0001 0000 0000 0000 {}", "00".repeat(64)),
    ] {
        let socket = client::socket(proxy.address);
        socket.send(&decode_hex(hex)).expect("sent octets");
        Stream::connect(proxy.address).write(&client::frame(&decode_hex(hex)));
        assert_eq!(proxy.query("www.example", "A").rcode(), "NOERROR", "after {hex}");
    }
    assert!(proxy.process.running());
}
