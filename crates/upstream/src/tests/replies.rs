//! What counts as a reply, and what follows a reply that is not the answer yet.

use super::*;

#[test]
fn an_answer_comes_back_whole_under_the_clients_id() {
    run(async {
        let (address, log) = udp(|_, query| vec![answer(query, 1)]).await;
        let forward = to(&[address]);
        let asked = query_with_edns("example.com");
        let got = forward.resolve(&asked, None).await.unwrap();
        assert_eq!(got.message, answer(&asked, 1));
        assert_eq!(got.upstream, address);
        // Everything but the ID is sent as received.
        assert_eq!(log.borrow()[0][2..], asked[2..]);
        let counters = &forward.shared.upstreams()[0].counters;
        assert_eq!((counters.udp.load(Relaxed), counters.tcp.load(Relaxed)), (1, 0));
        assert_eq!(
            counters
                .durations
                .buckets
                .iter()
                .map(|bucket| bucket.load(Relaxed))
                .sum::<u64>(),
            1
        );
    });
}

#[test]
fn ids_and_ports_are_random() {
    run(async {
        let (socket, _, address) = sockets().await;
        let mut buffer = [0; 512];
        let (mut ids, mut ports) = (Vec::new(), Vec::new());
        for _ in 0..64 {
            // A new worker each time, so this is its first socket.
            let (forward, asked) = (to(&[address]), query("example.com"));
            let (got, ()) = tokio::join!(forward.resolve(&asked, None), async {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                ids.push(u16::from_be_bytes([buffer[0], buffer[1]]));
                ports.push(from.port());
                socket.send_to(&answer(&buffer[..length], 1), from).await.unwrap();
            });
            got.unwrap();
        }
        for mut seen in [ids, ports] {
            seen.sort_unstable();
            seen.dedup();
            // 64 of 28 232 ports and of 65 536 IDs: the chance of three equal pairs is one in 500 000.
            assert!(seen.len() > 60);
        }
    });
}

#[test]
fn what_does_not_match_is_dropped_and_the_wait_goes_on() {
    run(async {
        let (address, _) = udp(|_, query| {
            let right = answer(query, 1);
            let mut other_id = answer(query, 2);
            other_id[0] ^= 1;
            let mut other_name = answer(query, 3);
            other_name[13] ^= 1;
            let mut other_type = answer(query, 4);
            let end = question_end(query);
            other_type[end - 3] = 28;
            let mut a_query = answer(query, 5);
            a_query[2] &= 0x7f;
            vec![
                other_id,
                other_name,
                other_type,
                a_query,
                b"short".to_vec(),
                right,
            ]
        })
        .await;
        let forward = to(&[address]);
        let got = forward.resolve(&query("example.com"), None).await.unwrap();
        assert_eq!(last_byte(&got.message), 1);
        assert_eq!(forward.shared.upstreams()[0].counters.strays.load(Relaxed), 5);
    });
}

#[test]
fn a_reply_from_elsewhere_is_not_accepted() {
    run(async {
        let (socket, _, address) = sockets().await;
        let (stranger, _, _) = sockets().await;
        let forward = forward(&config::Forward {
            attempts: 1,
            ..config(&[address])
        });
        let asked = query("example.com");
        let mut buffer = [0; 512];
        let (got, ()) = tokio::join!(forward.resolve(&asked, None), async {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            stranger
                .send_to(&answer(&buffer[..length], 66), from)
                .await
                .unwrap();
            socket.send_to(&answer(&buffer[..length], 1), from).await.unwrap();
        });
        assert_eq!(last_byte(&got.unwrap().message), 1);
    });
}

#[test]
fn the_case_of_the_question_may_differ() {
    run(async {
        let (address, _) = udp(|_, query| {
            let mut reply = answer(query, 1);
            reply[13..20].make_ascii_uppercase();
            vec![reply]
        })
        .await;
        to(&[address]).resolve(&query("example.com"), None).await.unwrap();
    });
}

#[test]
fn a_malformed_reply_fails_the_attempt_at_once_and_the_next_upstream_is_asked() {
    run(async {
        let cut = |_, query: &[u8]| {
            let whole = answer(query, 1);
            vec![whole[..whole.len() - 3].to_vec()]
        };
        let (bad, _) = udp(cut).await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = to(&[bad, good]);
        let begin = Instant::now();
        let got = forward.resolve(&query("example.com"), None).await.unwrap();
        assert_eq!((last_byte(&got.message), got.upstream), (2, good));
        assert!(begin.elapsed() < PROMPT);
        assert_eq!(forward.failures(0, Reason::Malformed), 1);

        let alone = to(&[bad]).resolve(&query("example.com"), None).await;
        assert_eq!(
            alone.unwrap_err(),
            Failure::NoReply(vec![(bad, Fault::Malformed)])
        );
    });
}

#[test]
fn a_truncated_answer_is_asked_for_over_tcp_at_the_same_upstream() {
    run(async {
        let (socket, listener, address) = sockets().await;
        serve_udp(socket, |_, query| vec![truncated(query)]);
        serve_tcp(listener, |_, mut stream| async move {
            let query = read(&mut stream).await.unwrap();
            write(&mut stream, &answer(&query, 7)).await;
        });
        let forward = to(&[address]);
        let got = forward.resolve(&query("example.com"), None).await.unwrap();
        assert_eq!(last_byte(&got.message), 7);
        let counters = &forward.shared.upstreams()[0].counters;
        assert_eq!(
            (counters.truncated.load(Relaxed), counters.tcp.load(Relaxed)),
            (1, 1)
        );
    });
}

#[test]
fn if_tcp_fails_after_truncation_the_next_upstream_is_asked() {
    run(async {
        // Nothing accepts TCP there.
        let (bad, _) = udp(|_, query| vec![truncated(query)]).await;
        let (good, _) = udp(|_, query| vec![answer(query, 2)]).await;
        let forward = to(&[bad, good]);
        let got = forward.resolve(&query("example.com"), None).await.unwrap();
        assert_eq!(got.upstream, good);
        assert_eq!(forward.failures(0, Reason::ConnectionRefused), 1);
    });
}

#[test]
fn a_query_that_would_need_fragments_goes_over_tcp() {
    run(async {
        let address = tcp(|_, mut stream| async move {
            let query = read(&mut stream).await.unwrap();
            write(&mut stream, &empty(&query, 0)).await;
        })
        .await;
        let mut asked = query_with_edns("example.com");
        let padding: u16 = 1300;
        let option = asked.len();
        asked[option - 2..].copy_from_slice(&(padding + 4).to_be_bytes());
        asked.extend_from_slice(&[0, 12]);
        asked.extend_from_slice(&padding.to_be_bytes());
        asked.resize(asked.len() + usize::from(padding), 0);
        assert_eq!(
            to(&[address]).resolve(&asked, None).await.unwrap().upstream,
            address
        );
    });
}

#[test]
fn servers_without_edns_are_asked_again_without_it() {
    for rcode in [FORMERR, NOTIMP] {
        run(async move {
            let (address, log) = udp(move |_, query| {
                vec![if query[11] == 1 {
                    empty(query, code(rcode))
                } else {
                    answer(query, 1)
                }]
            })
            .await;
            let forward = to(&[address]);
            let got = forward
                .resolve(&query_with_edns("example.com"), None)
                .await
                .unwrap();
            assert_eq!(last_byte(&got.message), 1);
            assert_eq!(log.borrow()[1][2..], query("example.com")[2..]);
            assert_eq!(
                forward.shared.upstreams()[0].counters.without_edns.load(Relaxed),
                1
            );
        });
    }
}

#[test]
fn an_error_for_a_query_without_edns_is_the_answer() {
    run(async {
        // Without its question, as many servers send it.
        let (address, log) = udp(|_, query| {
            let mut reply = empty(query, code(FORMERR));
            reply[5] = 0;
            reply.truncate(12);
            vec![reply]
        })
        .await;
        let got = to(&[address]).resolve(&query("example.com"), None).await.unwrap();
        assert_eq!(got.message, [0xab, 0xcd, 0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(log.borrow().len(), 1);
    });
}

#[test]
fn what_is_not_a_query_is_not_sent() {
    run(async {
        let (address, log) = udp(|_, _| vec![]).await;
        let forward = to(&[address]);
        let mut reply = query("example.com");
        reply[2] |= 0x80;
        for message in [
            &b""[..],
            &[0; 12],
            &reply,
            &query("example.com")[..20],
            &[1; 70_000],
        ] {
            assert!(matches!(
                forward.resolve(message, None).await,
                Err(Failure::NotAQuery(_))
            ));
        }
        assert!(log.borrow().is_empty());
    });
}
