//! Scripted upstreams on 127.0.0.1.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::LocalRuntime;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::super::message::Query;
use super::super::{Answer, Failure, Forward};
use crate::config;
use crate::dnstap::Tap;

impl Forward {
    /// Sends `query`, a whole message, now.
    pub async fn resolve(self: &Rc<Self>, query: &[u8], tap: Option<Arc<Tap>>) -> Result<Answer, Failure> {
        let query = Query::new(query.to_vec())?.tapped(tap);
        self.race(&Rc::new(query), Instant::now()).await
    }
}

/// Runs a test as a worker would: on one thread.
pub fn run(test: impl Future<Output = ()>) {
    LocalRuntime::new().unwrap().block_on(test);
}

pub fn config(upstreams: &[SocketAddr]) -> config::Forward {
    config::Forward {
        upstreams: upstreams.iter().copied().map(Into::into).collect(),
        protocol: config::Protocol::Udp,
        trust: config::Trust::default(),
        get: false,
        policy: config::Policy::Sequential,
        timeout: Duration::from_secs(20),
        deadline: Duration::from_secs(60),
        attempts: 3,
        max_fails: 0,
        probe: Duration::from_millis(20),
        concurrent: 16,
        jostle: None,
        connections: 2,
        idle: Duration::from_secs(10),
        max_age: None,
        any: false,
        denies_plain_names: false,
        except: Vec::new(),
        next: Vec::new(),
        bootstrap: Vec::new(),
        named: Vec::new(),
        written: Vec::new(),
        bootstrap_interfaces: Vec::new(),
    }
}

/// The queries that a fake upstream received, oldest first.
pub type Log = Rc<RefCell<Vec<Vec<u8>>>>;

/// A UDP and a TCP socket on the same port.
pub async fn sockets() -> (UdpSocket, TcpListener, SocketAddr) {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = udp.local_addr().unwrap();
        if let Ok(tcp) = TcpListener::bind(address).await {
            return (udp, tcp, address);
        }
    }
}

/// An address where nothing listens: the port was free a moment ago.
pub async fn nobody() -> SocketAddr {
    sockets().await.2
}

/// Answers the n-th query (from 0) with the datagrams that `script` returns for it.
pub fn serve_udp(socket: UdpSocket, mut script: impl FnMut(usize, &[u8]) -> Vec<Vec<u8>> + 'static) -> Log {
    let log = Log::default();
    let theirs = log.clone();
    spawn_local(async move {
        let mut buffer = [0; 65_535];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let query = &buffer[..length];
            let number = theirs.borrow().len();
            theirs.borrow_mut().push(query.to_vec());
            for datagram in script(number, query) {
                socket.send_to(&datagram, from).await.unwrap();
            }
        }
    });
    log
}

pub async fn udp(script: impl FnMut(usize, &[u8]) -> Vec<Vec<u8>> + 'static) -> (SocketAddr, Log) {
    let (socket, _, address) = sockets().await;
    (address, serve_udp(socket, script))
}

/// Passes the n-th connection (from 0) to `script`.
pub fn serve_tcp<F: Future<Output = ()> + 'static>(
    listener: TcpListener,
    mut script: impl FnMut(usize, TcpStream) -> F + 'static,
) {
    spawn_local(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            spawn_local(script(number, stream));
        }
    });
}

pub async fn tcp<F: Future<Output = ()> + 'static>(
    script: impl FnMut(usize, TcpStream) -> F + 'static,
) -> SocketAddr {
    let (_, listener, address) = sockets().await;
    serve_tcp(listener, script);
    address
}

pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = stream.read_u16().await.ok()?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}

pub async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) {
    let mut framed = u16::try_from(message.len()).unwrap().to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    // The other end may have closed by now.
    let _ = stream.write_all(&framed).await;
}

/// A query for `name`, type A, with ID 0xabcd.
pub fn query(name: &str) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

/// The same query with an OPT record that advertises 1232 bytes.
pub fn query_with_edns(name: &str) -> Vec<u8> {
    let mut message = query(name);
    message[11] = 1;
    message.extend_from_slice(&[0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    message
}

/// The offset of the question's end.
pub fn question_end(message: &[u8]) -> usize {
    let mut at = 12;
    while message[at] != 0 {
        at += 1 + usize::from(message[at]);
    }
    at + 5
}

/// Header and question with QR, RA and `rcode` set, and no records.
pub fn empty(query: &[u8], rcode: u8) -> Vec<u8> {
    let mut reply = query[..question_end(query)].to_vec();
    reply[2] |= 0x80;
    reply[3] = 0x80 | rcode;
    reply[6..12].fill(0);
    reply
}

/// One A record: 192.0.2.`last`.
pub fn answer(query: &[u8], last: u8) -> Vec<u8> {
    let mut reply = empty(query, 0);
    reply[7] = 1;
    reply.extend_from_slice(&[0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, last]);
    reply
}

pub fn truncated(query: &[u8]) -> Vec<u8> {
    let mut reply = empty(query, 0);
    reply[2] |= 0x02;
    reply
}

/// The last byte of [`answer`]'s address.
pub fn last_byte(message: &[u8]) -> u8 {
    *message.last().unwrap()
}
