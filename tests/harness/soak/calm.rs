//! The calm client: a hundred queries a second, half of them cached names, half new names. It retries like
//! stub resolvers, because a busy machine may drop a datagram, and counts the retries.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::Message;

/// The time between queries.
const INTERVAL: Duration = Duration::from_millis(10);

/// The time after which a query counts as lost: longer than the proxy tries.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time after which a query is sent again.
const AGAIN: Duration = Duration::from_secs(2);

/// The number of cached names.
const HITS: u64 = 8;

/// The results.
pub struct Seen {
    /// Queries.
    pub sent: u64,
    /// Queries sent again.
    pub again: u64,
    /// Queries without an answer.
    pub lost: u64,
    /// Answers to cached names.
    pub hits: Answers,
    /// Answers to new names.
    pub misses: Answers,
}

/// The answers to one half.
#[derive(Default)]
pub struct Answers {
    /// Without the requested record.
    pub failed: u64,
    /// The time from when a query was due to its answer.
    waits: Vec<Duration>,
}

impl Seen {
    /// Returns the number of useless answers.
    pub fn failed(&self) -> u64 {
        self.hits.failed + self.misses.failed
    }
}

impl Answers {
    /// Returns the time within which this share of them came.
    pub fn percentile(&self, part: f64) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let at = (waits.len() as f64 * part).ceil() as usize;
        waits.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// The running client: threads that send, retry and receive.
pub struct Client {
    /// Whether to stop sending.
    stopping: Arc<AtomicBool>,
    /// Whether to stop after the last answers.
    stopped: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    again: JoinHandle<u64>,
    receiver: JoinHandle<[Answers; 2]>,
    under_way: Arc<UnderWay>,
}

/// Queries in flight by ID.
type UnderWay = Mutex<HashMap<u16, Query>>;

/// A query that has no answer yet.
struct Query {
    octets: Vec<u8>,
    due: Instant,
    /// When it was last sent.
    sent: Instant,
    miss: bool,
}

impl Client {
    /// Starts to ask.
    pub fn start(server: SocketAddr) -> Client {
        let socket = Arc::new(super::super::client::socket(server));
        let wait = Some(Duration::from_millis(100));
        socket.set_read_timeout(wait).expect("a timeout");
        let stopping = Arc::new(AtomicBool::new(false));
        let stopped = Arc::new(AtomicBool::new(false));
        let under_way = Arc::new(UnderWay::default());
        let sender = std::thread::spawn({
            let (socket, stopping, under_way) =
                (Arc::clone(&socket), Arc::clone(&stopping), Arc::clone(&under_way));
            move || send(&socket, &stopping, &under_way)
        });
        let again = std::thread::spawn({
            let (socket, stopped, under_way) =
                (Arc::clone(&socket), Arc::clone(&stopped), Arc::clone(&under_way));
            move || send_again(&socket, &stopped, &under_way)
        });
        let receiver = std::thread::spawn({
            let (stopped, under_way) = (Arc::clone(&stopped), Arc::clone(&under_way));
            move || receive(&socket, &stopped, &under_way)
        });
        Client {
            stopping,
            stopped,
            sender,
            again,
            receiver,
            under_way,
        }
    }

    /// Stops it after the last answers, or a timeout.
    pub fn stop(self) -> Seen {
        self.stopping.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("the calm client");
        self.stopped.store(true, Ordering::Relaxed);
        let [hits, misses] = self.receiver.join().expect("the calm client");
        let lost = locked(&self.under_way).len() as u64;
        let again = self.again.join().expect("the calm client");
        Seen {
            sent,
            again,
            lost,
            hits,
            misses,
        }
    }
}

/// Brings its cached names into the cache.
pub fn warm(server: SocketAddr) {
    for number in 0..HITS {
        super::warm(server, &hit(number));
    }
}

fn hit(number: u64) -> String {
    format!("hit{number}.calm.test")
}

fn send(socket: &UdpSocket, stopping: &AtomicBool, under_way: &UnderWay) -> u64 {
    // New in each phase.
    static MISSES: AtomicU64 = AtomicU64::new(0);
    let begun = Instant::now();
    let mut number = 0;
    while !stopping.load(Ordering::Relaxed) {
        let due = begun + INTERVAL * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let miss = number % 2 == 1;
        let name = match miss {
            true => format!("miss{}.calm.test", MISSES.fetch_add(1, Ordering::Relaxed)),
            false => hit(u64::from(number) % HITS),
        };
        let mut query = Message::query(&name, "A");
        // Unlike random IDs, these are unique among queries in flight.
        query.id = number as u16;
        let octets = query.encode();
        let waiting = Query {
            octets: octets.clone(),
            due,
            sent: Instant::now(),
            miss,
        };
        locked(under_way).insert(query.id, waiting);
        let _ = socket.send(&octets);
        number += 1;
    }
    u64::from(number)
}

/// Retries queries until all are answered or it is too late. Returns the number of retries.
fn send_again(socket: &UdpSocket, stopped: &AtomicBool, under_way: &UnderWay) -> u64 {
    let mut again = 0;
    let mut ends = None;
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let mut waiting = locked(under_way);
        if stopped.load(Ordering::Relaxed) {
            let ends = *ends.get_or_insert_with(|| Instant::now() + PATIENCE);
            if waiting.is_empty() || Instant::now() > ends {
                return again;
            }
        }
        for query in waiting.values_mut().filter(|query| query.sent.elapsed() > AGAIN) {
            query.sent = Instant::now();
            again += 1;
            let _ = socket.send(&query.octets);
        }
    }
}

fn receive(socket: &UdpSocket, stopped: &AtomicBool, under_way: &UnderWay) -> [Answers; 2] {
    let mut answers = [Answers::default(), Answers::default()];
    let mut buffer = [0; 4096];
    let mut ends = None;
    loop {
        if stopped.load(Ordering::Relaxed) {
            let ends = *ends.get_or_insert_with(|| Instant::now() + PATIENCE);
            if locked(under_way).is_empty() || Instant::now() > ends {
                return answers;
            }
        }
        let Ok(length) = socket.recv(&mut buffer) else {
            continue;
        };
        let answer = Message::decode(&buffer[..length]).expect("a whole message");
        if let Some(query) = locked(under_way).remove(&answer.id) {
            let answers = &mut answers[usize::from(query.miss)];
            answers.waits.push(query.due.elapsed());
            answers.failed += u64::from(answer.answers.len() != 1);
        }
    }
}

fn locked(under_way: &UnderWay) -> std::sync::MutexGuard<'_, HashMap<u16, Query>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}
