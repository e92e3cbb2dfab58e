//! Which upstream is asked when, how often, and for how long.

use std::cell::Cell;

use super::super::bounds::{ATTEMPT_OCTETS, QUERY_OCTETS};
use super::super::left_behind::MOST_LEFT;
use super::*;
use crate::dns::name::Name;
use crate::histogram::Histogram;

/// `most_octets` must not count less for a query and its attempts than they take.
#[test]
fn a_query_and_its_attempts_are_no_larger_than_what_is_counted_for_them() {
    run(async {
        let forward = to(&[nobody().await]);
        let asked = query_with_edns("example.com");
        let query = Rc::new(super::super::message::Query::new(asked.clone()).unwrap());
        let resolving = size_of_val(&forward.resolve(&asked, None));
        let deadline = tokio::time::Instant::now();
        let attempt =
            size_of_val(&Rc::clone(&forward).attempt(0, Protocol::Udp, query.clone(), deadline, deadline));
        let exchange = size_of_val(&forward.pools[0].exchange(&query, PROMPT));
        let name = 255;
        assert!(resolving + 2 * (name + 64) + 1232 < QUERY_OCTETS, "{resolving}");
        assert!(
            attempt + exchange + 256 < ATTEMPT_OCTETS,
            "{attempt} and {exchange}"
        );
    });
}

#[test]
fn servfail_and_refused_lead_to_the_next_upstream() {
    for (rcode, reason) in [(SERVFAIL, Reason::Servfail), (REFUSED, Reason::Refused)] {
        run(async move {
            let (bad, _) = udp(move |_, query| vec![empty(query, code(rcode))]).await;
            let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
            let forward = to(&[bad, good]);
            let begin = Instant::now();
            let got = forward.resolve(&query("example.com"), None).await.unwrap();
            assert_eq!(got.upstream, good);
            assert!(begin.elapsed() < PROMPT);
            assert_eq!(forward.failures(0, reason), 1);
        });
    }
}

#[test]
fn if_all_decline_the_last_to_do_so_is_the_answer() {
    run(async {
        let (first, first_log) = udp(|_, query| vec![empty(query, code(SERVFAIL))]).await;
        let (second, _) = udp(|_, query| vec![empty(query, code(REFUSED))]).await;
        let asked = query("example.com");
        let got = to(&[first, second]).resolve(&asked, None).await.unwrap();
        assert_eq!(
            (got.upstream, got.message),
            (second, empty(&asked, code(REFUSED)))
        );
        assert_eq!(
            first_log.borrow().len(),
            1,
            "it said no once; it is not asked again for the same query"
        );
    });
}

#[test]
fn silence_makes_the_next_upstream_be_asked_long_before_the_timeout() {
    run(async {
        let (silent, _) = udp(|_, _| vec![]).await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = forward(&config::Forward {
            timeout: Duration::from_secs(20),
            ..config(&[silent, good])
        });
        // It was fast so far.
        (0..20).for_each(|_| forward.shared.upstreams()[0].measured(Duration::from_millis(1)));
        let begin = Instant::now();
        let got = forward.resolve(&query("example.com"), None).await.unwrap();
        let took = begin.elapsed();
        assert_eq!(got.upstream, good);
        assert!((Duration::from_millis(10)..PROMPT).contains(&took), "{took:?}");
        assert_eq!(forward.shared.upstreams()[1].counters.hedges.load(Relaxed), 1);
    });
}

#[test]
fn the_first_of_two_attempts_may_still_win() {
    run(async {
        let (socket, _, late) = sockets().await;
        let (silent, silent_log) = udp(|_, _| vec![]).await;
        let forward = forward(&config::Forward {
            timeout: Duration::from_secs(20),
            ..config(&[late, silent])
        });
        (0..20).for_each(|_| forward.shared.upstreams()[0].measured(Duration::from_millis(1)));
        let asked = query("example.com");
        let mut buffer = [0; 512];
        let (got, ()) = tokio::join!(forward.resolve(&asked, None), async {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            while silent_log.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
            socket.send_to(&answer(&buffer[..length], 1), from).await.unwrap();
        });
        assert_eq!(got.unwrap().upstream, late);
    });
}

#[test]
fn losing_every_third_query_costs_no_timeout() {
    run(async {
        let (lossy, _) = udp(|n, query| {
            if n % 3 == 2 {
                vec![]
            } else {
                vec![answer(query, 1)]
            }
        })
        .await;
        let forward = forward(&config::Forward {
            timeout: Duration::from_secs(20),
            ..config(&[lossy])
        });
        for _ in 0..30 {
            let begin = Instant::now();
            forward.resolve(&query("example.com"), None).await.unwrap();
            let took = begin.elapsed();
            assert!(took < PROMPT, "{took:?}");
        }
        assert!(forward.shared.upstreams()[0].counters.hedges.load(Relaxed) >= 10);
    });
}

/// An upstream that loses queries must not look like one that loses none, even if another answers.
#[test]
fn what_is_lost_is_counted_though_another_attempt_brought_the_answer() {
    run(async {
        let (lossy, log) = udp(|n, query| match n % 3 {
            2 => vec![],
            _ => vec![answer(query, 1)],
        })
        .await;
        let (silent, unheard) = udp(|_, _| vec![]).await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        for (upstreams, log) in [(vec![lossy], log), (vec![silent, good], unheard)] {
            // Lost attempts are listened for until this timeout.
            let forward = forward(&config::Forward {
                timeout: Duration::from_secs(3),
                ..config(&upstreams)
            });
            (0..20).for_each(|_| forward.shared.upstreams()[0].measured(Duration::from_millis(1)));
            for _ in 0..12 {
                forward.resolve(&query("example.com"), None).await.unwrap();
            }
            let lost = |sent: usize| if upstreams == [lossy] { sent / 3 } else { sent };
            until(|| forward.failures(0, Reason::Timeout) == lost(log.borrow().len()) as u64).await;
            assert!(forward.failures(0, Reason::Timeout) > 3);
            assert_eq!(Rc::strong_count(&forward), 1, "nothing is left");
        }
    });
}

/// It was slow, and another was faster: nothing was lost.
#[test]
fn what_comes_late_is_no_failure() {
    run(async {
        let (socket, _, slow) = sockets().await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = forward(&config::Forward {
            timeout: Duration::from_secs(20),
            deadline: Duration::from_secs(20),
            ..config(&[slow, good])
        });
        let upstream = &forward.shared.upstreams()[0];
        (0..20).for_each(|_| upstream.measured(Duration::from_millis(1)));
        let rto = upstream.rto();
        let got = forward.resolve(&query("example.com"), None).await.unwrap();
        assert_eq!(got.upstream, good);
        let mut buffer = [0; 512];
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&answer(&buffer[..length], 1), from).await.unwrap();
        until(|| Rc::strong_count(&forward) == 1).await;
        assert!(
            upstream
                .counters
                .failures
                .iter()
                .all(|count| count.load(Relaxed) == 0)
        );
        let (_, buckets) = Histogram::total(std::iter::once(&upstream.counters.durations));
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 1);
        assert_eq!(
            upstream.rto(),
            rto,
            "what nobody waited for makes nobody wait longer"
        );
    });
}

/// A worker listens for a bounded number.
#[test]
fn those_left_behind_are_bounded() {
    run(async {
        let (silent, _) = udp(|_, _| vec![]).await;
        let forward = to(&[silent]);
        for _ in 0..2 * MOST_LEFT {
            forward.left.listen_for(Box::pin(std::future::pending()));
        }
        assert_eq!(Rc::strong_count(&forward.left), 1 + MOST_LEFT);
    });
}

#[test]
fn total_silence_ends_after_the_attempts_and_names_the_upstream() {
    run(async {
        let (silent, log) = udp(|_, _| vec![]).await;
        let forward = forward(&config::Forward {
            timeout: Duration::from_millis(60),
            ..config(&[silent])
        });
        let failure = forward.resolve(&query("example.com"), None).await.unwrap_err();
        assert_eq!(failure, Failure::NoReply(vec![(silent, Fault::Timeout); 3]));
        assert_eq!(failure.extended_error().code(), 22);
        assert!(failure.to_string().contains(&silent.to_string()));
        assert_eq!(log.borrow().len(), 3);
    });
}

#[test]
fn the_deadline_bounds_all_attempts() {
    run(async {
        let (silent, _) = udp(|_, _| vec![]).await;
        let deadline = Duration::from_millis(100);
        let forward = forward(&config::Forward {
            timeout: Duration::from_secs(20),
            deadline,
            ..config(&[silent])
        });
        let begin = std::time::Instant::now();
        forward.resolve(&query("example.com"), None).await.unwrap_err();
        assert!(
            (deadline..deadline + PROMPT).contains(&begin.elapsed()),
            "{:?}",
            begin.elapsed()
        );
    });
}

#[test]
fn where_nobody_listens_fails_at_once() {
    run(async {
        let (first, second) = (nobody().await, nobody().await);
        let begin = std::time::Instant::now();
        let failure = to(&[first, second])
            .resolve(&query("example.com"), None)
            .await
            .unwrap_err();
        // The last one is asked again: another server may have the next port.
        let tried = [first, second, second].map(|upstream| (upstream, Fault::Refused));
        assert_eq!(failure, Failure::NoReply(tried.to_vec()));
        assert_eq!(failure.extended_error().code(), 23);
        assert!(begin.elapsed() < PROMPT);
    });
}

#[test]
fn no_more_queries_than_allowed_are_under_way() {
    let upstream = "192.0.2.1:53".parse().unwrap();
    let config = config::Forward {
        concurrent: 2,
        jostle: Some(Duration::from_secs(3600)),
        ..config(&[upstream])
    };
    let forwarder = Forwarder::new(&config, &Name::ROOT, 1);
    let client = "192.0.2.2".parse().unwrap();
    let places = [b"a", b"b"].map(|about| {
        forwarder
            .admit(client, about, tokio::time::Instant::now())
            .unwrap()
    });
    let failure = forwarder
        .admit(client, b"c", tokio::time::Instant::now())
        .unwrap_err();
    assert_eq!(failure, Failure::Overloaded { concurrent: 2 });
    assert!(failure.is_local());
    assert_eq!(forwarder.under_way.inside(), 2);
    drop(places);
    assert_eq!(forwarder.under_way.inside(), 0);
}

/// Its row in the configuration cannot name the constant.
#[test]
fn the_default_of_jostle_is_described() {
    let most = format!("at most {:?}", config::spell_duration(crate::admission::JOSTLE));
    let shown = config::glossary(Some("jostle"));
    assert!(shown.contains(&most), "{shown}");
}

/// RFC 9520 section 2: a failure for lack of a socket says nothing about the name.
#[test]
fn what_is_missing_here_is_no_failure_of_upstreams() {
    let upstream = "192.0.2.1:53".parse().unwrap();
    let tried = |faults: &[Fault]| Failure::NoReply(faults.iter().map(|&fault| (upstream, fault)).collect());
    let local = Fault::Local(std::io::ErrorKind::OutOfMemory);
    for (failure, expected) in [
        (tried(&[Fault::Timeout, Fault::Refused]), false),
        (tried(&[Fault::Timeout, local]), true),
        (tried(&[Fault::Busy]), true),
        (tried(&[Fault::Timeout, Fault::Denied]), true),
        (
            tried(&[Fault::Network(std::io::ErrorKind::NetworkUnreachable)]),
            true,
        ),
        (
            tried(&[Fault::Network(std::io::ErrorKind::HostUnreachable)]),
            false,
        ),
        (Failure::Displaced, true),
        (Failure::NoTime, true),
        (Failure::AllLoop, false),
    ] {
        assert_eq!(failure.is_local(), expected, "{failure}");
    }
}

#[test]
fn a_query_that_is_given_up_leaves_no_socket_behind_the_worker() {
    run(async {
        let (socket, _, address) = sockets().await;
        let forward = to(&[address]);
        let asked = query("example.com");
        let mut buffer = [0; 512];
        let (_, from) = tokio::select! {
            _ = forward.resolve(&asked, None) => panic!("nobody answered"),
            received = socket.recv_from(&mut buffer) => received.unwrap(),
        };
        assert_eq!(Rc::strong_count(&forward), 1);
        assert!(std::net::UdpSocket::bind(from).is_err());
        drop(forward);
        until(|| std::net::UdpSocket::bind(from).is_ok()).await;
    });
}

#[test]
fn hedges_that_bring_nothing_come_to_an_end() {
    run(async {
        let (silent, log) = udp(|_, _| vec![]).await;
        let forward = forward(&config::Forward {
            timeout: Duration::from_secs(20),
            deadline: Duration::from_secs(20),
            concurrent: 1000,
            ..config(&[silent])
        });
        let upstream = &forward.shared.upstreams()[0];
        (0..20).for_each(|_| upstream.measured(Duration::from_millis(1)));
        let under_way: Vec<_> = (0..100)
            .map(|_| {
                let (forward, asked) = (forward.clone(), query("example.com"));
                tokio::task::spawn_local(async move { forward.resolve(&asked, None).await })
            })
            .collect();
        // By then every query that may send a hedge has sent it.
        until(|| log.borrow().len() >= 132).await;
        tokio::time::sleep(2 * upstream.rto()).await;
        assert_eq!(log.borrow().len(), 132);
        assert_eq!(upstream.counters.hedges.load(Relaxed), 32);
        under_way.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

#[test]
fn an_upstream_that_is_silent_three_times_is_asked_over_tcp() {
    run(async {
        let (socket, listener, address) = sockets().await;
        let log = serve_udp(socket, |_, _| vec![]);
        serve_tcp(listener, |_, mut stream| async move {
            while let Some(asked) = read(&mut stream).await {
                write(&mut stream, &answer(&asked, 4)).await;
            }
        });
        let forward = forward(&config::Forward {
            attempts: 4,
            timeout: Duration::from_secs(20),
            ..config(&[address])
        });
        (0..20).for_each(|_| forward.shared.upstreams()[0].measured(Duration::from_millis(1)));
        let got = forward.resolve(&query("example.com"), None).await.unwrap();
        assert_eq!((last_byte(&got.message), log.borrow().len()), (4, 3));
    });
}

#[test]
fn round_robin_spreads_queries_evenly() {
    run(async {
        let counts: Vec<Rc<Cell<u32>>> = (0..3).map(|_| Rc::default()).collect();
        let mut upstreams = Vec::new();
        for count in counts.clone() {
            let (address, _) = udp(move |_, query| {
                count.set(count.get() + 1);
                vec![answer(query, 1)]
            })
            .await;
            upstreams.push(address);
        }
        let forward = forward(&config::Forward {
            policy: Policy::RoundRobin,
            ..config(&upstreams)
        });
        for _ in 0..9 {
            forward.resolve(&query("example.com"), None).await.unwrap();
        }
        assert_eq!(
            counts.iter().map(|count| count.get()).collect::<Vec<_>>(),
            [3, 3, 3]
        );
    });
}
