//! The calm client: a hundred queries a second, half of them for what is in the cache, half for names that nobody asked
//! for before.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::Message;

/// From one query to the next.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long an answer may take before the query counts as lost: longer than the proxy tries.
const PATIENCE: Duration = Duration::from_secs(10);

/// Names that are in the cache.
const HITS: u64 = 8;

/// What it saw.
pub struct Seen {
    /// Queries.
    pub sent: u64,
    /// Those that nobody answered.
    pub lost: u64,
    /// Those for what is in the cache.
    pub hits: Answers,
    /// Those for new names.
    pub misses: Answers,
}

/// The answers to one half.
#[derive(Default)]
pub struct Answers {
    /// Without the record that was asked for.
    pub failed: u64,
    /// From when a query was due to its answer.
    waits: Vec<Duration>,
}

impl Seen {
    /// Answers that are of no use.
    pub fn failed(&self) -> u64 {
        self.hits.failed + self.misses.failed
    }
}

impl Answers {
    /// How long this part of them took at most.
    pub fn percentile(&self, part: f64) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let at = (waits.len() as f64 * part).ceil() as usize;
        waits.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// It, at work in two threads.
pub struct Client {
    stopped: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<[Answers; 2]>,
    under_way: Arc<UnderWay>,
}

/// By ID: when the query was due, and whether it is a miss.
type UnderWay = Mutex<HashMap<u16, (Instant, bool)>>;

impl Client {
    /// Begins to ask.
    pub fn start(server: SocketAddr) -> Client {
        let socket = Arc::new(super::super::client::socket(server));
        let wait = Some(Duration::from_millis(100));
        socket.set_read_timeout(wait).expect("a timeout");
        let stopped = Arc::new(AtomicBool::new(false));
        let under_way = Arc::new(UnderWay::default());
        let sender = std::thread::spawn({
            let (socket, stopped, under_way) =
                (Arc::clone(&socket), Arc::clone(&stopped), Arc::clone(&under_way));
            move || send(&socket, &stopped, &under_way)
        });
        let receiver = std::thread::spawn({
            let (stopped, under_way) = (Arc::clone(&stopped), Arc::clone(&under_way));
            move || receive(&socket, &stopped, &under_way)
        });
        Client {
            stopped,
            sender,
            receiver,
            under_way,
        }
    }

    /// Ends it when the last answers have come, or do not.
    pub fn stop(self) -> Seen {
        self.stopped.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("the calm client");
        let [hits, misses] = self.receiver.join().expect("the calm client");
        let lost = locked(&self.under_way).len() as u64;
        Seen {
            sent,
            lost,
            hits,
            misses,
        }
    }
}

/// Has what it asks for most put into the cache.
pub fn warm(server: SocketAddr) {
    for number in 0..HITS {
        super::warm(server, &hit(number));
    }
}

fn hit(number: u64) -> String {
    format!("hit{number}.calm.test")
}

fn send(socket: &UdpSocket, stopped: &AtomicBool, under_way: &UnderWay) -> u64 {
    // New in each phase.
    static MISSES: AtomicU64 = AtomicU64::new(0);
    let begun = Instant::now();
    let mut number = 0;
    while !stopped.load(Ordering::Relaxed) {
        let due = begun + INTERVAL * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let miss = number % 2 == 1;
        let name = match miss {
            true => format!("miss{}.calm.test", MISSES.fetch_add(1, Ordering::Relaxed)),
            false => hit(u64::from(number) % HITS),
        };
        let mut query = Message::query(&name, "A");
        // Unlike random ones, no two that are under way are equal.
        query.id = number as u16;
        locked(under_way).insert(query.id, (due, miss));
        // Not sent is lost.
        let _ = socket.send(&query.encode());
        number += 1;
    }
    u64::from(number)
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
        if let Some((due, miss)) = locked(under_way).remove(&answer.id) {
            let answers = &mut answers[usize::from(miss)];
            answers.waits.push(due.elapsed());
            answers.failed += u64::from(answer.answers.len() != 1);
        }
    }
}

fn locked(under_way: &UnderWay) -> std::sync::MutexGuard<'_, HashMap<u16, (Instant, bool)>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}
