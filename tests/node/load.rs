//! Queries from the pod, each from a fresh port unless noted, and their outcomes.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use harness::until;

use super::world::{FROM_CLUSTER, FROM_NEIGHBOUR, FROM_PROXY, Namespace};

/// A client's timeout: longer than a busy machine may starve all clients, and shorter than a stopped process
/// stalls.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The timeout of clients that measure silence.
const IMPATIENCE: Duration = Duration::from_millis(100);

/// Concurrent clients.
const CLIENTS: u32 = 10;

/// The interval between a client's queries.
const PACE: Duration = Duration::from_millis(40);

/// UDP or TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is what it is called")]
pub enum Protocol {
    Udp,
    Tcp,
}

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is what it is called")]
pub enum Answer {
    Proxy,
    Cluster,
    Neighbour,
    Nobody,
}

/// One query's outcome.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// When it was asked.
    pub at: Instant,
    /// How long the client waited.
    pub took: Duration,
    /// Who answered.
    pub answer: Answer,
}

/// Clients that query until stopped.
pub struct Load {
    protocol: Protocol,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<Asked>>>,
}

impl Load {
    /// Starts `CLIENTS` clients in the pod, about 250 queries a second in all, for one name.
    pub fn start(place: &Namespace, server: &str, protocol: Protocol) -> Load {
        Load::asking(place, server, protocol, TIMEOUT, |_, _| "www".into())
    }

    /// The same with a short timeout, so that not all clients are waiting during a silence.
    pub fn impatient(place: &Namespace, server: &str, protocol: Protocol) -> Load {
        Load::asking(place, server, protocol, IMPATIENCE, |_, _| "www".into())
    }

    /// As [`Load::start`], but each time for another name, which no cache knows.
    pub fn of_misses(place: &Namespace, server: &str, protocol: Protocol) -> Load {
        Load::asking(place, server, protocol, TIMEOUT, label_of_miss)
    }

    /// The same over UDP, from one port per client, like clients that open a socket once.
    pub fn from_kept_ports(place: &Namespace, server: &str) -> Load {
        Load::of(place, server, Protocol::Udp, |client, server| {
            let socket = udp_socket(server).expect("a socket");
            Box::new(move |count| {
                let query = query_for(&label_of_miss(client, count), count as u16);
                let reply = exchange(&socket, &query, TIMEOUT);
                reply.map_or(Answer::Nobody, |reply| who_answered(&reply))
            })
        })
    }

    fn asking(
        place: &Namespace,
        server: &str,
        protocol: Protocol,
        timeout: Duration,
        label: fn(u32, usize) -> String,
    ) -> Load {
        Load::of(place, server, protocol, move |client, server| {
            Box::new(move |count| ask_for(&label(client, count), server, protocol, timeout))
        })
    }

    /// Starts clients, each with the closure that `client` makes for its number and the server. The closure
    /// gets the number of earlier queries.
    fn of(
        place: &Namespace,
        server: &str,
        protocol: Protocol,
        client: impl Fn(u32, SocketAddr) -> Box<dyn FnMut(usize) -> Answer> + Clone + Send + 'static,
    ) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let server = SocketAddr::new(server.parse().expect("an address"), 53);
        let clients = (0..CLIENTS).map(|number| {
            let (stop, answered, client) = (Arc::clone(&stop), Arc::clone(&answered), client.clone());
            place.within(move || {
                let mut asked = Vec::new();
                let mut ask = client(number, server);
                // Staggered, not all at the same moment.
                std::thread::sleep(PACE * number / CLIENTS);
                while !stop.load(Ordering::Relaxed) {
                    let at = Instant::now();
                    let answer = ask(asked.len());
                    asked.push(Asked {
                        at,
                        took: at.elapsed(),
                        answer,
                    });
                    if answer != Answer::Nobody {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    // Paces the load.
                    std::thread::sleep(PACE.saturating_sub(at.elapsed()));
                }
                asked
            })
        });
        Load {
            protocol,
            stop: Arc::clone(&stop),
            answered: Arc::clone(&answered),
            clients: clients.collect(),
        }
    }

    /// The most connections that a listener may reset when it opens: those then open to the cluster's DNS,
    /// since their next packet finds a socket.
    pub fn open_at_once(&self) -> usize {
        match self.protocol {
            Protocol::Udp => 0,
            Protocol::Tcp => CLIENTS as usize,
        }
    }

    /// Waits for this many more answers. Clients that have just lost a query wait out its timeout first.
    pub fn await_answers(&self, more: usize) {
        let enough = self.answered.load(Ordering::Relaxed) + more;
        until("answers", || self.answered.load(Ordering::Relaxed) >= enough);
    }

    /// Stops the clients; returns all outcomes in the order of asking.
    pub fn stop(self) -> Fates {
        self.stop.store(true, Ordering::Relaxed);
        let mut asked: Vec<Asked> = self
            .clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client"))
            .collect();
        asked.sort_by_key(|asked| asked.at);
        Fates(asked)
    }
}

/// The outcomes of a load's queries.
pub struct Fates(Vec<Asked>);

impl Fates {
    /// How many were asked.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// How many went unanswered.
    pub fn lost(&self) -> usize {
        self.of(Answer::Nobody)
    }

    /// How many went unanswered without a wait, since nobody listened.
    pub fn refused(&self) -> usize {
        let refused = |asked: &&Asked| asked.answer == Answer::Nobody && asked.took < TIMEOUT / 2;
        self.0.iter().filter(refused).count()
    }

    /// How many were answered, but took longer than this.
    pub fn slower_than(&self, limit: Duration) -> usize {
        let slow = |asked: &&Asked| asked.answer != Answer::Nobody && asked.took > limit;
        self.0.iter().filter(slow).count()
    }

    /// How many had this answer.
    pub fn of(&self, answer: Answer) -> usize {
        self.0.iter().filter(|asked| asked.answer == answer).count()
    }

    /// When the queries with this answer were asked.
    pub fn times_of(&self, answer: Answer) -> impl Iterator<Item = Instant> {
        let found = self.0.iter().filter(move |asked| asked.answer == answer);
        found.map(|asked| asked.at)
    }

    /// Those asked between two events.
    pub fn between(&self, from: Instant, to: Instant) -> Fates {
        Fates(
            self.0
                .iter()
                .copied()
                .filter(|asked| (from..to).contains(&asked.at))
                .collect(),
        )
    }

    /// Those asked before an event.
    pub fn until(&self, to: Instant) -> Fates {
        Fates(self.0.iter().copied().filter(|asked| asked.at < to).collect())
    }

    /// Those asked from an event on.
    pub fn since(&self, from: Instant) -> Fates {
        Fates(self.0.iter().copied().filter(|asked| asked.at >= from).collect())
    }

    /// The longest time in which no query was answered.
    pub fn silence(&self) -> Duration {
        let (mut longest, mut since) = (Duration::ZERO, None);
        for asked in &self.0 {
            if asked.answer == Answer::Nobody {
                longest = longest.max(asked.at - *since.get_or_insert(asked.at));
            } else {
                longest = longest.max(since.take().map_or(Duration::ZERO, |since| asked.at - since));
            }
        }
        longest
    }
}

/// Asks once for www.example, from a fresh port.
pub fn ask(server: SocketAddr, protocol: Protocol) -> Answer {
    ask_for("www", server, protocol, TIMEOUT)
}

/// Asks once for a name in `example`.
pub fn ask_for(labels: &str, server: SocketAddr, protocol: Protocol, timeout: Duration) -> Answer {
    let query = query_for(labels, 0x1234);
    let reply = match protocol {
        Protocol::Udp => udp_socket(server).and_then(|socket| exchange(&socket, &query, timeout)),
        Protocol::Tcp => tcp(server, &query, timeout),
    };
    reply.map_or(Answer::Nobody, |reply| who_answered(&reply))
}

/// Returns a name that this client asks for once, and no other does.
fn label_of_miss(client: u32, count: usize) -> String {
    format!("miss-{client}-{count}")
}

/// A query for a name in `example`.
fn query_for(labels: &str, id: u16) -> Vec<u8> {
    let mut query = id.to_be_bytes().to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in labels.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend(b"\x07example\0\0\x01\0\x01");
    query
}

/// Recognizes the server by the address, which is last in the reply.
fn who_answered(reply: &[u8]) -> Answer {
    let Some(&address) = reply.last_chunk::<4>() else {
        return Answer::Nobody;
    };
    match Ipv4Addr::from(address) {
        FROM_PROXY => Answer::Proxy,
        FROM_CLUSTER => Answer::Cluster,
        FROM_NEIGHBOUR => Answer::Neighbour,
        _ => Answer::Nobody,
    }
}

/// Opens a socket on a fresh port that receives only from the server.
fn udp_socket(server: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: IpAddr = if server.is_ipv4() {
        [0; 4].into()
    } else {
        [0u16; 8].into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    Ok(socket)
}

/// Skips replies with another ID, which belong to abandoned queries.
fn exchange(socket: &UdpSocket, query: &[u8], timeout: Duration) -> std::io::Result<Vec<u8>> {
    socket.set_read_timeout(Some(timeout))?;
    socket.send(query)?;
    loop {
        let mut reply = vec![0; 512];
        let length = socket.recv(&mut reply)?;
        reply.truncate(length);
        if reply.starts_with(&query[..2]) {
            return Ok(reply);
        }
    }
}

fn tcp(server: SocketAddr, query: &[u8], timeout: Duration) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}
