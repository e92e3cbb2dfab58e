//! Of two processes on one node, the one that started first stands aside while the other answers, and resumes
//! when that one is gone.
//!
//! During an upgrade there are two for seconds, with two installations permanently. If clients were spread
//! over both, the heartbeats of either would keep the rules pointing at the other while that is down. A
//! process that is unable to answer succeeds no other: it takes no queries from one that can.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::worker::{Command, Commands};
use crate::admin::own_reasons;
use crate::config::{Config, Encryption};
use crate::netstat::Protocol;
use crate::node::{Elders, Presence, Successor, others_answer};
use crate::state::State;

/// How often to check whether this process answers yet, and whether its successors still do.
const LOOK: Duration = Duration::from_secs(1);

/// How often to look for processes that started earlier.
const ELDERS: Duration = Duration::from_secs(5);

/// The most successors at a time.
const SUCCESSORS: usize = 16;

/// How long to wait for workers to listen again. A hanging one is not waited for.
const LISTENING: Duration = Duration::from_secs(1);

/// Announces to earlier processes that this one answers, and stands aside for later ones.
pub(super) struct Succession {
    end: Option<oneshot::Sender<oneshot::Sender<()>>>,
    task: JoinHandle<()>,
}

impl Drop for Succession {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Succession {
    /// Starts it for a process that listens.
    pub fn start(presence: Arc<Presence>, state: Arc<State>, workers: Vec<Commands>) -> Succession {
        let (end, ending) = oneshot::channel();
        let place = Place {
            presence,
            state,
            workers,
            elders: Elders::default(),
            looked: None,
            successors: JoinSet::new(),
        };
        let task = tokio::spawn(place.keep(ending));
        Succession { end: Some(end), task }
    }

    /// Makes the processes that stand aside for this one answer again, and waits for it. This one no longer
    /// stands aside.
    pub async fn end(mut self) {
        let (done, wait) = oneshot::channel();
        if self.end.take().is_some_and(|end| end.send(done).is_ok()) {
            let _ = wait.await;
        }
    }
}

/// The place of this process among others.
struct Place {
    presence: Arc<Presence>,
    state: Arc<State>,
    workers: Vec<Commands>,
    elders: Elders,
    /// When earlier processes were last looked for; `None` until this one was ready once.
    looked: Option<Instant>,
    /// Each task ends with the successor that it waits for.
    successors: JoinSet<Successor>,
}

impl Place {
    async fn keep(mut self, mut ending: oneshot::Receiver<oneshot::Sender<()>>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                mut successor = self.presence.successor(), if self.successors.len() < SUCCESSORS => {
                    self.successors.spawn(async move {
                        successor.gone().await;
                        successor
                    });
                    self.judge().await;
                }
                Some(gone) = self.successors.join_next() => {
                    self.judge().await;
                    // The successor may be waiting for us to listen.
                    drop(gone);
                }
                _ = looks.tick() => {
                    self.look().await;
                }
                done = &mut ending => {
                    self.elders.call_back().await;
                    if let Ok(done) = done {
                        let _ = done.send(());
                    }
                    return;
                }
            }
        }
    }

    async fn look(&mut self) {
        let is_due = match self.looked {
            Some(looked) => looked.elapsed() >= ELDERS,
            None => own_reasons(&self.state).is_empty(),
        };
        if is_due {
            self.looked = Some(Instant::now());
            self.elders.tell(&self.presence).await;
        }
        if !self.successors.is_empty() {
            self.judge().await;
        }
    }

    /// Stands aside or steps back, depending on whether others answer.
    async fn judge(&self) {
        let sockets = sockets(&self.state.generation.read().config);
        let answered = !self.successors.is_empty() && others_answer(&sockets);
        let was_aside = self.state.node.aside.swap(answered, Ordering::Relaxed);
        if answered {
            // Sent again, since a reload may have added listeners.
            self.tell_all(|| Command::StepAside);
        }
        if answered && !was_aside {
            tracing::warn!(
                "node: another dnsweir answers where this one did: standing aside until it is gone"
            );
        }
        if was_aside && !answered {
            self.step_back().await;
            tracing::warn!("node: no other dnsweir answers in place of this one any more: listening again");
        }
    }

    async fn step_back(&self) {
        let mut back = Vec::new();
        self.tell_all(|| {
            let (done, wait) = oneshot::channel();
            back.push(wait);
            Command::StepBack(done)
        });
        let all = async {
            for one in back {
                let _ = one.await;
            }
        };
        let _ = timeout(LISTENING, all).await;
    }

    fn tell_all(&self, mut command: impl FnMut() -> Command) {
        for worker in &self.workers {
            let _ = worker.send(command());
        }
    }
}

/// Returns the sockets that a configuration listens on, by kernel table.
fn sockets(config: &Config) -> Vec<(SocketAddr, Protocol)> {
    let sockets = config.listen.each().flat_map(|(address, encryption)| {
        let protocols: &[Protocol] = match encryption {
            None => &[Protocol::Udp, Protocol::Tcp],
            Some(Encryption::Tls | Encryption::Https) => &[Protocol::Tcp],
            Some(Encryption::Quic) => &[Protocol::Udp],
        };
        protocols.iter().map(move |protocol| (address, *protocol))
    });
    sockets.collect()
}
