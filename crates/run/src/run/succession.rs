//! Of two processes that look after one node, the one that began first stands aside while the other one answers, and answers again when that
//! is gone.
//!
//! An upgrade has two such processes for seconds, two installations for good. Were clients spread over both, either one's heartbeats would
//! keep the rules leading to the other while that does not run. A process that could not answer is nobody's successor: it takes no queries from
//! one that can.

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

/// How often it is looked whether this process answers yet, and whether its successors still do.
const LOOK: Duration = Duration::from_secs(1);

/// How often those that began before are looked for.
const ELDERS: Duration = Duration::from_secs(5);

/// Successors at once, at most.
const SUCCESSORS: usize = 16;

/// How long workers are waited for. One that hangs is not.
const LISTENING: Duration = Duration::from_secs(1);

/// Says to those that began before that this process answers, and stands aside for those that began after.
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
    /// Of a process that listens.
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

    /// Has those that stand aside for this process answer again, and returns when they do. It stands aside for nobody any more.
    pub async fn end(mut self) {
        let (done, wait) = oneshot::channel();
        if self.end.take().is_some_and(|end| end.send(done).is_ok()) {
            let _ = wait.await;
        }
    }
}

/// Where this process stands among others.
struct Place {
    presence: Arc<Presence>,
    state: Arc<State>,
    workers: Vec<Commands>,
    elders: Elders,
    /// When elders were last looked for; none: this process has not been ready yet.
    looked: Option<Instant>,
    /// Each ends with the successor that it waits for.
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
                    // It may be waiting for us to listen.
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

    /// Stands aside, or steps back, as it is now.
    async fn judge(&self) {
        let sockets = sockets(&self.state.generation.read().config);
        let answered = !self.successors.is_empty() && others_answer(&sockets);
        let was_aside = self.state.node.aside.swap(answered, Ordering::Relaxed);
        if answered {
            // Again, since a reload may have added to what is listened on.
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

/// What a configuration listens on, by the kernel's tables in which it stands.
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
