//! Which clients get a zone, and what they get.

use std::cell::RefCell;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use super::contents::is_newer;
use super::{AT_ONCE, Asked, Contents, Outgoing, Reply};
use crate::config::{self, Network};
use crate::dns::edns::ExtendedError;
use crate::dns::name::Name;
use crate::dns::parts::take_apart;
use crate::dns::transfer::{Record, Request};
use crate::dns::tsig::{ALGORITHMS, Key};
use crate::dns::{HEADER, rcode, rtype, u16_at};
use crate::zonefile::{Bounds, Zone, read};

/// Places are shared by all transfers of the process, so these tests run one at a time.
static PLACES: Mutex<()> = Mutex::new(());

fn zone(names: usize) -> Arc<Zone> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zone");
    let mut text = "$TTL 60\n@ SOA ns admin 7 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n@ MX 10 mail\n".to_owned();
    for index in 0..names {
        text += &format!("name-{index} A 192.0.2.1\n");
    }
    fs::write(&path, text).unwrap();
    read(&path, "example.", Bounds { octets: 64 << 20 }).unwrap()
}

fn key(name: &str, algorithm: &str) -> Key {
    Key::new(&Name::parse(name).unwrap(), algorithm, &[7; 32]).unwrap()
}

fn outgoing(key: Option<Key>) -> Arc<Outgoing> {
    Outgoing::new(&config::Transfer {
        to: vec![Network::of("192.0.2.0".parse().unwrap(), 24).unwrap()],
        key,
        notify: Vec::new(),
    })
}

/// The reply to a message from an address.
fn ask(outgoing: &Arc<Outgoing>, zone: &Arc<Zone>, client: &str, message: &[u8], stream: bool) -> Reply {
    let origin = zone.origin.as_bytes();
    let question = &message[HEADER..HEADER + origin.len() + 4];
    let asked = Asked {
        name: origin,
        qtype: u16_at(question, origin.len()),
        question,
        message,
        client: client.parse().unwrap(),
        stream,
    };
    outgoing.answer(|| Arc::clone(zone) as Arc<dyn Contents>, &asked)
}

fn request(zone: &Zone, request: Request<'_>) -> Vec<u8> {
    request.message(9, zone.origin.as_bytes(), None).unwrap().0
}

/// The zone's SOA record with another serial.
fn soa(zone: &Zone, serial: u32) -> Record {
    let mut soa = zone.soa();
    let at = soa.data.len() - 20;
    soa.data[at..at + 4].copy_from_slice(&serial.to_be_bytes());
    soa
}

/// The messages of a transfer to a client that accepts at most `most` of them.
fn messages(reply: Reply, most: usize) -> (bool, Vec<Vec<u8>>) {
    let Reply::Stream(transfer) = reply else {
        panic!("no transfer");
    };
    let messages = RefCell::new(Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let sent = runtime.block_on(transfer.run(async |message| {
        messages.borrow_mut().push(message.to_vec());
        messages.borrow().len() < most
    }));
    (sent, messages.into_inner())
}

/// The types of the records in the messages' answer sections.
fn types(messages: &[Vec<u8>]) -> Vec<u16> {
    let parts = messages.iter().flat_map(|message| {
        let question = match u16_at(message, 4) {
            0 => 0,
            _ => b"\x07example\0".len() + 4,
        };
        take_apart(message, question).unwrap()
    });
    parts
        .filter(|part| part.rtype != rtype::TSIG)
        .map(|part| part.rtype)
        .collect()
}

fn refusal(reply: Reply) -> Option<(u16, ExtendedError)> {
    match reply {
        Reply::Refused(rcode, error) => Some((rcode, error)),
        Reply::Message(_) | Reply::Stream(_) => None,
    }
}

/// RFC 5936 section 2.2.
#[test]
fn a_zone_begins_and_ends_with_its_soa_record() {
    let _places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let (zone, outgoing) = (zone(5000), outgoing(None));
    let axfr = request(&zone, Request::Axfr);
    let (sent, messages) = messages(ask(&outgoing, &zone, "192.0.2.7", &axfr, true), usize::MAX);
    let types = types(&messages);
    assert!(sent && messages.len() > 5, "{}", messages.len());
    assert_eq!(types.len(), zone.records + 1);
    assert_eq!((types[0], types[types.len() - 1]), (rtype::SOA, rtype::SOA));
    assert_eq!(types.iter().filter(|&&one| one == rtype::SOA).count(), 2);
    assert_eq!(types.iter().filter(|&&one| one == rtype::A).count(), 5001);
    for (index, message) in messages.iter().enumerate() {
        assert!(message.len() <= 16 << 10, "{}", message.len());
        assert_eq!(u16_at(message, 0), 9);
        assert_eq!(u16_at(message, 2), 0x8400, "QR and AA");
        assert_eq!(u16_at(message, 4), u16::from(index == 0), "the question");
    }
}

#[test]
fn who_leaves_gets_no_more_and_whoever_is_too_many_nothing() {
    let _places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let (zone, outgoing) = (zone(5000), outgoing(None));
    let axfr = request(&zone, Request::Axfr);
    let ask = || ask(&outgoing, &zone, "192.0.2.7", &axfr, true);
    let (sent, sent_messages) = messages(ask(), 2);
    assert!(!sent && sent_messages.len() == 2);
    let held: Vec<Reply> = (0..AT_ONCE).map(|_| ask()).collect();
    assert!(held.iter().all(|reply| matches!(reply, Reply::Stream(_))));
    assert_eq!(refusal(ask()), Some((rcode::SERVFAIL, ExtendedError::Other)));
    drop(held);
    assert!(messages(ask(), usize::MAX).0);
}

#[test]
fn others_are_refused() {
    let (zone, outgoing) = (zone(0), outgoing(None));
    let axfr = request(&zone, Request::Axfr);
    let refused = Some((rcode::REFUSED, ExtendedError::Prohibited));
    for client in ["198.51.100.1", "2001:db8::1"] {
        assert_eq!(refusal(ask(&outgoing, &zone, client, &axfr, true)), refused);
    }
    // RFC 5936 section 4.2.
    let over_udp = refusal(ask(&outgoing, &zone, "192.0.2.7", &axfr, false));
    assert_eq!(over_udp, Some((rcode::REFUSED, ExtendedError::Other)));
}

/// RFC 1995 sections 2 to 4.
#[test]
fn changes_are_asked_for_by_serial() {
    let _places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let (zone, outgoing) = (zone(10), outgoing(None));
    let since = |serial, stream| {
        let message = request(&zone, Request::Ixfr(&soa(&zone, serial)));
        ask(&outgoing, &zone, "192.0.2.7", &message, stream)
    };
    for (serial, stream) in [(7, true), (8, true), (7, false), (6, false)] {
        let Reply::Message(message) = since(serial, stream) else {
            panic!("since {serial}");
        };
        assert_eq!(types(&[message]), [rtype::SOA], "since {serial}");
    }
    let (sent, messages) = messages(since(6, true), usize::MAX);
    assert!(sent);
    assert_eq!(types(&messages).len(), zone.records + 1);
    let mut bare = request(&zone, Request::Axfr);
    let at = HEADER + zone.origin.as_bytes().len() + 1;
    bare[at] = rtype::IXFR as u8;
    let refused = refusal(ask(&outgoing, &zone, "192.0.2.7", &bare, true));
    assert_eq!(refused, Some((rcode::FORMERR, ExtendedError::Other)));
}

/// RFC 8945 sections 5.2 and 5.3.1.
#[test]
fn where_a_key_is_named_all_is_signed() {
    let _places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let zone = zone(5000);
    let origin = zone.origin.as_bytes();
    for algorithm in ALGORITHMS {
        let key = key("k.example", algorithm);
        let outgoing = outgoing(Some(key.clone()));
        let (message, verifier) = Request::Axfr.message(9, origin, Some(&key)).unwrap();
        let mut verifier = verifier.unwrap();
        let (sent, messages) = messages(ask(&outgoing, &zone, "192.0.2.7", &message, true), usize::MAX);
        assert!(sent && messages.len() > 5);
        let (last, others) = messages.split_last().unwrap();
        for message in others {
            verifier.check(&mut message.clone()).unwrap();
        }
        let mut bad = last.clone();
        bad[HEADER + 20] ^= 1;
        assert!(verifier.check(&mut bad).is_err());
    }
    let outgoing = outgoing(Some(key("k.example", "hmac-sha256")));
    let unsigned = request(&zone, Request::Axfr);
    let refused = refusal(ask(&outgoing, &zone, "192.0.2.7", &unsigned, true));
    assert_eq!(refused, Some((rcode::REFUSED, ExtendedError::Prohibited)));
    let wrong = Key::new(&Name::parse("k.example").unwrap(), "hmac-sha256", &[8; 32]).unwrap();
    for (other, error) in [
        (key("other.example", "hmac-sha256"), 17),
        (key("k.example", "hmac-sha512"), 17),
        (wrong, 16),
    ] {
        let (message, _) = Request::Axfr.message(9, origin, Some(&other)).unwrap();
        let Reply::Message(told) = ask(&outgoing, &zone, "192.0.2.7", &message, true) else {
            panic!("{other:?}");
        };
        assert_eq!(u16_at(&told, told.len() - 4), error, "BADKEY or BADSIG");
        // NOTAUTH, with a record that gives the reason.
        assert_eq!((u16_at(&told, 2) & 15, u16_at(&told, 10)), (9, 1), "{other:?}");
    }
}

/// RFC 1982 section 3.2.
#[test]
fn serials_wrap_around() {
    for (one, other, newer) in [
        (2, 1, true),
        (1, 2, false),
        (1, 1, false),
        (0, u32::MAX, true),
        (1 << 31, 0, false),
    ] {
        assert_eq!(is_newer(one, other), newer, "{one} {other}");
    }
}
