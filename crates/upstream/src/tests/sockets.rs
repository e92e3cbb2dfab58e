//! Shared sockets: their lifetime, and how queries on them are isolated from each other.

use std::collections::{HashMap, HashSet};

use tokio::net::UdpSocket;
use tokio::task::{JoinHandle, spawn_local};

use super::super::left_behind::MOST_LEFT;
use super::super::udp::{LIFE, QUERIES, STRAYS};
use super::super::{Answer, Failure, most_sockets};
use super::*;

/// A stage with one attempt per query, and limits that end nothing early.
fn one_attempt(upstream: SocketAddr) -> Rc<Forward> {
    forward(&config::Forward {
        attempts: 1,
        timeout: Duration::from_secs(20),
        deadline: Duration::from_secs(20),
        concurrent: 1000,
        ..config(&[upstream])
    })
}

/// A query under way, its bytes as the upstream got them, and its source address.
type Asked = (JoinHandle<Result<Answer, Failure>>, Vec<u8>, SocketAddr);

async fn ask(forward: &Rc<Forward>, upstream: &UdpSocket, name: &str) -> Asked {
    let (forward, asked) = (forward.clone(), query(name));
    let resolving = spawn_local(async move { forward.resolve(&asked, None).await });
    let mut buffer = [0; 512];
    let (length, from) = upstream.recv_from(&mut buffer).await.unwrap();
    (resolving, buffer[..length].to_vec(), from)
}

/// The source port of a new query, which is then answered.
async fn port(forward: &Rc<Forward>, upstream: &UdpSocket) -> u16 {
    let (resolving, asked, from) = ask(forward, upstream, "example.com").await;
    upstream.send_to(&answer(&asked, 1), from).await.unwrap();
    resolving.await.unwrap().unwrap();
    from.port()
}

#[test]
fn a_socket_carries_few_queries_and_no_id_twice() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let forward = one_attempt(address);
        let mut under_way = Vec::new();
        let mut ids: HashMap<u16, HashSet<[u8; 2]>> = HashMap::new();
        for _ in 0..5 * QUERIES {
            let (resolving, asked, from) = ask(&forward, &upstream, "example.com").await;
            under_way.push(resolving);
            assert!(ids.entry(from.port()).or_default().insert([asked[0], asked[1]]));
        }
        assert!(ids.values().all(|ids| ids.len() <= QUERIES));
        assert!(ids.len() >= 5, "{} ports", ids.len());
    });
}

#[test]
fn a_socket_takes_no_query_after_its_life() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let forward = one_attempt(address);
        let first = port(&forward, &upstream).await;
        assert_eq!(port(&forward, &upstream).await, first);
        tokio::time::sleep(LIFE).await;
        assert_ne!(port(&forward, &upstream).await, first);
    });
}

#[test]
fn what_nobody_asked_for_ends_the_use_of_a_socket() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let forward = one_attempt(address);
        let (resolving, asked, from) = ask(&forward, &upstream, "example.com").await;
        let mut forged = answer(&asked, 66);
        forged[0] ^= 1;
        upstream.send_to(&forged, from).await.unwrap();
        upstream.send_to(&answer(&asked, 1), from).await.unwrap();
        assert_eq!(last_byte(&resolving.await.unwrap().unwrap().message), 1);
        assert_eq!(forward.shared.upstreams()[0].counters.strays.load(Relaxed), 1);
        assert_ne!(port(&forward, &upstream).await, from.port());
    });
}

/// An attacker who looks for our ports finds one with one query, and gets few guesses at its ID.
#[test]
fn after_a_stray_each_query_has_a_port_to_itself() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let forward = one_attempt(address);
        let (resolving, asked, from) = ask(&forward, &upstream, "example.com").await;
        upstream.send_to(b"stray", from).await.unwrap();
        upstream.send_to(&answer(&asked, 1), from).await.unwrap();
        resolving.await.unwrap().unwrap();
        let ports: HashSet<u16> = {
            let mut ports = HashSet::new();
            for _ in 0..QUERIES {
                ports.insert(port(&forward, &upstream).await);
            }
            ports
        };
        // A port may come a second time, by chance.
        assert!(ports.len() > QUERIES / 2, "{ports:?}");
    });
}

#[test]
fn a_socket_that_is_guessed_at_is_given_up_and_the_query_asked_anew() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let forward = forward(&config::Forward {
            attempts: 2,
            timeout: Duration::from_secs(20),
            deadline: Duration::from_secs(20),
            ..config(&[address])
        });
        // A high RTO: only giving up the socket causes a second attempt.
        forward.shared.upstreams()[0].measured(Duration::from_secs(20));
        let (resolving, asked, from) = ask(&forward, &upstream, "example.com").await;
        for guess in 1..=STRAYS {
            let mut forged = answer(&asked, 66);
            forged[1] ^= u8::try_from(guess).unwrap();
            upstream.send_to(&forged, from).await.unwrap();
        }
        let mut buffer = [0; 512];
        let (length, again) = upstream.recv_from(&mut buffer).await.unwrap();
        assert_ne!(again.port(), from.port());
        upstream.send_to(&answer(&asked, 67), from).await.unwrap();
        upstream
            .send_to(&answer(&buffer[..length], 1), again)
            .await
            .unwrap();
        assert_eq!(last_byte(&resolving.await.unwrap().unwrap().message), 1);
        assert_eq!(forward.failures(0, Reason::Forged), 1);
        assert_eq!(
            forward.shared.upstreams()[0].counters.strays.load(Relaxed),
            u64::from(STRAYS)
        );
    });
}

#[test]
fn no_more_sockets_are_open_than_a_stage_may_have() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let config = config::Forward {
            attempts: 10,
            timeout: Duration::from_secs(20),
            deadline: Duration::from_secs(20),
            concurrent: 3,
            ..config(&[address])
        };
        let most = most_sockets(&config, 1) - MOST_LEFT;
        assert_eq!(most, 3 + 1 + config.connections);
        let forward = forward(&config);
        // As if all places for lost attempts were taken.
        forward.shared.sockets.set_limit(most);
        let shared = &forward.shared.upstreams()[0];
        // A port per query, and many attempts for each.
        shared.saw_stray();
        (0..20).for_each(|_| shared.measured(Duration::from_millis(1)));
        let mut under_way = Vec::new();
        for number in 0..3 {
            under_way.push(ask(&forward, &upstream, &format!("{number}.example")).await.0);
        }
        until(|| forward.failures(0, Reason::Busy) > 0).await;
        assert!(forward.shared.sockets.open() <= most);
        under_way.iter().for_each(JoinHandle::abort);
        // The connections kept for later queries.
        until(|| forward.shared.sockets.open() <= config.connections).await;
    });
}

#[test]
fn late_and_repeated_replies_are_nobodys() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let forward = one_attempt(address);
        let (given_up, late, from) = ask(&forward, &upstream, "late.example").await;
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        // The same name: only the ID tells them apart.
        let (resolving, asked, again) = ask(&forward, &upstream, "late.example").await;
        assert_eq!(again, from);
        for reply in [
            answer(&late, 66),
            answer(&late, 67),
            answer(&asked, 1),
            answer(&asked, 68),
        ] {
            upstream.send_to(&reply, from).await.unwrap();
        }
        assert_eq!(last_byte(&resolving.await.unwrap().unwrap().message), 1);
        assert_eq!(port(&forward, &upstream).await, from.port());
        assert_eq!(forward.shared.upstreams()[0].counters.strays.load(Relaxed), 0);
    });
}

#[test]
fn an_error_about_an_earlier_query_is_not_the_next_ones() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let forward = one_attempt(address);
        let before = port(&forward, &upstream).await;
        drop(upstream);
        {
            // Sent, and given up before it can learn that the port is closed.
            let asked = query("example.com");
            let mut resolving = std::pin::pin!(forward.resolve(&asked, None));
            std::future::poll_fn(|context| {
                assert!(resolving.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            // It is sent after all ready tasks have run.
            tokio::task::yield_now().await;
        }
        let upstream = std::net::UdpSocket::bind(address).unwrap();
        upstream.set_nonblocking(true).unwrap();
        let upstream = UdpSocket::from_std(upstream).unwrap();
        // It gets its answer from any port; the old one takes no more queries.
        port(&forward, &upstream).await;
        assert_ne!(port(&forward, &upstream).await, before);
        assert_eq!(forward.failures(0, Reason::ConnectionRefused), 0);
    });
}

#[test]
fn all_that_is_under_way_hears_that_nobody_is_there() {
    run(async {
        let (upstream, _, address) = sockets().await;
        let forward = one_attempt(address);
        let mut under_way = Vec::new();
        for name in ["a.example", "b.example", "c.example"] {
            under_way.push(ask(&forward, &upstream, name).await.0);
        }
        drop(upstream);
        let refused = Failure::NoReply(vec![(address, Fault::Refused)]);
        assert_eq!(
            forward.resolve(&query("d.example"), None).await.unwrap_err(),
            refused
        );
        for resolving in under_way {
            assert_eq!(resolving.await.unwrap().unwrap_err(), refused);
        }
    });
}
