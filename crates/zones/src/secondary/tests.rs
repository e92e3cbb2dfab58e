//! Primaries of every kind, and the results.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::incoming::{Came, Incoming, Wrong};
use super::primary::Primary;
use super::state::State;
use super::{AskedNotify, Notified, Secondary, Served};
use crate::config;
use crate::dns::name::Name;
use crate::dns::transfer::{Record, Request, Response};
use crate::dns::tsig::{Checked, Key, check};
use crate::dns::{HEADER, rtype, u16_at};
use crate::transfer::{Contents as _, serial};
use crate::zonefile::{Chain, Zone, from_records};
use dnsweir_answer::Upkeep as _;

const ORIGIN: &[u8] = b"\x07example\0";

/// A configuration with one primary.
fn of(primary: SocketAddr, wait: Duration) -> config::Secondary {
    config::Secondary {
        primaries: vec![primary],
        origins: vec!["example.".into()],
        key: None,
        fallthrough: Vec::new(),
        memory: 1 << 20,
        time: Duration::from_secs(60),
        wait,
        transfer: None,
    }
}

fn new(config: &config::Secondary) -> Secondary {
    Secondary::new(config, &Served::default())
}

fn soa(number: u32) -> Record {
    let mut data = b"\x02ns\x07example\0\x05admin\x07example\0".to_vec();
    for field in [number, 3600, 600, 86_400, 5] {
        data.extend(field.to_be_bytes());
    }
    Record {
        owner: ORIGIN.into(),
        rtype: rtype::SOA,
        ttl: 60,
        data: data.into(),
    }
}

fn address(label: &str, last: u8) -> Record {
    let mut owner = vec![label.len() as u8];
    owner.extend(label.bytes());
    owner.extend(ORIGIN);
    Record {
        owner: owner.into(),
        rtype: rtype::A,
        ttl: 60,
        data: [192, 0, 2, last].into(),
    }
}

fn zone(number: u32, records: &[Record]) -> Arc<Zone> {
    let all = records.iter().cloned().chain([soa(number)]).collect();
    Arc::new(from_records(&Name::lowercased(ORIGIN), all, 1 << 20).unwrap())
}

/// The result of these records.
fn came(since: Option<&Zone>, records: &[Record]) -> Result<Option<Came>, Wrong> {
    let mut incoming = Incoming::new(ORIGIN, since);
    for record in records {
        incoming.take(record.clone())?;
    }
    Ok(incoming.finish())
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by(|one, other| {
        (&one.owner, one.rtype, &one.data).cmp(&(&other.owner, other.rtype, &other.data))
    });
    records
}

/// RFC 1995 section 7, with other names.
#[test]
fn changes_are_applied() {
    let known = zone(1, &[address("nezu", 5), address("ns", 9)]);
    let (jain, other) = (address("jain", 133), address("jain", 192));
    let steps = [
        soa(3),
        soa(1),
        address("nezu", 5),
        soa(2),
        jain.clone(),
        other.clone(),
        soa(2),
        jain,
        soa(3),
        address("jain", 3),
        soa(3),
    ];
    let Ok(Some(Came::Changed(records))) = came(Some(&known), &steps) else {
        panic!("not changed");
    };
    let expected = vec![address("ns", 9), other, address("jain", 3), soa(3)];
    assert_eq!(sorted(records), sorted(expected));
    // The primary may answer with the whole zone instead.
    let whole = [soa(3), address("ns", 9), soa(3)];
    assert!(matches!(came(Some(&known), &whole), Ok(Some(Came::Whole(records))) if records.len() == 2));
    assert!(matches!(came(Some(&known), &[soa(1)]), Ok(Some(Came::Nothing))));
}

/// An NSEC3 record whose hash consists of this digit, of a chain with this salt.
fn hashed(digit: u8, salt: &[u8]) -> Record {
    let parameters = parameters(salt).data;
    Record {
        owner: [&[32][..], &[digit; 32], ORIGIN].concat().into(),
        rtype: rtype::NSEC3,
        ttl: 60,
        data: [&parameters[..], &[20], &[0; 20], &[0, 1, 0x40]].concat().into(),
    }
}

/// The NSEC3PARAM record of a chain with this salt.
fn parameters(salt: &[u8]) -> Record {
    Record {
        rtype: rtype::NSEC3PARAM,
        data: [&[1, 0, 0, 0, salt.len() as u8][..], salt].concat().into(),
        ..soa(1)
    }
}

/// RFC 5155 section 10.4: a chain comes step by step, its NSEC3PARAM record last. So another one replaces it.
#[test]
fn nsec3_records_come_before_their_parameters() {
    let (first, second, old) = (hashed(b'1', b"new"), hashed(b'2', b"new"), hashed(b'3', b"old"));
    let contents = vec![parameters(b"old"), old.clone(), first.clone()];
    let known = zone(1, &contents);
    let chained = |zone: &Zone| match &zone.chain {
        Chain::Nsec3(chain) => chain.records.len(),
        other => panic!("{other:?}"),
    };
    // What is not complete proves nothing, and is passed on.
    assert_eq!((chained(&known), known.other_hashed.len()), (1, 1));
    assert_eq!(sorted(known.batches().flatten().collect()), sorted(contents));
    let changed = |known: &Zone, steps: &[Record]| match came(Some(known), steps) {
        Ok(Some(Came::Changed(records))) => from_records(&known.origin, records, 1 << 20).unwrap(),
        other => panic!("{other:?}"),
    };
    let (to_new, of_old) = (parameters(b"new"), parameters(b"old"));
    let steps = [
        soa(2),
        soa(1),
        of_old,
        soa(2),
        second.clone(),
        to_new.clone(),
        soa(2),
    ];
    let next = changed(&known, &steps);
    assert_eq!((chained(&next), next.other_hashed.len()), (2, 1));
    let last = changed(&next, &[soa(3), soa(2), old, soa(3), soa(3)]);
    assert_eq!((chained(&last), last.other_hashed.len()), (2, 0));
    assert_eq!(
        sorted(last.batches().flatten().collect()),
        sorted(vec![to_new, first, second])
    );
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let known = zone(1, &[address("a", 1)]);
    for (records, wrong) in [
        (vec![address("a", 1)], Wrong::Start),
        (vec![soa(2), address("a", 1), soa(3)], Wrong::End(2, 3)),
        (vec![soa(2), soa(2), address("a", 1)], Wrong::Surplus),
        (vec![soa(3), soa(2), address("a", 1)], Wrong::Order(2)),
        (vec![soa(2), soa(1), address("b", 1)], Wrong::Missing),
        (
            vec![soa(3), soa(1), address("a", 1), soa(2), soa(3)],
            Wrong::Order(3),
        ),
    ] {
        assert_eq!(came(Some(&known), &records).err(), Some(wrong), "{records:?}");
    }
    for cut in [
        vec![],
        vec![soa(2)],
        vec![soa(2), address("a", 1)],
        vec![soa(2), soa(1), address("a", 1)],
    ] {
        assert!(matches!(came(Some(&known), &cut), Ok(None)), "{cut:?}");
    }
    assert_eq!(
        came(None, &[soa(2), soa(1)]).err(),
        Some(Wrong::End(2, 1)),
        "without a zone there are no changes"
    );
}

#[test]
fn records_make_a_zone_or_say_why_not() {
    let origin = Name::lowercased(ORIGIN);
    let made = |records: Vec<Record>| from_records(&origin, records, 1 << 20);
    assert_eq!(made(vec![soa(7), address("a", 1)]).unwrap().serial, 7);
    let outside = Record {
        owner: b"\x03org\0"[..].into(),
        ..address("a", 1)
    };
    let meta = Record {
        rtype: rtype::TSIG,
        ..address("a", 1)
    };
    let alias = Record {
        rtype: rtype::CNAME,
        data: ORIGIN.into(),
        ..address("a", 1)
    };
    let crowd = (0..=u16::MAX).map(|index| Record {
        rtype: 65280,
        data: index.to_be_bytes().into(),
        ..address("a", 1)
    });
    for (records, expected) in [
        (vec![address("a", 1)], "there is no SOA record at example."),
        (vec![soa(1), outside], "org. A: org. is not in the zone example."),
        (
            vec![soa(1), meta],
            "a.example. TSIG: records of this type are in no zone",
        ),
        (
            vec![soa(1), address("a", 1), alias],
            "a.example. CNAME: there is a CNAME and a A record at this name",
        ),
        (
            vec![soa(1), soa(2)],
            "example. SOA: there is another SOA record at this name",
        ),
        (
            std::iter::once(soa(1)).chain(crowd).collect(),
            "a.example. TYPE65280: a.example. has more than 5000 TYPE65280 records, more than fit into any message",
        ),
    ] {
        assert_eq!(made(records).err().as_deref(), Some(expected));
    }
    let many = (0..4000).map(|index| address(&format!("name-{index}"), 1));
    let large = std::iter::once(soa(1)).chain(many).collect();
    let problem = from_records(&origin, large, 100_000).err().unwrap();
    assert!(problem.contains("takes more than 100000 bytes"), "{problem}");
}

/// How a fake primary answers transfer requests.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Correctly, always with the whole zone.
    Right,
    /// It has only the serial 6.
    Stale,
    /// Its transfers have the serial 6.
    Older,
    /// Without an end.
    Endless,
    /// One byte, and then nothing for a long time.
    Slow,
    Garbage,
    /// With another serial at the end.
    OtherEnd,
    OutOfZone,
    Refuses,
    /// Half of it, and then it closes the connection.
    Leaves,
    /// Changes that do not start from our zone; the whole zone is right.
    WrongChanges,
    Unsigned,
}

async fn next_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_u16().await.ok()?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}

async fn say(stream: &mut TcpStream, query: &[u8], records: &[Record], key: Option<&Key>) -> Option<()> {
    let mut response = Response::new(u16_at(query, 0), None)?;
    for record in records {
        response.push(record).then_some(())?;
    }
    let message = match key.map(|key| check(Some(key), query)) {
        Some(Checked::Signed(mut signer)) => response.finish(Some(&mut signer))?,
        _ => response.finish(None)?,
    };
    stream.write_u16(message.len() as u16).await.ok()?;
    stream.write_all(&message).await.ok()
}

async fn serve(mut stream: TcpStream, manner: Manner, key: Option<Key>) -> Option<()> {
    let key = key.as_ref().filter(|_| manner != Manner::Unsigned);
    loop {
        let query = next_request(&mut stream).await?;
        let qtype = u16_at(&query, HEADER + ORIGIN.len());
        if qtype == rtype::SOA {
            let number = if manner == Manner::Stale { 6 } else { 7 };
            say(&mut stream, &query, &[soa(number)], key).await?;
            continue;
        }
        let whole = [soa(7), address("a", 1), address("b", 2), soa(7)];
        match manner {
            Manner::Right | Manner::Unsigned => say(&mut stream, &query, &whole, key).await?,
            Manner::Stale | Manner::Older => {
                say(&mut stream, &query, &[soa(6), address("a", 1), soa(6)], key).await?;
            }
            Manner::WrongChanges if qtype == rtype::IXFR => {
                let changes = [soa(7), soa(5), address("a", 9), soa(7)];
                say(&mut stream, &query, &changes, key).await?;
            }
            Manner::WrongChanges => say(&mut stream, &query, &whole, key).await?,
            Manner::Endless => {
                say(&mut stream, &query, &whole[..1], key).await?;
                for index in 0_u32.. {
                    say(&mut stream, &query, &[address(&format!("n{index}"), 1)], key).await?;
                }
            }
            Manner::Slow => {
                stream.write_all(&[0]).await.ok()?;
                std::future::pending::<()>().await;
            }
            Manner::Garbage => stream.write_all(&[0, 40]).await.ok()?,
            Manner::OtherEnd => say(&mut stream, &query, &[soa(7), address("a", 1), soa(8)], key).await?,
            Manner::OutOfZone => {
                let outside = Record {
                    owner: b"\x03org\0"[..].into(),
                    ..address("a", 1)
                };
                say(&mut stream, &query, &[soa(7), outside, soa(7)], key).await?;
            }
            Manner::Refuses => {
                let mut refused = query[..HEADER].to_vec();
                refused[2..].copy_from_slice(&[0x80, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
                stream.write_u16(HEADER as u16).await.ok()?;
                stream.write_all(&refused).await.ok()?;
            }
            Manner::Leaves => {
                say(&mut stream, &query, &whole[..2], key).await?;
                return None;
            }
        }
        if manner == Manner::Garbage {
            stream.write_all(&[0xff; 40]).await.ok()?;
        }
    }
}

/// A primary with this behaviour.
async fn primary(manner: Manner, key: Option<Key>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, manner, key.clone()));
        }
    });
    address
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// The result of a check with such a primary: a zone, or why there is none.
async fn look(manner: Manner, key: Option<Key>, known: Option<&Arc<Zone>>) -> Result<Zone, String> {
    let origin = Name::lowercased(ORIGIN);
    let state = State::new(&origin);
    let primary = Primary {
        address: primary(manner, key.clone()).await,
        state: &state,
        key: key.as_ref(),
        octets: 100_000,
        patience: Duration::MAX,
    };
    let patience = match manner {
        Manner::Slow => Duration::from_millis(500),
        _ => Duration::from_secs(60),
    };
    let looked = tokio::time::timeout(patience, primary.look(known)).await;
    match looked.map_err(|_| "too slow".to_owned())?? {
        Came::Nothing => Err("nothing".into()),
        Came::Whole(records) | Came::Changed(records) => from_records(&origin, records, 100_000),
    }
}

#[test]
fn hostile_primaries_give_nothing() {
    run(async {
        let known = zone(6, &[address("a", 1)]);
        assert_eq!(look(Manner::Right, None, None).await.unwrap().records, 3);
        assert_eq!(look(Manner::Right, None, Some(&known)).await.unwrap().serial, 7);
        assert_eq!(
            look(Manner::WrongChanges, None, Some(&known))
                .await
                .unwrap()
                .serial,
            7,
            "all of it is right"
        );
        for newer in [7, 8] {
            let known = zone(newer, &[]);
            assert_eq!(
                look(Manner::Right, None, Some(&known)).await.unwrap_err(),
                "nothing"
            );
        }
        for (manner, problem) in [
            (Manner::Endless, "takes more than 100000 bytes"),
            (Manner::Slow, "too slow"),
            (Manner::Garbage, "does not answer the request"),
            (Manner::OtherEnd, "begins with the serial 7 and ends with 8"),
            (Manner::Older, "it sent a zone that is not newer"),
            (Manner::OutOfZone, "org. is not in the zone"),
            (Manner::Refuses, "it says REFUSED"),
            (Manner::Leaves, "the connection broke"),
        ] {
            let said = look(manner, None, Some(&known)).await.unwrap_err();
            assert!(said.contains(problem), "{said}");
        }
    });
}

#[test]
fn where_a_key_is_named_only_what_is_signed_is_taken() {
    let key = |octet| Key::new(&Name::parse("k.example").unwrap(), "hmac-sha256", &[octet; 32]).unwrap();
    run(async {
        assert_eq!(look(Manner::Right, Some(key(1)), None).await.unwrap().serial, 7);
        let said = look(Manner::Unsigned, Some(key(1)), None).await.unwrap_err();
        assert!(said.contains("its signature is not right"), "{said}");
    });
}

/// RFC 1996 section 3.10.
#[test]
fn only_primaries_are_listened_to() {
    let key = Key::new(&Name::parse("k.example").unwrap(), "hmac-sha256", &[1; 32]).unwrap();
    let config = |key| config::Secondary {
        key,
        ..of("192.0.2.1:53".parse().unwrap(), Duration::ZERO)
    };
    let current = soa(7);
    assert_eq!(serial(&zone(7, &[]).soa()), serial(&current));
    let message = |key| Request::Notify(&current).message(9, ORIGIN, key).unwrap().0;
    let told = |secondary: &Secondary, client: &str, message: &[u8], name: &[u8]| {
        let asked = AskedNotify {
            name,
            question: &message[HEADER..HEADER + ORIGIN.len() + 4],
            message,
            client: client.parse().unwrap(),
        };
        secondary.notified(&asked).map(|notified| match notified {
            Notified::Heard(told) => Some((u16_at(&told, 2), u16_at(&told, 10))),
            Notified::Refused => None,
        })
    };
    let open = new(&config(None));
    let signed = new(&config(Some(key.clone())));
    // QR, NOTIFY, AA; signed or not.
    assert_eq!(
        told(&open, "192.0.2.1", &message(None), ORIGIN),
        Some(Some((0xa400, 0)))
    );
    // RFC 1996 section 3.11: it will be asked first.
    assert_eq!(open.states()[0].notifier(), "192.0.2.1".parse().ok());
    assert_eq!(told(&open, "192.0.2.2", &message(None), ORIGIN), Some(None));
    assert_eq!(open.states()[0].notifier(), None);
    assert_eq!(told(&open, "192.0.2.1", &message(None), b"\x03org\0"), None);
    assert_eq!(
        told(&signed, "192.0.2.1", &message(Some(&key)), ORIGIN),
        Some(Some((0xa400, 1)))
    );
    assert_eq!(told(&signed, "192.0.2.1", &message(None), ORIGIN), Some(None));
    let other = Key::new(&Name::parse("k.example").unwrap(), "hmac-sha256", &[2; 32]).unwrap();
    // NOTAUTH.
    let (flags, _) = told(&signed, "192.0.2.1", &message(Some(&other)), ORIGIN)
        .unwrap()
        .unwrap();
    assert_eq!(flags & 15, 9);
}

/// RFC 1996 section 3.11: one primary may not have what another has.
#[tokio::test]
async fn a_primary_without_news_does_not_end_the_check() {
    let primaries = [Manner::Stale, Manner::Refuses, Manner::Right];
    let mut config = of("127.0.0.1:1".parse().unwrap(), Duration::ZERO);
    for manner in primaries {
        config.primaries.push(primary(manner, None).await);
    }
    let secondary = new(&config);
    let state = &secondary.states()[0];
    state.publish(zone(6, &[address("a", 1)]));
    secondary.bring_up().await;
    let newest = async {
        while state.zone.load().as_ref().is_none_or(|zone| zone.serial != 7) {
            tokio::task::yield_now().await;
        }
    };
    let came = tokio::time::timeout(Duration::from_secs(60), newest).await;
    assert!(came.is_ok(), "the primary with a newer zone is not asked");
}

/// A stage that has waited its full time does not wait again, so that it delays no later reload.
#[tokio::test]
async fn what_was_waited_for_in_vain_is_not_waited_for_again() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let secondary = new(&of(silent.local_addr().unwrap(), Duration::from_millis(10)));
    secondary.bring_up().await;
    while secondary.not_ready(true).is_some() {
        tokio::task::yield_now().await;
    }
    assert!(futures_util::FutureExt::now_or_never(secondary.bring_up()).is_some());
}

/// A reload that changes how a zone is fetched, or from where, keeps the zone.
#[test]
fn a_secondary_that_is_changed_goes_on_with_its_zone() {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let before = new(&of(address(1), Duration::ZERO));
    let state = &before.states()[0];
    state.publish(zone(7, &[]));
    state.checked();
    let changed = |config| {
        let after = Secondary::new(&config, &Served::of([&before].into_iter()));
        let state = &after.states()[0];
        let serial = state.zone.load().as_ref().map(|zone| zone.serial);
        (serial, state.arrival.has_come(), state.age().is_some())
    };
    let another = of(address(2), Duration::from_secs(60));
    assert_eq!(changed(another.clone()), (Some(7), true, true));
    // A zone that exceeds the new limit must be fetched again, and be rejected.
    let smaller = config::Secondary {
        memory: 1,
        ..another.clone()
    };
    assert_eq!(changed(smaller), (None, false, false));
    let other = config::Secondary {
        origins: vec!["other.example.".into()],
        ..another
    };
    assert_eq!(changed(other), (None, false, false));
}
