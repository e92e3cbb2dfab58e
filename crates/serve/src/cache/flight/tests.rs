use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

fn key(name: &[u8]) -> Key<'_> {
    Key::new(u64::from(name[0]) << 48, name, 1, 1, KeyFlags::default(), 0)
}

fn lead<T: Clone + Send + Sync>(join: Join<T>) -> Leader<T> {
    match join {
        Join::Lead(leader) => leader,
        _ => panic!("not the leader"),
    }
}

fn follow<T: Clone + Send + Sync>(join: Join<T>) -> Follower<T> {
    match join {
        Join::Follow(follower) => follower,
        _ => panic!("not a follower"),
    }
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<T: Clone + Send + Sync>(follower: &mut Follower<T>, count: &Arc<Count>) -> Poll<Option<T>> {
    Pin::new(follower).poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
}

fn woken(count: &Count) -> u32 {
    count.0.load(Ordering::Relaxed)
}

#[test]
fn one_leads_and_all_get_its_result() {
    let flights = Flights::<u32>::new();
    let leader = lead(flights.join(&key(b"a")));
    let other = lead(flights.join(&key(b"b")));
    let counts = [(); 3].map(|()| Arc::new(Count::default()));
    let mut followers = [(); 3].map(|()| follow(flights.join(&key(b"a"))));
    assert_eq!((flights.len(), leader.followers()), (2, 3));
    // The third is not polled before there is a result; the first is polled again, with another waker.
    assert!(poll(&mut followers[0], &counts[2]).is_pending());
    for at in [0, 0, 1] {
        assert!(poll(&mut followers[at], &counts[at]).is_pending());
    }
    leader.finish(7);
    assert_eq!(counts.each_ref().map(|count| woken(count)), [1, 1, 0]);
    for follower in &mut followers {
        assert_eq!(poll(follower, &counts[2]), Poll::Ready(Some(7)));
    }
    assert_eq!(flights.len(), 1);
    drop(other);
    assert_eq!(flights.len(), 0);
}

#[test]
fn a_leader_that_gives_up_tells_its_followers() {
    let flights = Flights::<u32>::new();
    let leader = lead(flights.join(&key(b"a")));
    let count = Arc::new(Count::default());
    let mut follower = follow(flights.join(&key(b"a")));
    assert!(poll(&mut follower, &count).is_pending());
    drop(leader);
    assert_eq!(woken(&count), 1);
    assert_eq!(poll(&mut follower, &count), Poll::Ready(None));
    lead(flights.join(&key(b"a"))).finish(1);
}

#[test]
fn the_question_is_free_before_followers_run() {
    /// Joins when it is woken, like a follower that starts over.
    struct Rejoin(Arc<Flights<u32>>, AtomicU32);
    impl Wake for Rejoin {
        fn wake(self: Arc<Self>) {
            if let Join::Lead(_) = self.0.join(&key(b"a")) {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let flights = Flights::<u32>::new();
    let leader = lead(flights.join(&key(b"a")));
    let mut follower = follow(flights.join(&key(b"a")));
    let rejoin = Arc::new(Rejoin(Arc::clone(&flights), AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&rejoin));
    assert!(
        Pin::new(&mut follower)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    leader.finish(7);
    assert_eq!(rejoin.1.load(Ordering::Relaxed), 1);
}

#[test]
fn places_of_followers_that_left_are_used_again() {
    let flights = Flights::<u32>::new();
    let leader = lead(flights.join(&key(b"a")));
    let count = Arc::new(Count::default());
    let mut first = follow(flights.join(&key(b"a")));
    let second = follow(flights.join(&key(b"a")));
    assert!(poll(&mut first, &count).is_pending());
    drop(first);
    assert_eq!(leader.followers(), 1);
    let third = follow(flights.join(&key(b"a")));
    assert_eq!((leader.followers(), third.place), (2, 0));
    leader.finish(7);
    assert_eq!(woken(&count), 0, "a follower that left is not woken");
    drop((second, third));
    assert_eq!(flights.len(), 0);
}

/// The answer is cached first, and callers that ask meanwhile follow.
#[test]
fn a_result_is_told_when_the_leader_is_dropped() {
    let flights = Flights::<u32>::new();
    let leader = lead(flights.join(&key(b"a"))).with(7);
    let count = Arc::new(Count::default());
    let mut follower = follow(flights.join(&key(b"a")));
    assert!(poll(&mut follower, &count).is_pending());
    drop(leader);
    assert_eq!(
        (woken(&count), poll(&mut follower, &count)),
        (1, Poll::Ready(Some(7)))
    );
}

#[test]
fn questions_that_differ_in_any_field_do_not_share_a_flight() {
    let flights = Flights::<u32>::new();
    let base = key(b"a");
    let all = [
        base,
        Key { name: b"b", ..base },
        Key { qtype: 28, ..base },
        Key { qclass: 3, ..base },
        Key {
            flags: KeyFlags::new(true, false),
            ..base
        },
        Key {
            flags: KeyFlags::default().with_recursion(false),
            ..base
        },
        Key { partition: 1, ..base },
    ];
    let leaders = all.map(|key| lead(flights.join(&key)));
    assert_eq!(flights.len(), leaders.len());
}

/// Workers with their own runtimes ask for the same few names over and over. Whatever the timing, there is at
/// most one leader per name at a time, and every caller gets the result of a leader of that name.
#[test]
fn over_threads_and_runtimes_one_leads_and_nobody_is_forgotten() {
    const THREADS: usize = 4;
    const CLIENTS: usize = 250;
    const ROUNDS: usize = 20;
    let names: [&[u8]; 2] = [b"a", b"b"];
    let flights = Flights::<usize>::new();
    let leading = [const { AtomicUsize::new(0) }; 2];
    let (led, answered, abandoned) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Barrier::new(THREADS);
    let client = async |n: usize| {
        for round in 0..ROUNDS {
            let at = (n + round) % names.len();
            match flights.join(&key(names[at])) {
                Join::Lead(leader) => {
                    assert_eq!(leading[at].fetch_add(1, Ordering::SeqCst), 0, "two leaders");
                    led.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..(n + round) % 5 {
                        tokio::task::yield_now().await;
                    }
                    leading[at].fetch_sub(1, Ordering::SeqCst);
                    if (n + round).is_multiple_of(3) {
                        drop(leader)
                    } else {
                        leader.finish(at)
                    }
                }
                // Some poll once and leave.
                Join::Follow(mut follower) if (n + round).is_multiple_of(7) => {
                    std::future::poll_fn(|context| {
                        let _ = Pin::new(&mut follower).poll(context);
                        Poll::Ready(())
                    })
                    .await;
                }
                Join::Follow(follower) => match follower.await {
                    Some(result) => {
                        assert_eq!(result, at);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    None => _ = abandoned.fetch_add(1, Ordering::Relaxed),
                },
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let runtime = tokio::runtime::LocalRuntime::new().expect("a runtime");
                start.wait();
                runtime.block_on(async {
                    let mut clients: Vec<_> = (0..CLIENTS).map(|n| Box::pin(client(n))).collect();
                    std::future::poll_fn(|context| {
                        clients.retain_mut(|client| client.as_mut().poll(context).is_pending());
                        if clients.is_empty() {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    })
                    .await;
                });
            });
        }
    });
    assert_eq!(flights.len(), 0);
    let [led, answered, abandoned] = [led, answered, abandoned].map(AtomicUsize::into_inner);
    assert!(
        led > 0 && answered > 0 && abandoned > 0,
        "{led} {answered} {abandoned}"
    );
    assert!(led + answered + abandoned <= THREADS * CLIENTS * ROUNDS);
}
