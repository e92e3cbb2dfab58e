//! An upstream for floods: fast, without a record of its queries, and able to fail.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::super::client::{frame, read_frame};
use super::super::{Message, Record, address, flags};

/// An upstream in two threads. It ends when dropped.
pub struct Upstream {
    /// Its address for UDP and TCP.
    pub address: SocketAddr,
    fate: Arc<Fate>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Fate {
    ended: AtomicBool,
    /// Whether its sockets are closed.
    killed: AtomicBool,
    /// How many datagrams of a hundred it does not answer.
    lost: AtomicU32,
}

impl Fate {
    fn listens(&self) -> bool {
        !self.killed.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed)
    }
}

impl Upstream {
    /// Starts it.
    pub fn start() -> Upstream {
        let address = address::fresh_socket();
        let fate = Arc::new(Fate::default());
        let threads = [serve_udp as fn(SocketAddr, &Fate), serve_tcp]
            .map(|serve| {
                let fate = Arc::clone(&fate);
                std::thread::spawn(move || {
                    while !fate.ended.load(Ordering::Relaxed) {
                        match fate.listens() {
                            true => serve(address, &fate),
                            false => std::thread::sleep(Duration::from_millis(10)),
                        }
                    }
                })
            })
            .into();
        Upstream {
            address,
            fate,
            threads,
        }
    }

    /// Closes its sockets, or opens them again.
    pub fn kill(&self, killed: bool) {
        self.fate.killed.store(killed, Ordering::Relaxed);
    }

    /// Leaves this percentage of datagrams unanswered from now on.
    pub fn lose(&self, of_a_hundred: u32) {
        self.fate.lost.store(of_a_hundred, Ordering::Relaxed);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.fate.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve_udp(address: SocketAddr, fate: &Fate) {
    let Ok(socket) = UdpSocket::bind(address) else {
        return std::thread::sleep(Duration::from_millis(10));
    };
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a timeout");
    let mut buffer = [0; 4096];
    let mut count = 0_u32;
    while fate.listens() {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        count = count.wrapping_add(7);
        if count % 100 >= fate.lost.load(Ordering::Relaxed)
            && let Some(reply) = reply(&buffer[..length], false)
        {
            let _ = socket.send_to(&reply, from);
        }
    }
}

fn serve_tcp(address: SocketAddr, fate: &Fate) {
    let Ok(listener) = TcpListener::bind(address) else {
        return std::thread::sleep(Duration::from_millis(10));
    };
    listener.set_nonblocking(true).expect("a listener");
    while fate.listens() {
        match listener.accept() {
            Ok((mut stream, _)) => drop(std::thread::spawn(move || {
                let _ = stream.set_nonblocking(false);
                while let Some(query) = read_frame(&mut stream) {
                    if let Some(reply) = reply(&query, true) {
                        let _ = stream.write_all(&frame(&reply));
                    }
                }
            })),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Returns the reply to a query: none below `silent.test`, NXDOMAIN below `random.test`, as much text as a
/// message holds for `big.test`, 2000 addresses for `wide.edited.test`, and one address for every other name.
fn reply(query: &[u8], tcp: bool) -> Option<Vec<u8>> {
    let query = Message::decode(query).ok()?;
    let name = query.questions.first()?.name.to_ascii_lowercase();
    let mut reply = Message::reply_to(&query);
    if name.ends_with("silent.test.") {
        return None;
    } else if name.ends_with("random.test.") {
        reply = reply.rcode_set("NXDOMAIN");
        reply.authority = vec![Record::parse("test. 300 SOA ns.test. root.test. 1 2 3 4 5")];
    } else if !["big.test.", "wide.edited.test."].contains(&&*name) {
        reply.answers = vec![Record::parse(&format!("{name} 3600 A 192.0.2.1"))];
    } else if !tcp {
        reply = reply.set(flags::TC);
    } else if name == "wide.edited.test." {
        let record =
            |number: u32| Record::parse(&format!("{name} 3600 A 10.3.{}.{}", number / 250, number % 250));
        reply.answers = (0..2000).map(record).collect();
    } else {
        let text = "x".repeat(250);
        reply.answers = vec![Record::parse(&format!(
            "{name} 3600 TXT {}",
            vec![text; 247].join(" ")
        ))];
    }
    Some(reply.encode())
}
