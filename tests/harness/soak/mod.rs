//! A calm client beside floods of every kind: does it lose anything, how long does it wait, and how do memory
//! and descriptors develop?
//!
//! `cargo xtask soak MINUTES` prints the table. The test `soak` runs some seconds of each flood, and checks
//! only losses and bytes, because times depend on the machine's load.

pub mod calm;
pub mod floods;
pub mod upstream;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Message, client, until};
use calm::Seen;
use floods::{Flood, Stage};

/// The phase with several floods.
pub const TOGETHER: &str = "several of them";

/// The stage for all of it, and its state before the first flood.
pub struct Soak {
    /// The proxy and its neighbours.
    pub stage: Stage,
    /// Open descriptors at the start.
    pub descriptors: usize,
}

/// The result of a phase.
pub struct Row {
    /// The flood.
    pub phase: String,
    /// What the calm client saw.
    pub seen: Seen,
    /// The largest resident memory so far, in bytes.
    pub peak: u64,
    /// Resident memory at the end, in bytes.
    pub resident: u64,
    /// Open descriptors at the end.
    pub descriptors: usize,
}

impl Soak {
    /// Starts proxy and upstreams.
    pub fn start() -> Soak {
        let stage = Stage::start();
        // Cache what floods ask for, including the largest possible answer.
        stage.proxy.connect().ask(&Message::query("big.test", "TXT"));
        until("the records of the cluster", || {
            let services = stage.proxy.query("wide.zoo.svc.cluster.test", "A");
            services.rcode() == "NOERROR"
        });
        let descriptors = stage.proxy.process.descriptors();
        Soak { stage, descriptors }
    }

    /// Runs the calm client beside a flood, or alone.
    pub fn phase(&mut self, flood: Option<Flood>, lasting: Duration) -> Row {
        let phase = flood.map_or("nothing", |flood| flood.name).to_owned();
        self.beside(phase, &flood.into_iter().collect::<Vec<_>>(), lasting, |_, _| {})
    }

    /// Runs the calm client beside several floods, while the configuration is reloaded over and over, a
    /// filter traps, one upstream after the other is killed, and both lose packets.
    pub fn all_at_once(&mut self, floods: &[Flood], lasting: Duration) -> Row {
        let row = self.beside(TOGETHER.to_owned(), floods, lasting, |stage, second| {
            let [first, other] = &stage.upstreams;
            let loss = if second.is_multiple_of(2) { 10 } else { 0 };
            first.lose(loss);
            other.lose(loss);
            first.kill(second % 4 == 1);
            other.kill(second % 4 == 3);
            stage.proxy.rewrite(&stage.text);
            stage.proxy.process.signal("HUP");
            if let Ok(socket) = std::net::UdpSocket::bind("127.0.0.1:0") {
                let trap = Message::query("trap.test", "A").encode();
                for _ in 0..20 {
                    let _ = socket.send_to(&trap, stage.address());
                }
            }
        });
        for upstream in &self.stage.upstreams {
            upstream.kill(false);
            upstream.lose(0);
        }
        row
    }

    /// Waits until everything that floods held is released; false if it is not.
    pub fn settles(&self) -> bool {
        let deadline = Instant::now() + super::PATIENCE;
        while Instant::now() < deadline {
            let metrics = self.stage.proxy.metrics();
            let connections = metrics.sum("dnsweir_tcp_connections", &[]);
            // Allow for the workers' pools to upstreams, this request, and sockets for queries.
            if connections == 0.0 && self.stage.proxy.process.descriptors() <= self.descriptors + 40 {
                return true;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    }

    fn beside(
        &mut self,
        phase: String,
        floods: &[Flood],
        lasting: Duration,
        each_second: impl Fn(&Stage, u64),
    ) -> Row {
        let (stage, stop) = (&self.stage, AtomicBool::new(false));
        calm::warm(stage.address());
        let seen = std::thread::scope(|scope| {
            // Also if something here panics: otherwise the floods would go on for ever.
            let stopping = Stopping(&stop);
            for flood in floods {
                scope.spawn(|| (flood.run)(stage, &stop));
            }
            let calm = calm::Client::start(stage.address());
            let begun = Instant::now();
            let mut second = 0;
            while begun.elapsed() < lasting {
                std::thread::sleep(Duration::from_secs(1).min(lasting.saturating_sub(begun.elapsed())));
                each_second(stage, second);
                second += 1;
            }
            let seen = calm.stop();
            drop(stopping);
            seen
        });
        assert!(
            self.stage.proxy.process.running(),
            "the proxy ended beside {phase}"
        );
        Row {
            phase,
            seen,
            peak: self.stage.proxy.process.memory("VmHWM"),
            resident: self.stage.proxy.process.memory("VmRSS"),
            descriptors: self.stage.proxy.process.descriptors(),
        }
    }
}

/// Stops floods once it is dropped.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Encodes a query.
fn query(name: &str, qtype: &str) -> Vec<u8> {
    Message::query(name, qtype).encode()
}

/// Caches an answer that is too large for a datagram.
fn warm_over_tcp(stage: &Stage, name: &str) {
    until("an answer to be in the cache", || {
        !stage
            .proxy
            .connect()
            .ask(&Message::query(name, "A"))
            .answers
            .is_empty()
    });
}

/// Brings a name into the proxy's cache, with as many retries as that takes beside a flood.
fn warm(server: SocketAddr, name: &str) {
    let socket = client::socket(server);
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("a timeout");
    let mut buffer = [0; 512];
    until("an answer to be in the cache", || {
        let _ = socket.send(&query(name, "A"));
        let answer = socket.recv(&mut buffer).ok();
        answer
            .and_then(|length| Message::decode(&buffer[..length]).ok())
            .is_some_and(|answer| answer.answers.len() == 1)
    });
}

impl Row {
    /// The table's head.
    pub const HEAD: &'static str = "| beside | sent | again | lost | failed | hits p50 | p99 | max | misses p50 | p99 | max | peak MiB | resident MiB | descriptors |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|";
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let Seen {
            sent, again, lost, ..
        } = self.seen;
        write!(
            f,
            "| {} | {sent} | {again} | {lost} | {} |",
            self.phase,
            self.seen.failed()
        )?;
        for kind in [&self.seen.hits, &self.seen.misses] {
            for part in [0.5, 0.99, 1.0] {
                write!(f, " {:.1} ms |", kind.percentile(part).as_secs_f64() * 1e3)?;
            }
        }
        write!(
            f,
            " {:.1} | {:.1} | {} |",
            mebibytes(self.peak),
            mebibytes(self.resident),
            self.descriptors
        )
    }
}
