//! Upstreams that go out and come back, and those that lead back to us.

use super::*;

#[test]
fn an_upstream_that_fails_is_left_out_and_probed_until_it_is_back() {
    run(async {
        let bad = nobody().await;
        let (good, log) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = forward(&config::Forward {
            max_fails: 2,
            ..config(&[bad, good])
        });
        let upstream = forward.shared.upstreams()[0].clone();
        for _ in 0..4 {
            assert_eq!(
                forward.resolve(&query("example.com")).await.unwrap().upstream,
                good
            );
        }
        assert!(!upstream.healthy());
        assert_eq!(
            upstream.counters.udp.load(Relaxed),
            2,
            "it was asked after it was out"
        );
        assert_eq!(log.borrow().len(), 4);

        // It comes back at the same address. Any reply will do.
        let socket = tokio::net::UdpSocket::bind(bad).await.unwrap();
        let probes = serve_udp(socket, |_, query| vec![empty(query, code(REFUSED))]);
        until(|| upstream.healthy()).await;
        assert_eq!(
            probes.borrow()[0][2..],
            [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1]
        );
        assert_eq!(upstream.counters.udp.load(Relaxed), 2, "probes are not requests");
    });
}

#[test]
fn an_upstream_over_tcp_is_probed_over_tcp() {
    run(async {
        let bad = nobody().await;
        let protocol = config::Protocol::Tcp;
        let forward = forward(&config::Forward {
            max_fails: 1,
            protocol,
            ..config(&[bad])
        });
        let failure = forward.resolve(&query("example.com")).await.unwrap_err();
        assert_eq!(failure, Failure::NoReply(vec![(bad, Fault::Refused)]));
        let upstream = forward.shared.upstreams()[0].clone();
        assert!(!upstream.healthy());
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
fn when_all_are_out_they_are_asked_anyway_and_the_first_answer_brings_one_back() {
    run(async {
        let down = nobody().await;
        // No probe will come in time to help.
        let probe = Duration::from_secs(3600);
        let forward = forward(&config::Forward {
            max_fails: 1,
            probe,
            ..config(&[down])
        });
        forward.resolve(&query("example.com")).await.unwrap_err();
        let begin = std::time::Instant::now();
        forward.resolve(&query("example.com")).await.unwrap_err();
        assert!(begin.elapsed() < PROMPT);
        assert!(!forward.shared.upstreams()[0].healthy());

        serve_udp(tokio::net::UdpSocket::bind(down).await.unwrap(), |_, query| {
            vec![answer(query, 1)]
        });
        forward.resolve(&query("example.com")).await.unwrap();
        assert!(forward.shared.upstreams()[0].healthy());
    });
}

#[test]
fn one_that_is_out_is_the_last_resort_when_the_others_refuse() {
    run(async {
        let healthy = nobody().await;
        let (out, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let probe = Duration::from_secs(3600);
        let forward = forward(&config::Forward {
            max_fails: 100,
            probe,
            ..config(&[healthy, out])
        });
        let upstream = &forward.shared.upstreams()[1];
        for _ in 0..100 {
            upstream.failed(Fault::Timeout);
        }
        assert!(!upstream.healthy());
        assert_eq!(
            forward.resolve(&query("example.com")).await.unwrap().upstream,
            out
        );
    });
}

#[test]
fn a_dead_upstream_does_not_cost_every_query_its_patience() {
    run(async {
        let (dead, log) = udp(|_, _| vec![]).await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        // Never silent for as long as this: only being overtaken tells.
        let timeout = Duration::from_secs(20);
        let forward = forward(&config::Forward {
            max_fails: 1,
            timeout,
            ..config(&[dead, good])
        });
        (0..20).for_each(|_| forward.shared.upstreams()[0].measured(Duration::from_millis(1)));
        for _ in 0..8 {
            assert_eq!(
                forward.resolve(&query("example.com")).await.unwrap().upstream,
                good
            );
        }
        let asked = log.borrow().iter().filter(|query| query.len() > 17).count();
        assert_eq!(asked, 4, "out after the fourth");
    });
}

#[test]
fn the_probe_ends_with_the_generation() {
    run(async {
        let forward = forward(&config::Forward {
            max_fails: 1,
            ..config(&[nobody().await])
        });
        forward.resolve(&query("example.com")).await.unwrap_err();
        let upstream = std::sync::Arc::downgrade(&forward.shared.upstreams()[0]);
        drop(forward);
        until(|| upstream.strong_count() == 0).await;
        until(|| upstream.weak_count() <= 1).await;
    });
}

#[test]
fn an_upstream_that_leads_back_is_taken_out_for_good() {
    run(async {
        let (looping, log) = udp(|_, query| vec![empty(query, code(SERVFAIL))]).await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = forward(&config::Forward {
            max_fails: 1,
            ..config(&[looping, good])
        });
        forward.probe_for_loops("cluster.local.").await;

        let probe = log.borrow()[0].clone();
        assert_eq!(probe[12], 32);
        assert_eq!(probe[45..], *b"\x07cluster\x05local\0\0\x0d\0\x01");
        assert!(!forward.shared.loop_found(b"00000000000000000000000000000000"));
        assert!(!forward.shared.loop_found(b"www"));
        assert!(forward.shared.loop_found(&probe[13..45].to_ascii_uppercase()));

        let upstream = &forward.shared.upstreams()[0];
        assert!(upstream.looping() && !upstream.healthy());
        assert_eq!(upstream.counters.loops.load(Relaxed), 1);
        assert_eq!(
            forward.resolve(&query("example.com")).await.unwrap().upstream,
            good
        );
        assert_eq!(log.borrow().len(), 1);
        // Not even an answer makes up for it.
        upstream.answered();
        assert!(!upstream.healthy());
    });
}

#[test]
fn if_all_lead_back_there_is_nobody_to_ask() {
    run(async {
        let (looping, log) = udp(|_, _| vec![]).await;
        let forward = forward(&config::Forward {
            timeout: Duration::from_millis(20),
            ..config(&[looping])
        });
        forward.probe_for_loops(".").await;
        let token = log.borrow()[0][13..45].to_vec();
        assert!(forward.shared.loop_found(&token));
        assert_eq!(
            forward.resolve(&query("example.com")).await.unwrap_err(),
            Failure::AllLoop
        );
    });
}
