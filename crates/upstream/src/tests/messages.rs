//! The reply check, against arbitrary bytes.

use proptest::prelude::*;

use super::super::message::{Query, Rejection};
use super::*;

const ID: u16 = 0x1234;

fn ours() -> Query {
    Query::new(query_with_edns("www.example.com")).unwrap()
}

fn written(query: &Query, id: u16) -> Vec<u8> {
    let mut message = Vec::new();
    query.write(id, &mut message);
    assert_eq!(query.len(), message.len());
    message
}

fn reply() -> Vec<u8> {
    let mut reply = answer(&written(&ours(), ID), 1);
    // With an OPT record: BADVERS (extended RCODE 1) and keepalive 20 × 100 ms.
    reply[11] = 1;
    reply.extend_from_slice(&[0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 6, 0, 11, 0, 2, 0, 20]);
    reply
}

#[test]
fn the_opt_record_of_a_reply_is_read() {
    let reply = ours().accept(ID, Protocol::Udp, &reply()).unwrap();
    assert_eq!(reply.rcode, 16);
    assert_eq!(reply.keepalive, Some(Duration::from_secs(2)));
}

#[test]
fn an_empty_question_is_accepted_with_an_error_alone() {
    let bare = |rcode| [0x12, 0x34, 0x80, rcode, 0, 0, 0, 0, 0, 0, 0, 0];
    let taken = |over, rcode| ours().accept(ID, over, &bare(rcode)).is_ok();
    for rcode in 0..16 {
        // Over UDP, only the errors for a question that cannot be read.
        let over_udp = [FORMERR, NOTIMP].contains(&rcode.into());
        let over_tcp = over_udp || [SERVFAIL, REFUSED].contains(&rcode.into());
        assert_eq!(taken(Protocol::Udp, rcode), over_udp, "RCODE {rcode} over UDP");
        assert_eq!(taken(Protocol::Tcp, rcode), over_tcp, "RCODE {rcode} over TCP");
    }
    let mut with_records = bare(1);
    with_records[7] = 1;
    assert_eq!(
        ours().accept(ID, Protocol::Tcp, &with_records).unwrap_err(),
        Rejection::Stray
    );
}

#[test]
fn only_the_last_record_is_cut_off() {
    let plain = ours().without_edns().unwrap();
    assert_eq!(written(&plain, 0xabcd), query("www.example.com"));
    assert!(plain.without_edns().is_none());

    // A TSIG record after it.
    let mut signed = query_with_edns("www.example.com");
    signed[11] = 2;
    signed.extend_from_slice(&[0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 0]);
    assert!(Query::new(signed.clone()).unwrap().without_edns().is_none());
}

#[test]
fn a_truncated_reply_may_end_within_a_record_and_no_other() {
    let whole = reply();
    let mut cut = whole[..whole.len() - 5].to_vec();
    let accept = |reply: &[u8]| ours().accept(ID, Protocol::Udp, reply);
    assert_eq!(accept(&cut).unwrap_err(), Rejection::Malformed);
    cut[2] |= 0x02;
    assert!(accept(&cut).unwrap().truncated);
}

/// Right ID and question, but must not be relayed.
#[test]
fn a_reply_that_nobody_should_relay_is_malformed() {
    let with = |rtype: u16, section: usize, data: &[u8]| {
        let mut reply = empty(&written(&ours(), ID), 0);
        reply[7 + 2 * section] = 1;
        reply.push(0);
        reply.extend(rtype.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 60]);
        reply.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        reply.extend(data);
        reply
    };
    let mut status = answer(&written(&ours(), ID), 1);
    status[2] |= 2 << 3;
    let mut two_opts = with(41, 2, &[]);
    two_opts[11] = 2;
    two_opts.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    let (a, aaaa, txt, tsig, opt) = (1, 28, 16, 250, 41);
    for (what, reply) in [
        ("another opcode", status),
        ("an address of three octets", with(a, 0, &[192, 0, 2])),
        ("one of seventeen", with(aaaa, 0, &[0; 17])),
        ("a text that overruns its data", with(txt, 0, b"\x05abc")),
        ("a signature nobody asked for", with(tsig, 2, &[])),
        ("an OPT record among the answers", with(opt, 0, &[])),
        ("two OPT records", two_opts),
    ] {
        let outcome = ours().accept(ID, Protocol::Tcp, &reply);
        assert_eq!(outcome.unwrap_err(), Rejection::Malformed, "{what}");
    }
    // A record of an unknown type may hold anything.
    assert!(ours().accept(ID, Protocol::Tcp, &with(65_280, 0, &[1])).is_ok());

    // A signed query gets a signed answer.
    let mut signed = query("www.example.com");
    signed[11] = 1;
    signed.extend_from_slice(&[0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 0]);
    let reply = with(tsig, 2, &[]);
    assert!(
        Query::new(signed.clone())
            .unwrap()
            .accept(ID, Protocol::Udp, &reply)
            .is_ok()
    );
}

#[test]
fn a_question_with_a_pointer_or_an_endless_name_is_none() {
    let mut pointer = query("a");
    pointer.splice(12..15, [0xc0, 0x0c]);
    assert!(Query::new(pointer).is_err());

    let label = "a".repeat(63);
    let longest = [&label[..], &label, &label, &label[..61]].join(".");
    assert!(Query::new(query(&longest)).is_ok());
    assert!(Query::new(query(&format!("{longest}a"))).is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_pass_for_a_reply_unless_id_and_question_match(
        bytes in proptest::collection::vec(any::<u8>(), 0..600)
    ) {
        if let Ok(reply) = ours().accept(ID, Protocol::Tcp, &bytes) {
            prop_assert_eq!(&bytes[..2], &ID.to_be_bytes());
            prop_assert_eq!(reply.into_message(7).len(), bytes.len());
        }
    }

    #[test]
    fn a_reply_with_bytes_changed_or_cut_never_panics(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = reply();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let _ = ours().accept(ID, Protocol::Tcp, &bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic_as_a_query(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        counts in any::<[u8; 4]>(),
    ) {
        // A plausible header, so that the parser reaches the rest.
        let mut bytes = [&[0, 0, 1, 0, 0, 1, 0, counts[0], 0, counts[1], 0, counts[2]][..], &bytes].concat();
        bytes[10] = counts[3] & 1;
        if let Ok(query) = Query::new(bytes.clone()) {
            prop_assert!(query.without_edns().is_none_or(|plain| plain.len() < query.len()));
            prop_assert_eq!(written(&query, query.id()), bytes);
        }
    }
}
