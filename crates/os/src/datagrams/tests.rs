use std::net::UdpSocket;
use std::time::Duration;

use super::*;

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout");
    socket
}

/// A socket connected to `to`.
fn connected(to: SocketAddr) -> UdpSocket {
    let socket = socket();
    socket.connect(to).expect("a connected socket");
    socket
}

fn next(socket: &UdpSocket) -> Vec<u8> {
    let mut octets = [0; 2048];
    let length = socket.recv(&mut octets).expect("a datagram");
    octets[..length].to_vec()
}

/// Datagrams reported as refused or closed.
#[derive(Debug, Default, PartialEq)]
struct Told {
    refused: Vec<(usize, Option<i32>)>,
    closed: Vec<usize>,
}

fn send(outgoing: &mut Outgoing, from: &UdpSocket) -> Told {
    let mut told = Told::default();
    let Told { refused, closed } = &mut told;
    outgoing.send(
        from.as_raw_fd(),
        |index, _, error| refused.push((index, error.raw_os_error())),
        |index| closed.push(index),
    );
    assert!(outgoing.is_empty());
    told
}

#[test]
fn as_many_leave_as_there_is_room_for_in_order_and_again() {
    let to = socket();
    let from = connected(to.local_addr().unwrap());
    let mut outgoing = Outgoing::default();
    for round in 0..2 {
        for number in 0..BATCH {
            assert!(!outgoing.is_full());
            // Each has another length, one of them zero.
            outgoing.push(None, |octets| octets.extend(vec![number as u8; number + round]));
        }
        assert!(outgoing.is_full());
        assert_eq!(send(&mut outgoing, &from), Told::default());
        for number in 0..BATCH {
            assert_eq!(next(&to), vec![number as u8; number + round]);
        }
    }
}

#[test]
fn one_that_cannot_be_sent_is_named_and_holds_up_no_other() {
    let to = socket();
    let from = connected(to.local_addr().unwrap());
    let mut outgoing = Outgoing::default();
    for length in [1, 70_000, 2, 70_000, 70_000, 3] {
        outgoing.push(None, |octets| octets.resize(octets.len() + length, 0));
    }
    let too_long = Some(libc::EMSGSIZE);
    let expected = [1, 3, 4].map(|index| (index, too_long)).to_vec();
    assert_eq!(send(&mut outgoing, &from).refused, expected);
    assert_eq!(
        [next(&to), next(&to), next(&to)].map(|octets| octets.len()),
        [1, 2, 3]
    );
}

/// Waits until the kernel has a pending error, without clearing it.
fn await_error(socket: &UdpSocket) {
    let mut watched = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one structure, which outlives the call.
    let count = unsafe { libc::poll(&raw mut watched, 1, 10_000) };
    assert_eq!((count, watched.revents), (1, libc::POLLERR));
}

/// ICMP errors are about earlier datagrams, not about the next ones.
#[test]
fn a_closed_port_is_told_once_and_what_comes_next_is_sent() {
    let to = socket();
    let address = to.local_addr().unwrap();
    let from = connected(address);
    drop(to);
    let mut outgoing = Outgoing::default();
    outgoing.push(None, |octets| octets.push(1));
    assert_eq!(send(&mut outgoing, &from), Told::default());
    await_error(&from);
    // The port is open by the time that the next ones are sent.
    let to = UdpSocket::bind(address).unwrap();
    for number in 2..5 {
        outgoing.push(None, |octets| octets.push(number));
    }
    let told = send(&mut outgoing, &from);
    assert_eq!((told.refused, told.closed), (vec![], vec![0]));
    assert_eq!([next(&to), next(&to), next(&to)], [[2], [3], [4]]);
}

/// Replies to several clients are sent together, each from the queried address.
#[test]
fn each_goes_where_its_route_leads() {
    let server = Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    want_destination(&server, any).unwrap();
    server.bind(&any.into()).unwrap();
    let server: UdpSocket = server.into();
    let port = server.local_addr().unwrap().port();
    let clients = [2, 3, 4].map(|last| connected(([127, 0, 0, last], port).into()));
    let mut incoming = Datagrams::new(BATCH, true, 512);
    let mut outgoing = Outgoing::default();
    for (number, client) in clients.iter().enumerate() {
        client.send(&[number as u8]).unwrap();
        assert_eq!(incoming.receive(server.as_raw_fd()).unwrap(), 1);
        let route = incoming.route(0);
        assert_eq!(route.peer(), client.local_addr().ok());
        outgoing.push(Some(route), |octets| octets.extend([number as u8; 9]));
    }
    assert_eq!(send(&mut outgoing, &server), Told::default());
    // Connected clients accept replies from that address only.
    for (number, client) in clients.iter().enumerate() {
        assert_eq!(next(client), [number as u8; 9]);
    }
}
