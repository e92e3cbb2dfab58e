//! Tests of what is blamed, for how long, and for how many there is room.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;

use super::super::batch::Alone;
use super::super::bindings::dnsweir::filter::types::Query;
use super::super::counters::FilterCounters;
use super::super::evidence::Probation;
use super::super::tests::query;
use super::*;

const COST: Duration = Duration::from_millis(2);

fn blame() -> (Blame, Instant) {
    (Blame::new(Evidence::default()), Instant::now())
}

fn who(blame: &Blame, name: &str, client: &str) -> Asker {
    let [client_high, client_low] = crate::filter::client_halves(client.parse().unwrap());
    let record = Query {
        client_high,
        client_low,
        name_length: name.len() as u16,
        ..query(1)
    };
    let bytes = name.as_bytes();
    blame.asker(&Alone { record, bytes })
}

fn question() -> Question {
    Question::Query(query(1), Box::default())
}

fn fail(blame: &Blame, now: Instant, who: Asker) -> bool {
    blame.failed(now, who, COST, "it trapped", question)
}

#[test]
fn a_name_is_blamed_for_longer_each_time() {
    let (blame, mut now) = blame();
    let bad = who(&blame, "bad", "192.0.2.1");
    assert!(!blame.is_open());
    for seconds in [1, 4, 16, 60, 60] {
        assert!(fail(&blame, now, bad));
        let other = who(&blame, "bad", "192.0.2.77");
        let end = now + Duration::from_secs(seconds);
        assert_eq!(blame.standing(end - COST, other), Standing::BadName);
        assert_eq!(blame.standing(end, other), Standing::Stranger, "{seconds}");
        now = end;
    }
    // Larger costs take longer to be paid off.
    let now = now + accounts::KEPT + accounts::LONGEST;
    blame.failed(now, bad, Duration::from_secs(1), "", question);
    assert_eq!(
        blame.standing(now + Duration::from_secs(9), bad),
        Standing::BadName
    );
    assert_eq!(
        blame.standing(now + Duration::from_secs(10), bad),
        Standing::Stranger
    );
}

#[test]
fn a_client_is_blamed_for_its_third_name() {
    let (blame, now) = blame();
    let of = |name: &str| who(&blame, name, "192.0.2.1");
    for name in ["a", "b"] {
        fail(&blame, now, of(name));
        fail(&blame, now, who(&blame, name, "192.0.2.9"));
        assert_eq!(blame.standing(now, of("good")), Standing::Stranger);
    }
    fail(&blame, now, of("c"));
    assert_eq!(blame.standing(now, of("good")), Standing::BadClient);
    // Clients that query the same names later are not to blame.
    assert_eq!(
        blame.standing(now, who(&blame, "good", "192.0.2.9")),
        Standing::Stranger
    );
    let later = now + accounts::FIRST;
    assert_eq!(blame.standing(later, of("good")), Standing::Stranger);
    fail(&blame, later, of("d"));
    assert_eq!(
        blame.standing(later + accounts::FIRST, of("good")),
        Standing::BadClient,
        "one more is enough"
    );
}

#[test]
fn clients_are_networks_of_the_lengths_that_rates_have() {
    let (blame, _) = blame();
    let same = |one: &str, other: &str| who(&blame, "a", one) == who(&blame, "a", other);
    assert!(!same("192.0.2.1", "192.0.2.2") && !same("2001:db8::1", "2001:db8::2"));
    blame.tell_apart_by((24, 56));
    assert!(same("192.0.2.1", "192.0.2.2") && !same("192.0.2.1", "192.0.3.1"));
    assert!(same("2001:db8::1", "2001:db8:0:ff::2") && !same("2001:db8::1", "2001:db8:0:100::1"));
}

#[test]
fn whoever_has_succeeded_since_is_known_until_it_fails() {
    let (blame, now) = blame();
    let good = who(&blame, "good", "192.0.2.1");
    blame.succeeded(good);
    assert_eq!(
        blame.standing(now, good),
        Standing::Stranger,
        "nobody has failed yet"
    );
    fail(&blame, now, who(&blame, "bad", "192.0.2.9"));
    blame.succeeded(good);
    for known in [
        who(&blame, "good", "192.0.2.2"),
        who(&blame, "other", "192.0.2.1"),
    ] {
        assert_eq!(blame.standing(now, known), Standing::Known);
    }
    for name in ["good", "x", "y"] {
        fail(&blame, now, who(&blame, name, "192.0.2.1"));
    }
    let later = now + accounts::LONGEST;
    assert_eq!(blame.standing(later, good), Standing::Stranger);
}

/// Names, clients and known ones: as many as there is room for, and not a byte more.
#[test]
fn the_book_is_bounded() {
    let (blame, now) = blame();
    let nobody = |number: usize| Asker {
        name: number as u64,
        client: number as u64,
    };
    for number in 0..accounts::ACCOUNTS {
        assert!(fail(&blame, now, nobody(number)));
    }
    assert!(!fail(&blame, now, nobody(accounts::ACCOUNTS)));
    // Accounts that are paid off make room.
    let later = now + accounts::FIRST + accounts::KEPT;
    assert!(fail(&blame, later, nobody(accounts::ACCOUNTS)));
    for number in 0..100_000 {
        blame.succeeded(nobody(1_000_000 + number));
    }
    assert_eq!(blame.standing(later, nobody(1_000_000)), Standing::Stranger);
    assert_eq!(blame.standing(later, nobody(1_099_999)), Standing::Known);
    let book = blame.book.lock();
    let octets =
        book.names.octets() + book.clients.octets() + book.known_names.octets() + book.known_clients.octets();
    assert!(octets <= OCTETS, "{octets} of {OCTETS}");
}

/// During probation a filter has to fail for eight names and four clients.
#[test]
fn evidence_is_of_many_names_and_clients() {
    let counters = Arc::new(FilterCounters::default());
    let alarm = Arc::<Notify>::default();
    let begin = |queries| {
        let probation = Probation::begin(Arc::clone(&counters), queries, Arc::clone(&alarm));
        Blame::new(Evidence::of(probation))
    };
    let now = Instant::now();
    let fail_for = |blame: &Blame, names: std::ops::Range<usize>, clients: usize| {
        for number in names {
            let who = Asker {
                name: number as u64,
                client: (number % clients) as u64,
            };
            fail(blame, now, who);
        }
    };
    let blame = begin(100);
    fail_for(&blame, 0..40, 3);
    assert!(blame.take_evidence().is_none(), "of three clients");
    let blame = begin(100);
    fail_for(&blame, 0..7, 7);
    fail_for(&blame, 0..7, 5);
    assert!(blame.take_evidence().is_none(), "of seven names");
    fail_for(&blame, 7..8, 8);
    let (why, questions) = blame.take_evidence().unwrap();
    assert_eq!((why.as_str(), questions.len()), ("it trapped", 8));
    assert!(blame.take_evidence().is_none(), "it is given out once");
    // Queries for which it was not called do not count; those for which it was called end probation.
    let blame = begin(100);
    counters.queries.items.fetch_add(150, Ordering::Relaxed);
    counters.uncalled.client.fetch_add(50, Ordering::Relaxed);
    fail_for(&blame, 0..7, 7);
    counters.responses.items.fetch_add(1, Ordering::Relaxed);
    fail_for(&blame, 7..20, 20);
    assert!(blame.take_evidence().is_none());
    let none = begin(0);
    counters.queries.items.fetch_add(1, Ordering::Relaxed);
    fail_for(&none, 0..20, 20);
    assert!(none.take_evidence().is_none());
}
