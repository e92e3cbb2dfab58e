//! A scripted upstream that records its queries.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::client::{frame, read_frame};
use super::message::{Message, Question, Record, flags, rcode_number, type_number};
use super::{address, until};

/// A DNS server in two threads. It ends when dropped.
pub struct Upstream {
    /// Its address for UDP and TCP.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

type Script = dyn Fn(&Asked) -> Reply + Send + Sync;

struct Shared {
    script: Mutex<Arc<Script>>,
    asked: Mutex<Vec<Asked>>,
    stopped: AtomicBool,
}

/// A query as it arrived.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The query.
    pub message: Message,
    /// Whether it came over TCP.
    pub tcp: bool,
    /// The client's address.
    pub from: SocketAddr,
}

/// The reaction to a query.
#[derive(Clone)]
pub enum Reply {
    /// This message.
    Message(Message),
    /// These bytes, each a datagram or a TCP message.
    Octets(Vec<Vec<u8>>),
    /// Nothing.
    Silence,
    /// The reply, once the gate is open.
    Behind(Gate, Box<Reply>),
    /// Closes the connection; no reply over UDP.
    Close,
}

/// Holds replies back until the test opens it.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Releases all waiting replies, and lets later ones pass.
    pub fn open(&self) {
        *locked(&self.0.0) = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = locked(&self.0.0);
        drop(
            self.0
                .1
                .wait_while(open, |open| !*open)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

impl Asked {
    /// Returns the question.
    pub fn question(&self) -> &Question {
        &self.message.questions[0]
    }

    /// Returns the name, in lower case.
    pub fn name(&self) -> String {
        self.question().name.to_ascii_lowercase()
    }

    /// Whether the question has this type.
    pub fn is(&self, qtype: &str) -> bool {
        self.question().qtype == type_number(qtype)
    }

    /// Returns an answer with these records.
    pub fn answer(&self, records: &[&str]) -> Reply {
        Reply::Message(self.message_with(records))
    }

    /// Returns such an answer as a message, to be changed further.
    pub fn message_with(&self, records: &[&str]) -> Message {
        let mut message = Message::reply_to(&self.message);
        message.answers = records.iter().map(|line| Record::parse(line)).collect();
        message
    }

    /// Returns an answer without records: an rcode, and an SOA record if given.
    pub fn denial(&self, rcode: &str, soa: Option<&str>) -> Reply {
        let mut message = Message::reply_to(&self.message).rcode_set(rcode);
        message.authority = soa.into_iter().map(Record::parse).collect();
        Reply::Message(message)
    }
}

impl Upstream {
    /// Starts an upstream that answers from lines of a zone file. CNAME records are followed; anything else
    /// is NXDOMAIN or NODATA, with the SOA record from the lines.
    pub fn zone(lines: &[&str]) -> Upstream {
        let zone = Zone(lines.iter().map(|line| Record::parse(line)).collect());
        Upstream::start(move |asked| zone.reply(asked))
    }

    /// Starts an upstream with this script.
    pub fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Upstream {
        Upstream::start_at(address::fresh_socket(), script)
    }

    /// Starts an upstream at the given address.
    pub fn start_at(
        address: SocketAddr,
        script: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Upstream {
        let udp = UdpSocket::bind(address).expect("the upstream's UDP socket");
        let tcp = TcpListener::bind(address).expect("the upstream's TCP socket");
        let shared = Arc::new(Shared {
            script: Mutex::new(Arc::new(script)),
            asked: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let threads = vec![
            std::thread::spawn({
                let shared = Arc::clone(&shared);
                move || serve_udp(&udp, &shared)
            }),
            std::thread::spawn({
                let shared = Arc::clone(&shared);
                move || serve_tcp(&tcp, &shared)
            }),
        ];
        Upstream {
            address,
            shared,
            threads,
        }
    }

    /// Replaces the script.
    pub fn becomes(&self, script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) {
        *locked(&self.shared.script) = Arc::new(script);
    }

    /// Returns every query so far for this name, of any type.
    pub fn asked(&self, name: &str) -> Vec<Asked> {
        let name = format!("{}.", name.trim_end_matches('.')).to_ascii_lowercase();
        self.everything()
            .into_iter()
            .filter(|asked| asked.name() == name)
            .collect()
    }

    /// Returns how often this name was asked for.
    pub fn count(&self, name: &str) -> usize {
        self.asked(name).len()
    }

    /// Returns every query so far.
    pub fn everything(&self) -> Vec<Asked> {
        locked(&self.shared.asked).clone()
    }

    /// Waits until this name was asked for this often.
    #[track_caller]
    pub fn await_count(&self, name: &str, count: usize) {
        until(&format!("{count} upstream queries for {name}"), || {
            self.count(name) >= count
        });
    }

    /// Stops it; nothing listens at its address afterwards.
    pub fn stop(mut self) -> SocketAddr {
        self.end();
        self.address
    }

    fn end(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Each thread waits for a client: be one.
        if let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
            let _ = socket.send_to(&[], self.address);
        }
        drop(TcpStream::connect(self.address));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Returns the reaction to these bytes; silence if they are no query.
    fn reply(&self, wire: &[u8], tcp: bool, from: SocketAddr) -> Reply {
        let message = match Message::decode(wire) {
            Ok(message) if message.questions.len() == 1 => message,
            _ => return Reply::Silence,
        };
        let asked = Asked { message, tcp, from };
        locked(&self.asked).push(asked.clone());
        let script = Arc::clone(&locked(&self.script));
        script(&asked)
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl Reply {
    /// Sends the reply, after its gate if it has one. Only gated replies get a thread, so that all others
    /// leave in the order of their queries.
    fn deliver(self, send: impl Fn(Option<&[u8]>) + Send + 'static) {
        match self {
            Reply::Message(message) => send(Some(&message.encode())),
            Reply::Octets(several) => several.iter().for_each(|octets| send(Some(octets))),
            Reply::Silence => {}
            Reply::Close => send(None),
            Reply::Behind(gate, reply) => drop(std::thread::spawn(move || {
                gate.pass();
                reply.deliver(send);
            })),
        }
    }
}

fn serve_udp(socket: &UdpSocket, shared: &Arc<Shared>) {
    let mut buffer = [0; 65_535];
    loop {
        // An error means that an earlier answer had no receiver.
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        if shared.stopped() {
            return;
        }
        let Ok(socket) = socket.try_clone() else { return };
        shared
            .reply(&buffer[..length], false, from)
            .deliver(move |octets| {
                if let Some(octets) = octets {
                    let _ = socket.send_to(octets, from);
                }
            });
    }
}

fn serve_tcp(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut open = Vec::new();
    while let Ok((stream, from)) = listener.accept() {
        if shared.stopped() {
            break;
        }
        open.extend(stream.try_clone());
        let shared = Arc::clone(shared);
        std::thread::spawn(move || serve_connection(stream, from, &shared));
    }
    for stream in open {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

fn serve_connection(mut stream: TcpStream, from: SocketAddr, shared: &Shared) {
    let Ok(writer) = stream.try_clone() else { return };
    let writer = Arc::new(Mutex::new(writer));
    while let Some(wire) = read_frame(&mut stream) {
        let writer = Arc::clone(&writer);
        shared.reply(&wire, true, from).deliver(move |octets| {
            let mut writer = locked(&writer);
            let _ = match octets {
                Some(octets) => std::io::Write::write_all(&mut *writer, &frame(octets)),
                None => writer.shutdown(std::net::Shutdown::Both),
            };
        });
    }
}

/// The zone of a small authoritative server.
struct Zone(Vec<Record>);

impl Zone {
    fn reply(&self, asked: &Asked) -> Reply {
        let mut message = Message::reply_to(&asked.message).set(flags::AA);
        let mut name = asked.name();
        let mut known = false;
        loop {
            let owned: Vec<&Record> = self
                .0
                .iter()
                .filter(|record| record.name.eq_ignore_ascii_case(&name))
                .collect();
            known |= !owned.is_empty();
            let wanted = asked.question().qtype;
            let found: Vec<Record> = owned
                .iter()
                .filter(|record| record.rtype == wanted)
                .copied()
                .cloned()
                .collect();
            if !found.is_empty() {
                message.answers.extend(found);
                return Reply::Message(message);
            }
            match owned.iter().find(|record| record.rtype == type_number("CNAME")) {
                Some(alias) if message.answers.len() < 16 => {
                    message.answers.push((*alias).clone());
                    let line = alias.without_ttl();
                    name = line.rsplit(' ').next().unwrap_or(".").to_ascii_lowercase();
                    known = false;
                }
                _ => break,
            }
        }
        if !known {
            message.header |= rcode_number("NXDOMAIN");
        }
        message.authority = self
            .0
            .iter()
            .filter(|record| record.rtype == type_number("SOA"))
            .take(1)
            .cloned()
            .collect();
        Reply::Message(message)
    }
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
