//! Upstreams that are silent about EDNS.

use super::*;

/// Drops queries with an OPT record.
fn drops_edns(query: &[u8]) -> Vec<Vec<u8>> {
    if query[11] == 1 {
        vec![]
    } else {
        vec![answer(query, 1)]
    }
}

#[test]
fn an_upstream_that_drops_edns_is_asked_without_in_the_end_and_soon_at_once() {
    run(async {
        let (address, log) = udp(|_, query| drops_edns(query)).await;
        let forward = forward(&config::Forward {
            attempts: 4,
            timeout: Duration::from_secs(20),
            deadline: Duration::from_secs(60),
            ..config(&[address])
        });
        let upstream = &forward.shared.upstreams()[0];
        (0..20).for_each(|_| upstream.measured(Duration::from_millis(1)));
        let asked_with =
            |from: usize| -> Vec<u8> { log.borrow()[from..].iter().map(|asked| asked[11]).collect() };
        for before in [0, 3] {
            assert!(!upstream.drops_edns());
            forward
                .resolve(&query_with_edns("example.com"), None)
                .await
                .unwrap();
            assert_eq!(asked_with(before), [1, 1, 0]);
        }
        assert!(upstream.drops_edns());
        forward
            .resolve(&query_with_edns("example.com"), None)
            .await
            .unwrap();
        assert_eq!(asked_with(6), [0]);
        assert_eq!(upstream.counters.without_edns.load(Relaxed), 3);
    });
}

#[test]
fn of_few_attempts_the_last_goes_without() {
    run(async {
        let (address, _) = udp(|_, query| drops_edns(query)).await;
        let forward = forward(&config::Forward {
            attempts: 2,
            timeout: Duration::from_secs(20),
            deadline: Duration::from_secs(60),
            ..config(&[address])
        });
        (0..20).for_each(|_| forward.shared.upstreams()[0].measured(Duration::from_millis(1)));
        forward
            .resolve(&query_with_edns("example.com"), None)
            .await
            .unwrap();
    });
}

/// RFC 3225 section 3: without OPT there is no DO, so the records that it asks for would be missing.
#[test]
fn who_wants_dnssec_is_not_asked_for_without() {
    run(async {
        let (address, log) = udp(|_, query| drops_edns(query)).await;
        let forward = forward(&config::Forward {
            timeout: Duration::from_millis(100),
            ..config(&[address])
        });
        let mut asked = query_with_edns("example.com");
        let flags = asked.len() - 4;
        asked[flags] = 0x80;
        forward.resolve(&asked, None).await.unwrap_err();
        assert!(log.borrow().iter().all(|asked| asked[11] == 1));
    });
}
