//! TCP: shared connections, and what happens to queries when one breaks.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::task::{JoinHandle, spawn_local};

use super::super::connection::{Connection, Keeping};
use super::super::message::Query;
use super::super::quota::Quotas;
use super::super::upstream::Upstream;
use super::super::{Answer, Failure};
use super::*;

fn tcp_config(upstream: SocketAddr) -> config::Forward {
    config::Forward {
        protocol: config::Protocol::Tcp,
        connections: 1,
        ..config(&[upstream])
    }
}

fn spawn(forward: &Rc<Forward>, name: &str) -> JoinHandle<Result<Answer, Failure>> {
    let (forward, asked) = (forward.clone(), query(name));
    spawn_local(async move { forward.resolve(&asked, None).await })
}

/// The first letter of the question's name, which identifies queries in these tests.
fn letter(message: &[u8]) -> u8 {
    message[13]
}

#[test]
fn one_connection_carries_many_queries_and_replies_in_any_order() {
    run(async {
        let connections = Rc::new(Cell::new(0));
        let theirs = connections.clone();
        let address = tcp(move |_, mut stream| {
            theirs.set(theirs.get() + 1);
            async move {
                let mut queries = Vec::new();
                while queries.len() < 3 {
                    queries.push(read(&mut stream).await.unwrap());
                }
                assert!(queries[0][..2] != queries[1][..2] && queries[1][..2] != queries[2][..2]);
                for query in queries.iter().rev() {
                    write(&mut stream, &answer(query, letter(query))).await;
                }
                // Stay open.
                read(&mut stream).await;
            }
        })
        .await;
        let forward = forward(&tcp_config(address));
        let asked: Vec<_> = ["a", "b", "c"].iter().map(|name| spawn(&forward, name)).collect();
        for (query, expected) in asked.into_iter().zip(*b"abc") {
            assert_eq!(last_byte(&query.await.unwrap().unwrap().message), expected);
        }
        assert_eq!(connections.get(), 1);
        assert_eq!(forward.pools[0].pending(), 0);
    });
}

/// As TLS may do.
#[test]
fn queries_leave_streams_that_keep_what_is_written_until_they_are_flushed() {
    run(async {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let stream = async { Ok(tokio::io::BufStream::new(ours)) };
        let upstream = Arc::new(Upstream::new(
            &SocketAddr::from(([127, 0, 0, 1], 53)).into(),
            None,
            0,
        ));
        let permit = Quotas::unbounded().take().unwrap();
        let keeping = Keeping {
            idle: SOON,
            max_age: None,
        };
        let connection = Rc::new(Connection::new(&Rc::default(), keeping));
        spawn_local(connection.clone().run(stream, SOON, upstream, permit));
        let until = tokio::time::Instant::now() + SOON;
        for last in [1, 2] {
            let asked = Rc::new(Query::new(query("example.com")).unwrap());
            let (reply, ()) = tokio::join!(connection.ask(&asked, until), async {
                let query = read(&mut theirs).await.unwrap();
                write(&mut theirs, &answer(&query, last)).await;
            });
            assert_eq!(last_byte(&reply.unwrap().into_message(0)), last);
        }
    });
}

#[test]
fn a_second_connection_is_opened_while_the_first_is_busy_and_no_third() {
    run(async {
        let carried: Rc<RefCell<Vec<usize>>> = Rc::default();
        let theirs = carried.clone();
        let address = tcp(move |number, mut stream| {
            let theirs = theirs.clone();
            async move {
                while let Some(query) = read(&mut stream).await {
                    theirs.borrow_mut().push(number);
                    while theirs.borrow().len() < 4 {
                        tokio::task::yield_now().await;
                    }
                    write(&mut stream, &answer(&query, 1)).await;
                }
            }
        })
        .await;
        let forward = forward(&config::Forward {
            connections: 2,
            ..tcp_config(address)
        });
        let first = spawn(&forward, "a");
        let second = spawn(&forward, "b");
        while carried.borrow().len() < 2 {
            tokio::task::yield_now().await;
        }
        carried.borrow_mut().extend([9, 9]);
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        for name in ["c", "d", "e"] {
            forward.resolve(&query(name), None).await.unwrap();
        }
        assert_eq!(forward.pools[0].open(), 2);
        assert!(carried.borrow().iter().all(|number| [0, 1, 9].contains(number)));
    });
}

#[test]
fn replies_in_pieces_and_several_at_once_are_put_together() {
    run(async {
        let address = tcp(|_, mut stream| async move {
            let first = read(&mut stream).await.unwrap();
            let second = read(&mut stream).await.unwrap();
            let mut bytes = Vec::new();
            for query in [&first, &second] {
                let reply = answer(query, letter(query));
                bytes.extend_from_slice(&u16::try_from(reply.len()).unwrap().to_be_bytes());
                bytes.extend_from_slice(&reply);
            }
            for piece in bytes.chunks(7) {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            read(&mut stream).await;
        })
        .await;
        let forward = forward(&tcp_config(address));
        let (first, second) = (spawn(&forward, "a"), spawn(&forward, "b"));
        assert_eq!(last_byte(&first.await.unwrap().unwrap().message), b'a');
        assert_eq!(last_byte(&second.await.unwrap().unwrap().message), b'b');
    });
}

#[test]
fn a_connection_that_dies_after_use_costs_its_queries_only_another_try() {
    run(async {
        let connections = Rc::new(Cell::new(0));
        let theirs = connections.clone();
        let address = tcp(move |number, mut stream| {
            theirs.set(number + 1);
            async move {
                while let Some(query) = read(&mut stream).await {
                    // The first connection answers once, takes three more queries and closes.
                    if number == 0 && letter(&query) != b'a' {
                        read(&mut stream).await;
                        read(&mut stream).await;
                        return;
                    }
                    write(&mut stream, &answer(&query, letter(&query))).await;
                }
            }
        })
        .await;
        let forward = forward(&config::Forward {
            attempts: 1,
            ..tcp_config(address)
        });
        forward.resolve(&query("a"), None).await.unwrap();
        let asked: Vec<_> = ["b", "c", "d"].iter().map(|name| spawn(&forward, name)).collect();
        for (query, expected) in asked.into_iter().zip(*b"bcd") {
            assert_eq!(last_byte(&query.await.unwrap().unwrap().message), expected);
        }
        assert_eq!(connections.get(), 2, "all three share the fresh one");
        assert_eq!(forward.failures(0, Reason::Closed), 0);
    });
}

#[test]
fn a_server_that_always_closes_is_a_failure() {
    run(async {
        let connections = Rc::new(Cell::new(0));
        let theirs = connections.clone();
        let address = tcp(move |number, mut stream| {
            theirs.set(number + 1);
            async move {
                let query = read(&mut stream).await.unwrap();
                // Half a reply.
                let reply = answer(&query, 1);
                let length = u16::try_from(reply.len()).unwrap();
                stream
                    .write_all(&[&length.to_be_bytes()[..], &reply[..20]].concat())
                    .await
                    .unwrap();
            }
        })
        .await;
        let failure = forward(&tcp_config(address))
            .resolve(&query("a"), None)
            .await
            .unwrap_err();
        assert_eq!(failure, Failure::NoReply(vec![(address, Fault::Closed); 3]));
        assert_eq!(connections.get(), 3, "as many as there are attempts");
    });
}

#[test]
fn a_connection_that_hangs_is_closed_after_two_timeouts_in_a_row() {
    run(async {
        let address = tcp(|number, mut stream| async move {
            while let Some(query) = read(&mut stream).await {
                if number > 0 {
                    write(&mut stream, &answer(&query, 1)).await;
                }
            }
        })
        .await;
        let forward = forward(&config::Forward {
            attempts: 1,
            timeout: Duration::from_millis(40),
            ..tcp_config(address)
        });
        for _ in 0..2 {
            let failure = forward.resolve(&query("a"), None).await.unwrap_err();
            assert_eq!(failure, Failure::NoReply(vec![(address, Fault::Timeout)]));
        }
        forward.resolve(&query("a"), None).await.unwrap();
    });
}

#[test]
fn a_reply_for_nobody_is_dropped() {
    run(async {
        let address = tcp(|_, mut stream| async move {
            let query = read(&mut stream).await.unwrap();
            let mut other_id = answer(&query, 2);
            other_id[1] ^= 1;
            let mut other_name = answer(&query, 3);
            other_name[13] = b'z';
            for message in [&other_id[..], &other_name, b"", b"x", &answer(&query, 1)] {
                write(&mut stream, message).await;
            }
            read(&mut stream).await;
        })
        .await;
        let forward = forward(&tcp_config(address));
        assert_eq!(
            last_byte(&forward.resolve(&query("a"), None).await.unwrap().message),
            1
        );
        assert_eq!(forward.shared.upstreams()[0].counters.strays.load(Relaxed), 4);
    });
}

#[test]
fn a_query_that_is_given_up_leaves_nothing_registered() {
    run(async {
        let (arrived, mut client) = tokio::sync::mpsc::unbounded_channel();
        let address = tcp(move |_, mut stream| {
            let arrived = arrived.clone();
            async move {
                while read(&mut stream).await.is_some() {
                    arrived.send(()).unwrap();
                }
            }
        })
        .await;
        let forward = forward(&tcp_config(address));
        let asked = spawn(&forward, "a");
        client.recv().await.unwrap();
        assert_eq!(forward.pools[0].pending(), 1);
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        assert_eq!(forward.pools[0].pending(), 0);
    });
}

/// A server that answers everything and reports when a connection ends.
async fn reporting(options: &'static [u8]) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<usize>) {
    let (ended, end) = tokio::sync::mpsc::unbounded_channel();
    let address = tcp(move |number, mut stream| {
        let ended = ended.clone();
        async move {
            while let Some(query) = read(&mut stream).await {
                let mut reply = answer(&query, 1);
                if !options.is_empty() {
                    reply[11] = 1;
                    reply.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0]);
                    reply.push(u8::try_from(options.len()).unwrap());
                    reply.extend_from_slice(options);
                }
                write(&mut stream, &reply).await;
            }
            let _ = ended.send(number);
        }
    })
    .await;
    (address, end)
}

#[test]
fn an_unused_connection_is_closed_after_its_idle_time() {
    run(async {
        let (address, mut end) = reporting(&[]).await;
        let forward = forward(&config::Forward {
            idle: Duration::from_millis(30),
            ..tcp_config(address)
        });
        forward.resolve(&query("a"), None).await.unwrap();
        assert_eq!(forward.pools[0].open(), 1);
        assert_eq!(end.recv().await, Some(0));
        assert_eq!(forward.pools[0].open(), 0);
    });
}

#[test]
fn an_old_connection_gives_way_to_another() {
    run(async {
        let (address, mut end) = reporting(&[]).await;
        let forward = forward(&config::Forward {
            max_age: Some(Duration::from_millis(30)),
            ..tcp_config(address)
        });
        // It is never idle for that long.
        let ended = loop {
            forward.resolve(&query("a"), None).await.unwrap();
            if let Ok(number) = end.try_recv() {
                break number;
            }
        };
        assert_eq!(ended, 0);
        assert_eq!(forward.pools[0].open(), 1);
    });
}

#[test]
fn a_server_may_ask_for_the_connection_to_be_closed() {
    run(async {
        // edns-tcp-keepalive, 0.
        let (address, mut end) = reporting(&[0, 11, 0, 2, 0, 0]).await;
        let forward = forward(&tcp_config(address));
        forward.resolve(&query("a"), None).await.unwrap();
        assert_eq!(end.recv().await, Some(0));
        forward.resolve(&query("b"), None).await.unwrap();
    });
}

#[test]
fn connections_end_with_the_worker_that_holds_them() {
    run(async {
        let (address, mut end) = reporting(&[]).await;
        let forward = forward(&tcp_config(address));
        forward.resolve(&query("a"), None).await.unwrap();
        drop(forward);
        assert_eq!(end.recv().await, Some(0));
    });
}
