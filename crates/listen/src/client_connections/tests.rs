use tokio::runtime::LocalRuntime;
use tokio::task::{spawn_local, yield_now};

use super::*;

fn all(options: &str, connections: usize) -> Arc<ClientConnections> {
    let text = format!("listen \"127.0.0.1\" {{ {options} }}\nzone \".\" {{ forward \"192.0.2.1\" }}");
    let config = crate::config::parse("test", &text, std::path::Path::new("/"), &[]).unwrap();
    ClientConnections::new(&config.listen, connections)
}

fn open(all: &Arc<ClientConnections>, client: &str, now: u64) -> Arc<ClientConnection> {
    all.open(client.parse().unwrap(), Uptime::from_micros(now))
        .unwrap()
}

#[test]
fn the_quietest_goes_and_those_that_wait_come_last() {
    let all = all("", 3);
    let [waits, quiet, busy] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|client| open(&all, client, 1));
    waits.owe(true);
    busy.note(Uptime::from_micros(5));
    let next = open(&all, "10.0.0.4", 6);
    assert!(quiet.is_closed() && !waits.is_closed() && !busy.is_closed());
    open(&all, "10.0.0.5", 7);
    assert!(busy.is_closed() && !next.is_closed());
    assert_eq!((all.connections(), all.closed(CloseReason::Connections)), (3, 2));
}

#[test]
fn a_network_of_ipv6_is_one_client() {
    let all = all("tcp-connections-per-client 2", 100);
    let first = open(&all, "2001:db8::1", 1);
    let mapped = open(&all, "::ffff:192.0.2.1", 1);
    open(&all, "2001:db8::2", 2);
    let elsewhere = open(&all, "2001:db8:0:1::1", 2);
    open(&all, "2001:db8::3", 3);
    assert!(first.is_closed() && !mapped.is_closed() && !elsewhere.is_closed());
    open(&all, "192.0.2.1", 4);
    open(&all, "192.0.2.1", 5);
    assert!(mapped.is_closed());
}

#[test]
fn memory_is_never_more_than_it_may_be() {
    let all = all("tcp-memory \"1MiB\"", 100);
    let small = open(&all, "10.0.0.1", 1);
    small.push(&[&[0; 100]]);
    let large: Vec<_> = (2..20)
        .map(|client| {
            let connection = open(&all, &format!("10.0.0.{client}"), 1);
            connection.push(&[&vec![0; 100_000 + client]]);
            assert!(all.octets() <= 1 << 20);
            connection
        })
        .collect();
    assert!(!small.is_closed());
    // A dismissed connection holds nothing, whatever is pushed.
    let gone = large.iter().find(|connection| connection.is_closed()).unwrap();
    gone.push(&[&[0; 1000]]);
    assert_eq!((gone.octets(), gone.unsent()), (0, 0));
    for connection in large.iter().chain([&small]) {
        all.close(connection, None);
    }
    assert_eq!((all.octets(), all.connections()), (0, 0));
}

/// The connections wake it: there is no timer.
#[test]
fn an_end_waits_for_replies_to_come_and_to_be_taken() {
    LocalRuntime::new().unwrap().block_on(async {
        let all = all("", 10);
        let [takes, waits, buffers, sends, leaves] =
            [1, 2, 3, 4, 5].map(|client| open(&all, &format!("10.0.0.{client}"), 1));
        assert!(takes.reply(1, b"reply".to_vec()));
        waits.owe(true);
        buffers.set_unflushed(true);
        sends.set_sending(true);
        leaves.push(&[b"reply"]);
        let ending = Arc::clone(&all);
        let settled = spawn_local(async move { ending.settled().await });
        let steps: [&dyn Fn(); 6] = [
            &|| all.close(&leaves, None),
            &|| sends.set_sending(false),
            &|| buffers.set_unflushed(false),
            &|| assert!(waits.reply(1, b"reply".to_vec())),
            &|| waits.owe(false),
            &|| assert!(waits.piece(1, 100).is_some()),
        ];
        for step in steps {
            yield_now().await;
            step();
        }
        yield_now().await;
        assert!(!settled.is_finished());
        takes.piece(1, 100);
        settled.await.unwrap();
    });
}

#[test]
fn those_that_have_yet_to_go_take_descriptors() {
    let all = all("", 1);
    for client in 0..=LEAVING {
        open(&all, "10.0.0.1", client as u64);
    }
    assert!(
        all.open("10.0.0.2".parse().unwrap(), Uptime::from_micros(1))
            .is_none()
    );
    assert_eq!(all.connections(), 1);
}

#[test]
fn the_client_that_holds_most_loses_a_connection() {
    let all = all("tcp-memory \"1MiB\"", 100);
    let calm = open(&all, "10.0.0.1", 1);
    calm.push(&[&vec![0; 100_000]]);
    // Each of them holds less than that one.
    let many: Vec<_> = (0..40)
        .map(|_| {
            let connection = open(&all, "10.0.0.2", 1);
            connection.push(&[&vec![0; 50_000]]);
            connection
        })
        .collect();
    assert!(!calm.is_closed());
    assert_eq!(all.closed(CloseReason::Memory), 22);
    assert_eq!(
        many.iter().filter(|connection| connection.is_closed()).count(),
        22
    );
}

/// Whoever grows, shrinks, ends or comes, it is the same as if all were looked at.
#[test]
fn the_largest_of_the_client_that_holds_most_gives_way() {
    const CLIENTS: usize = 12;
    let all = all("tcp-memory \"1MiB\"", 1000);
    let open_one = |at: usize| open(&all, &format!("10.0.0.{}", at % CLIENTS), 1);
    let mut connections: Vec<_> = (0..10 * CLIENTS).map(open_one).collect();
    let mut held = vec![0; connections.len()];
    let mut dice = 0x9e37_79b9_u32;
    for _ in 0..1500 {
        dice ^= dice << 13;
        dice ^= dice >> 17;
        dice ^= dice << 5;
        let at = dice as usize % connections.len();
        // No two of a client hold the same.
        held[at] = 100 * (dice as usize >> 8 & 511) + at % 100;
        connections[at].reply(1, vec![0; held[at]]);
        let mut closed = Vec::new();
        while held.iter().sum::<usize>() > 1 << 20 {
            let of_client = |at: usize| held.iter().skip(at % CLIENTS).step_by(CLIENTS).sum::<usize>();
            let gives_way = (0..held.len()).max_by_key(|&at| (of_client(at), held[at]));
            closed.extend(gives_way);
            gives_way.into_iter().for_each(|at| held[at] = 0);
        }
        for (at, connection) in connections.iter().enumerate() {
            assert_eq!(connection.is_closed(), closed.contains(&at));
            assert_eq!(connection.octets(), held[at]);
        }
        for at in closed {
            all.close(&connections[at], None);
            connections[at] = open_one(at);
        }
    }
    assert!(all.closed(CloseReason::Memory) > 100);
}

#[test]
fn streams_hold_what_came_and_what_is_not_taken() {
    let all = all("tcp-memory \"1MiB\"", 100);
    let connection = open(&all, "10.0.0.1", 1);
    assert!(
        connection.receive(1, b"que") && connection.receive(1, b"ry") && connection.receive(2, &[0; 5000])
    );
    assert!(all.octets() >= 5005 && connection.unsent() == 0);
    assert_eq!(connection.forget(1), b"query");
    assert!(connection.reply(1, b"reply".to_vec()) && connection.unsent() == 5);
    let pieces: Vec<_> = std::iter::from_fn(|| connection.piece(1, 2)).collect();
    assert_eq!(pieces, [&b"re"[..], b"pl", b"y"]);
    assert_eq!((connection.unsent(), connection.forget(2).len()), (0, 5000));
    assert_eq!(all.octets(), 0);
    // What exceeds the total is freed immediately, and the connection gets nothing more.
    assert!(connection.reply(1, vec![0; 1000]) && !connection.reply(2, vec![0; 2 << 20]));
    assert!(!connection.receive(3, b"query") && !connection.reply(3, vec![0; 1000]));
    assert_eq!((all.octets(), connection.piece(1, 10)), (0, None));
}
