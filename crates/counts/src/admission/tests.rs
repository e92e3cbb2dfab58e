use std::task::Wake;

use super::*;

/// Long enough that no test reaches it.
const SAFE: Duration = Duration::from_secs(3600);

fn client(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

fn displaced(place: &Place) -> bool {
    place
        .poll_displaced(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

impl Room {
    /// Enters as most tests need it.
    fn admit(self: &Arc<Self>, client: IpAddr, subject: impl Hash) -> Result<Place, Full> {
        self.enter(client, subject, Instant::now(), SAFE)
    }
}

/// Takes `count` places for one client, each about another subject.
fn fill(admission: &Arc<Room>, who: u8, count: usize) -> Vec<Place> {
    let enter = |about| admission.admit(client(who), (who, about)).unwrap();
    (0..count).map(enter).collect()
}

#[test]
fn places_come_back() {
    let admission = Room::new(2);
    let first = admission.admit(client(1), "a").unwrap();
    let second = admission.admit(client(1), "b").unwrap();
    assert_eq!(admission.admit(client(1), "c").unwrap_err(), Full);
    assert_eq!(admission.inside(), 2);
    drop(first);
    let third = admission.admit(client(1), "c").unwrap();
    assert!(!displaced(&second) && !displaced(&third));
    drop((second, third));
    assert_eq!(admission.inside(), 0);
}

#[test]
fn the_oldest_of_the_client_with_the_most_gives_way() {
    let admission = Room::new(4);
    let calm = fill(&admission, 1, 1);
    let greedy = fill(&admission, 2, 3);
    let newcomer = admission.admit(client(1), "new").unwrap();
    let gone: Vec<bool> = greedy.iter().map(displaced).collect();
    assert_eq!(gone, [true, false, false]);
    assert!(!displaced(&calm[0]) && !displaced(&newcomer));
    // Two each: neither has more than the other would have.
    assert_eq!(admission.admit(client(1), "one more").unwrap_err(), Full);
    assert_eq!(admission.admit(client(2), "one more").unwrap_err(), Full);
    // A displaced holder has no place to give back.
    drop(greedy);
    assert_eq!(admission.inside(), 2);
}

#[test]
fn one_client_cannot_keep_others_out() {
    let admission = Room::new(100);
    let mut flood = fill(&admission, 1, 100);
    let calm: Vec<Place> = (2..=40)
        .map(|who| admission.admit(client(who), "calm").unwrap())
        .collect();
    // Whatever the flood does.
    for about in 0..1000 {
        flood.extend(admission.admit(client(1), about));
    }
    assert!(!calm.iter().any(displaced));
    assert_eq!(admission.inside(), 100);
}

#[test]
fn a_subject_cannot_keep_others_out() {
    let admission = Room::new(10);
    let dead: Vec<Place> = (0..10)
        .map(|who| admission.admit(client(who), "dead.example").unwrap())
        .collect();
    let well = admission.admit(client(20), "well.example").unwrap();
    assert!(displaced(&dead[0]) && !displaced(&well));
    assert_eq!(
        admission.admit(client(21), "dead.example").unwrap_err(),
        Full,
        "for itself it makes no room"
    );
}

#[test]
fn a_smaller_client_does_not_pay_for_a_larger_ones_choice_of_subjects() {
    let admission = Room::new(10);
    let calm: Vec<Place> = (0..3)
        .map(|_| admission.admit(client(1), "cluster.local").unwrap())
        .collect();
    let flood = fill(&admission, 2, 7);
    assert_eq!(admission.admit(client(2), "new").unwrap_err(), Full);
    assert!(!calm.iter().chain(&flood).any(displaced));
}

#[test]
fn what_has_been_there_for_the_jostle_time_gives_way_to_its_own_client() {
    let admission = Room::new(2);
    let old = fill(&admission, 1, 2);
    let new = admission
        .enter(client(1), "new", Instant::now(), Duration::ZERO)
        .unwrap();
    assert_eq!(old.iter().map(displaced).collect::<Vec<_>>(), [true, false]);
    assert!(!displaced(&new));
    let other = admission.admit(client(2), "other").unwrap();
    assert!(displaced(&old[1]) && !displaced(&new) && !displaced(&other));
}

#[test]
fn where_all_have_as_much_the_oldest_of_all_gives_way() {
    for jostle in [Duration::ZERO, SAFE] {
        let admission = Room::new(4);
        let held: Vec<Place> = (1..5).flat_map(|who| fill(&admission, who, 1)).collect();
        let newcomer = admission.enter(client(9), "new", Instant::now(), jostle);
        assert_eq!(newcomer.is_ok(), jostle == Duration::ZERO);
        let gone: Vec<bool> = held.iter().map(displaced).collect();
        assert_eq!(gone, [newcomer.is_ok(), false, false, false]);
    }
}

/// Source addresses that all differ, or are forged: each has one place, and cannot take those of a client
/// with a few.
#[test]
fn a_few_places_are_safe_from_many_clients() {
    let admission = Room::new(64);
    let calm = fill(&admission, 1, 4);
    let _crowd: Vec<Place> = (10..70).flat_map(|who| fill(&admission, who, 1)).collect();
    for who in 100..200 {
        assert_eq!(admission.admit(client(who), "new").unwrap_err(), Full);
    }
    assert!(!calm.iter().any(displaced));
}

#[test]
fn whoever_holds_a_place_is_woken() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let admission = Room::new(2);
    let held = fill(&admission, 1, 2);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    assert!(
        held[0]
            .poll_displaced(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let _other = admission.admit(client(2), "a").unwrap();
    assert!(woken.0.load(Ordering::Relaxed) && displaced(&held[0]));
}

/// Shares are recounted whenever the room gets crowded, and stay right as requests come and go.
#[test]
fn shares_agree_with_who_is_inside() {
    let admission = Room::new(16);
    let mut places = Vec::new();
    for step in 0..2000_usize {
        let client = client((step * 7 % 5) as u8);
        places.extend(admission.enter(client, step * 11 % 6, Instant::now(), Duration::ZERO));
        if step % 3 != 0 || step % 200 > 150 {
            drop(places.remove(step * 13 % places.len()));
        }
        let room = admission.inner.lock();
        assert!(room.inside.len() <= 16);
        if let Some(shares) = &room.shares {
            let sizes: usize = shares.clients.sizes.values().sum();
            assert_eq!(
                (shares.clients.members.len(), sizes, shares.subjects.members.len()),
                (room.inside.len(), room.inside.len(), room.inside.len())
            );
            assert_eq!(shares.clients.by_size.len(), shares.clients.sizes.len());
        }
    }
}
