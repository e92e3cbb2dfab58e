//! Upstreams that lead back to us.

use std::cell::Cell;

use super::*;

/// Where a probe's token is: after 12 bytes of header and a length, 32 digits.
const TOKEN: std::ops::Range<usize> = 13..45;

fn is_token(query: &[u8]) -> bool {
    query[12] == 32
}

/// The name in a received query.
fn name(query: &[u8]) -> Vec<u8> {
    query[12..question_end(query) - 4].to_vec()
}

/// A stage below `cluster.local`, and its upstream, which returns tokens to the stage while `looping`.
async fn looping() -> (Rc<Forward>, Rc<Cell<bool>>, Log) {
    let looping = Rc::new(Cell::new(true));
    let found: Rc<std::cell::OnceCell<Rc<Forward>>> = Rc::default();
    let (still, forward) = (looping.clone(), found.clone());
    let (upstream, log) = udp(move |_, query| {
        let forward = forward.get().unwrap();
        let rcode = match is_token(query) && still.get() {
            true => {
                let mut name = name(query);
                name.make_ascii_uppercase();
                assert!(forward.shared.loop_found(&name));
                assert!(!forward.shared.loop_found(&name), "it is used up");
                REFUSED
            }
            false => 0,
        };
        vec![empty(query, code(rcode))]
    })
    .await;
    let forward = below(
        "cluster.local",
        &config::Forward {
            max_fails: 1,
            ..config(&[upstream])
        },
    );
    let _ = found.set(forward.clone());
    (forward, looping, log)
}

#[test]
fn an_upstream_that_leads_back_is_not_asked_and_comes_back_by_itself() {
    run(async {
        let (forward, looping, log) = looping().await;
        forward.shared.begin();
        let upstream = forward.shared.upstreams()[0].clone();
        until(|| upstream.looping()).await;
        assert!(!upstream.healthy() && forward.shared.only_loops());
        assert_eq!(log.borrow()[0][45..], *b"\x07cluster\x05local\0\0\x0d\0\x01");
        assert_eq!(
            forward
                .resolve(&query("a.cluster.local"), None)
                .await
                .unwrap_err(),
            Failure::AllLoop
        );
        let tokens = |log: &Log| log.borrow().iter().filter(|asked| is_token(asked)).count();
        let before = tokens(&log);
        until(|| tokens(&log) > before).await;
        assert!(upstream.looping());
        assert!(
            log.borrow().iter().all(|asked| is_token(asked)),
            "it is asked nothing else"
        );

        looping.set(false);
        until(|| upstream.healthy()).await;
        forward.resolve(&query("a.cluster.local"), None).await.unwrap();
        assert!(forward.shared.has_answer());
    });
}

/// A token read on its way can be sent back, but not later, not twice, and not below another name.
#[test]
fn a_token_that_others_read_is_worth_nothing_to_them() {
    run(async {
        let (address, log) = udp(|_, query| vec![empty(query, 3)]).await;
        let forward = below("cluster.local", &config(&[address]));
        let upstream = forward.shared.upstreams()[0].clone();
        forward.shared.begin();
        until(|| log.borrow().iter().any(|asked| !is_token(asked))).await;
        let read = log.borrow()[0].clone();
        assert!(is_token(&read));
        assert!(!forward.shared.loop_found(&name(&read)), "its exchange is over");
        assert!(!upstream.looping());

        let search = upstream.health.look_for_loop();
        let token = search.token.label();
        let below = |zone: &[u8]| [&[32][..], &token, zone].concat();
        assert!(!forward.shared.loop_found(&below(b"\0")));
        assert!(
            !forward
                .shared
                .loop_found(&below(b"\x04evil\x07cluster\x05local\0"))
        );
        assert!(!forward.shared.loop_found(&token), "no name at all");
        assert!(!upstream.looping());
        assert!(forward.shared.loop_found(&below(b"\x07cluster\x05local\0")));
        assert_eq!(upstream.counters.loops.load(Relaxed), 1);
        assert_ne!(read[TOKEN], token[..], "a token is used once");
    });
}

#[test]
fn one_that_leads_back_leaves_the_others() {
    run(async {
        let (looping, log) = udp(|_, query| vec![answer(query, 1)]).await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = forward(&config(&[looping, good]));
        let upstream = &forward.shared.upstreams()[0];
        let search = upstream.health.look_for_loop();
        assert!(upstream.health.found(&search.token.label()));
        let got = forward.resolve(&query("example.com"), None).await.unwrap();
        assert_eq!(got.upstream, good);
        assert!(log.borrow().is_empty() && !forward.shared.only_loops());
    });
}
