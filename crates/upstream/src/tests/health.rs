//! Upstreams that go out and come back.

use super::*;

/// Answers `. NS` and nothing else.
fn only_the_root(query: &[u8]) -> Vec<Vec<u8>> {
    if query[12] == 0 {
        vec![empty(query, 0)]
    } else {
        vec![]
    }
}

#[test]
fn an_upstream_that_fails_is_probed_and_left_out_until_it_is_back() {
    run(async {
        let bad = nobody().await;
        let (good, log) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = below(
            "example.com",
            &config::Forward {
                max_fails: 2,
                ..config(&[bad, good])
            },
        );
        let upstream = forward.shared.upstreams()[0].clone();
        for _ in 0..2 {
            let got = forward.resolve(&query("www.example.com"), None).await.unwrap();
            assert_eq!(got.upstream, good);
        }
        until(|| !upstream.healthy()).await;
        let asked = upstream.counters.udp.load(Relaxed);
        for _ in 0..2 {
            assert_eq!(
                forward
                    .resolve(&query("www.example.com"), None)
                    .await
                    .unwrap()
                    .upstream,
                good
            );
        }
        assert_eq!(
            (upstream.counters.udp.load(Relaxed), asked),
            (2, 2),
            "asked while out"
        );
        assert_eq!(log.borrow().len(), 4);

        // It comes back at the same address, and probes ask for the zone's NS records.
        let socket = tokio::net::UdpSocket::bind(bad).await.unwrap();
        let probes = serve_udp(socket, |_, query| vec![empty(query, 0)]);
        until(|| upstream.healthy()).await;
        let is_probe =
            |asked: &&Vec<u8>| asked[2..] == *b"\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x02\0\x01";
        assert!(probes.borrow().iter().any(|asked| is_probe(&asked)));
    });
}

/// Clients that ask for names whose own servers are silent must not take the upstream out for others.
#[test]
fn silent_names_do_not_take_a_healthy_upstream_out() {
    run(async {
        let (upstream, log) = udp(|_, query| only_the_root(query)).await;
        let forward = forward(&config::Forward {
            max_fails: 1,
            attempts: 1,
            timeout: Duration::from_millis(50),
            ..config(&[upstream])
        });
        let probes = || log.borrow().iter().filter(|asked| asked[12] == 0).count();
        let upstream = &forward.shared.upstreams()[0];
        for _ in 0..3 {
            let before = probes();
            until(|| upstream.health.claim_probe()).await;
            upstream.health.probe_ended();
            forward.resolve(&query("silent.example"), None).await.unwrap_err();
            until(|| probes() > before).await;
            assert!(upstream.healthy());
        }
        assert_eq!(upstream.counters.failed_probes.load(Relaxed), 0);
    });
}

#[test]
fn an_upstream_that_says_servfail_or_refused_of_the_zone_itself_is_out() {
    for rcode in [SERVFAIL, REFUSED] {
        run(async move {
            let (bad, log) = udp(move |_, query| vec![empty(query, code(rcode))]).await;
            let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
            let forward = forward(&config::Forward {
                max_fails: 2,
                ..config(&[bad, good])
            });
            let upstream = &forward.shared.upstreams()[0];
            for _ in 0..2 {
                assert_eq!(
                    forward
                        .resolve(&query("example.com"), None)
                        .await
                        .unwrap()
                        .upstream,
                    good
                );
            }
            until(|| !upstream.healthy()).await;
            let asked = || log.borrow().iter().filter(|asked| asked[12] != 0).count();
            let before = asked();
            forward.resolve(&query("example.com"), None).await.unwrap();
            assert_eq!(asked(), before);
            assert!(upstream.counters.failed_probes.load(Relaxed) >= 1);
        });
    }
}

#[test]
fn an_upstream_over_tcp_is_probed_over_tcp() {
    run(async {
        let bad = nobody().await;
        let forward = forward(&config::Forward {
            max_fails: 1,
            protocol: Protocol::Tcp,
            ..config(&[bad])
        });
        let failure = forward.resolve(&query("example.com"), None).await.unwrap_err();
        assert_eq!(failure, Failure::NoReply(vec![(bad, Fault::Refused); 3]));
        let upstream = forward.shared.upstreams()[0].clone();
        until(|| !upstream.healthy()).await;
        serve_tcp(
            tokio::net::TcpListener::bind(bad).await.unwrap(),
            |_, mut stream| async move {
                let query = read(&mut stream).await.unwrap();
                write(&mut stream, &empty(&query, 0)).await;
            },
        );
        until(|| upstream.healthy()).await;
    });
}

#[test]
fn when_all_are_out_they_are_asked_anyway() {
    run(async {
        let down = nobody().await;
        let forward = forward(&config::Forward {
            max_fails: 1,
            // Too long for a probe to help.
            probe: Duration::from_secs(3600),
            ..config(&[down])
        });
        forward.resolve(&query("example.com"), None).await.unwrap_err();
        until(|| !forward.shared.upstreams()[0].healthy()).await;
        let begin = std::time::Instant::now();
        forward.resolve(&query("example.com"), None).await.unwrap_err();
        assert!(begin.elapsed() < PROMPT);

        serve_udp(tokio::net::UdpSocket::bind(down).await.unwrap(), |_, query| {
            vec![answer(query, 1)]
        });
        forward.resolve(&query("example.com"), None).await.unwrap();
    });
}

#[test]
fn one_that_is_out_is_the_last_resort_when_the_others_refuse() {
    run(async {
        let healthy = nobody().await;
        let (out, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = forward(&config::Forward {
            max_fails: 100,
            ..config(&[healthy, out])
        });
        let upstream = &forward.shared.upstreams()[1];
        upstream.health.probe_failed(&"silence");
        assert!(!upstream.healthy());
        assert_eq!(
            forward
                .resolve(&query("example.com"), None)
                .await
                .unwrap()
                .upstream,
            out
        );
    });
}

#[test]
fn a_dead_upstream_does_not_cost_every_query_its_rto() {
    run(async {
        let (dead, log) = udp(|_, _| vec![]).await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = forward(&config::Forward {
            max_fails: 1,
            // On any machine, being overtaken four times takes less: only that can raise the suspicion.
            timeout: Duration::from_secs(1),
            deadline: Duration::from_secs(20),
            ..config(&[dead, good])
        });
        let upstream = &forward.shared.upstreams()[0];
        (0..20).for_each(|_| upstream.measured(Duration::from_millis(1)));
        until_async(|| async {
            let got = forward.resolve(&query("example.com"), None).await.unwrap();
            assert_eq!(got.upstream, good);
            !upstream.healthy()
        })
        .await;
        let asked = || log.borrow().iter().filter(|query| query[12] != 0).count();
        let before = asked();
        for _ in 0..8 {
            forward.resolve(&query("example.com"), None).await.unwrap();
        }
        assert_eq!(asked(), before);
    });
}

#[test]
fn the_probe_ends_with_the_stage() {
    run(async {
        let forward = forward(&config::Forward {
            max_fails: 1,
            ..config(&[nobody().await])
        });
        forward.resolve(&query("example.com"), None).await.unwrap_err();
        let shared = std::sync::Arc::downgrade(&forward.shared);
        drop(forward);
        until(|| shared.strong_count() == 0).await;
        until(|| shared.weak_count() <= 1).await;
    });
}

#[test]
fn the_first_answer_is_told_and_refusals_are_none() {
    run(async {
        let (upstream, _) = udp(|_, query| vec![empty(query, code(REFUSED))]).await;
        let forward = to(&[upstream]);
        forward.shared.begin();
        until(|| forward.shared.upstreams()[0].counters.failed_probes.load(Relaxed) > 0).await;
        assert!(!forward.shared.has_answer());

        let (upstream, _) = udp(|_, query| only_the_root(query)).await;
        let forward = to(&[upstream]);
        forward.shared.begin();
        tokio::time::timeout(SOON, forward.shared.answer()).await.unwrap();
        assert!(forward.shared.has_answer());

        // A client's query serves as well.
        let (upstream, _) = udp(|_, query| vec![answer(query, 1)]).await;
        let forward = to(&[upstream]);
        forward.resolve(&query("example.com"), None).await.unwrap();
        assert!(forward.shared.has_answer());
    });
}
