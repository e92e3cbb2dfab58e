//! A worker's thread: one runtime, its listeners, and the commands of the main thread.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::thread::CpuSet;
use tokio::runtime::LocalOptions;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::watchdog::{BEAT, Pulse};
use crate::filter::Instance;
use crate::listen::{Address, Limits, Listener, Port, Registered, Sockets};
use crate::serve::generation::Generation;
use crate::serve::{Live, Shared, Worker};

/// A generation for one worker, with everything that could fail done.
pub struct Adoption {
    /// The shared half.
    pub generation: Arc<Generation>,
    /// One for each filter.
    pub instances: Vec<Instance>,
    /// Limits of all listeners from now on.
    pub limits: Limits,
}

/// Sockets with their server indexes.
pub type Bound = Vec<(Sockets, u16)>;

/// The way of commands to a worker.
pub type Commands = mpsc::UnboundedSender<Command>;

/// What the main thread tells a worker.
pub enum Command {
    /// Make these sockets, of addresses that it does not listen on yet, ready for the next generation, in place of
    /// others that were. The last thing that can fail: whoever waits is told.
    Register(Bound, oneshot::Sender<io::Result<()>>),
    /// There will be no next generation: close what is ready for it.
    Forget,
    /// Go on with another generation, and listen on what is ready for it. Told when the next batch will be served
    /// by it.
    Adopt(Adoption, oneshot::Sender<()>),
    /// Listen on what is ready as well.
    Join,
    /// Every worker goes by the same generation: its sources and pods may begin with what they do by themselves. For
    /// one worker alone. Not before that: a secondary that is told of a change asks at once, and must not get what was before
    /// it from a worker that has not been told.
    Begin,
    /// Another process answers wherever this one listens: take nothing new, and close the sockets when what they hold has been taken. Connections
    /// that are open go on as long as something is asked on them.
    StepAside,
    /// It does not any more: listen again. Told when that is so, or will be as soon as it can.
    StepBack(oneshot::Sender<()>),
    /// Take nothing new, and end when nothing is under way or the time is over.
    Stop {
        /// That time.
        within: Duration,
    },
}

/// A running worker.
pub struct WorkerThread {
    /// Its sign of life.
    pub pulse: Arc<Pulse>,
    commands: Commands,
    ended: oneshot::Receiver<()>,
}

impl WorkerThread {
    /// Starts a worker that serves `nothing` yet.
    pub fn spawn(
        index: usize,
        shared: Arc<Shared>,
        nothing: Arc<Generation>,
        limits: Limits,
    ) -> io::Result<WorkerThread> {
        let (commands, received) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let pulse = Arc::new(Pulse::new());
        let beating = Arc::clone(&pulse);
        thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                // Dropped at the end of the thread, however it ends.
                let _end = end;
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default());
                match runtime {
                    // A task like the others: what is blocked on is polled whenever any task is. A panic has been
                    // reported by the time it comes here, and the thread ends either way.
                    Ok(runtime) => {
                        let live = Live::new(nothing, Vec::new(), None, Arc::clone(&shared), index);
                        let work = work(index, shared, beating, live, limits, received);
                        let _ = runtime.block_on(runtime.spawn_local(work));
                    }
                    Err(error) => tracing::error!(worker = index, %error, "cannot start"),
                }
            })?;
        Ok(WorkerThread {
            pulse,
            commands,
            ended,
        })
    }

    /// Tells the worker. One that has ended hears nothing, which [`first_to_end`] finds out.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// By which others tell the worker as well.
    pub fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// Resolves when the thread has ended.
    pub async fn join(self) {
        let _ = self.ended.await;
    }
}

/// The index of a worker that has ended without being told.
pub(crate) async fn first_to_end(workers: &mut [WorkerThread]) -> usize {
    std::future::poll_fn(|context| {
        for (index, worker) in workers.iter_mut().enumerate() {
            if std::pin::Pin::new(&mut worker.ended).poll(context).is_ready() {
                return std::task::Poll::Ready(index);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// Sockets that can be listened on at once, with their server indexes.
type Ready = Vec<(Registered, u16)>;

fn register(sockets: Bound) -> io::Result<Ready> {
    let ready = sockets.into_iter();
    ready
        .map(|(sockets, server)| Ok((Registered::new(sockets)?, server)))
        .collect()
}

/// What the thread of a worker has in hand.
struct Work {
    index: usize,
    shared: Arc<Shared>,
    worker: Rc<Worker>,
    limits: Rc<RefCell<Limits>>,
    pulse: Arc<Pulse>,
    listeners: Vec<Listener>,
    /// For the next generation.
    ready: Ready,
    /// Listeners end when this is true.
    stop: watch::Sender<bool>,
    /// Where it listened before it stepped aside, until it does again.
    left: Vec<(Address, u16)>,
    /// What took queries there, until it has taken what its sockets held.
    leaving: Vec<Listener>,
    /// It is to listen there again, and could not yet.
    returning: bool,
}

async fn work(
    index: usize,
    shared: Arc<Shared>,
    pulse: Arc<Pulse>,
    first: Live,
    limits: Limits,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let worker = Worker::new(Arc::clone(&shared), first);
    tokio::task::spawn_local(Rc::clone(&worker).tell_when_due());
    let mut work = Work {
        index,
        shared,
        worker,
        limits: Rc::new(RefCell::new(limits)),
        pulse,
        listeners: Vec::new(),
        ready: Ready::new(),
        stop: watch::Sender::new(false),
        left: Vec::new(),
        leaving: Vec::new(),
        returning: false,
    };
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let within = loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            _ = beats.tick() => {
                work.beat();
                continue;
            }
        };
        match command {
            None => break Duration::ZERO,
            Some(Command::Register(sockets, done)) => {
                let registered = register(sockets);
                let _ = done.send(registered.map(|registered| work.ready = registered));
            }
            Some(Command::Forget) => work.ready.clear(),
            Some(Command::Adopt(adoption, done)) => {
                work.adopt(adoption);
                let _ = done.send(());
            }
            Some(Command::Join) => work.join(),
            Some(Command::Begin) => work.begin(),
            Some(Command::StepAside) => work.step_aside(),
            Some(Command::StepBack(done)) => {
                work.step_back();
                let _ = done.send(());
            }
            Some(Command::Stop { within }) => break within,
        }
    };
    work.end(within).await;
}

impl Work {
    fn listen(&self, ready: Ready) -> Vec<Listener> {
        let stopping = self.stop.subscribe();
        let ready = ready.into_iter();
        ready
            .map(|(sockets, server)| Listener::start(&self.worker, sockets, server, &self.limits, &stopping))
            .collect()
    }

    /// Goes on with another generation, and with the listeners that it wants.
    fn adopt(&mut self, adoption: Adoption) {
        *self.limits.borrow_mut() = adoption.limits;
        let (previous, shared) = (self.worker.live(), Arc::clone(&self.shared));
        let (generation, instances) = (adoption.generation, adoption.instances);
        let live = Live::new(generation, instances, Some(&previous), shared, self.index);
        self.worker.swap(live);
        self.join();
    }

    /// Listens on what is ready, and no more on what the generation does not want.
    fn join(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        self.listeners.extend(self.listen(ready));
        let generation = Arc::clone(&self.worker.live().generation);
        let wanted = &generation.config.listen;
        let is_wanted = |address: Address| wanted.each().any(|wanted| wanted == address);
        self.listeners.retain(|listener| is_wanted(listener.address));
        self.left.retain(|(address, _)| is_wanted(*address));
        self.choose();
        self.pulse.guard(self.listeners.iter().map(Listener::switch));
    }

    /// Has the kernel choose this worker for what arrives on its processor, if that is wanted. Not over QUIC, where the
    /// worker that has a connection has to go on with it wherever its client runs.
    fn choose(&self) {
        let by_processor = self.worker.live().generation.config.listen.by_processor;
        let processor = by_processor.then(|| processor_of(self.index)).flatten();
        let plain = self
            .listeners
            .iter()
            .filter(|listener| listener.address.1.is_none());
        plain.for_each(|listener| listener.switch().prefer(processor));
    }

    /// What is new begins with what it does by itself.
    fn begin(&self) {
        let generation = Arc::clone(&self.worker.live().generation);
        for source in &generation.sources {
            source.begin();
        }
        if let Some(pods) = &generation.pods {
            pods.begin();
        }
    }

    /// Shows that it lives, and does what it could not do before.
    fn beat(&mut self) {
        if self.pulse.beat() {
            self.listen_again();
        }
        if self.returning {
            self.step_back();
        }
        self.leaving.retain(|listener| !listener.has_ended());
    }

    /// Leaves what it listens on to another process.
    fn step_aside(&mut self) {
        self.returning = false;
        if self.listeners.is_empty() {
            return;
        }
        // What is turned off now stays off.
        self.pulse.guard(std::iter::empty());
        self.stop.send_replace(true);
        self.stop = watch::Sender::new(false);
        let left = self
            .listeners
            .iter()
            .map(|listener| (listener.address, listener.server));
        self.left.extend(left);
        self.leaving.append(&mut self.listeners);
    }

    /// Listens again where it stepped aside.
    fn step_back(&mut self) {
        match sockets_of(self.left.iter().copied()) {
            Ok(again) => {
                self.returning = false;
                self.left.clear();
                let again = self.listen(again);
                self.listeners.extend(again);
                self.choose();
                self.pulse.guard(self.listeners.iter().map(Listener::switch));
            }
            // An address may be missing; the next beat tries again.
            Err(error) => {
                if !std::mem::replace(&mut self.returning, true) {
                    tracing::error!(worker = self.index, %error, "cannot listen again yet");
                }
            }
        }
    }

    /// Replaces listeners that were turned off while the worker was unresponsive.
    fn listen_again(&mut self) {
        match sockets_of(
            self.listeners
                .iter()
                .map(|listener| (listener.address, listener.server)),
        ) {
            Ok(again) => {
                self.listeners = self.listen(again);
                self.choose();
                self.pulse.guard(self.listeners.iter().map(Listener::switch));
                tracing::warn!(worker = self.index, "is back: its listeners are enabled again");
            }
            // An address may be missing; the next beat tries again.
            Err(error) => {
                tracing::error!(worker = self.index, %error, "is back, but its listeners cannot be enabled");
            }
        }
    }

    /// Takes nothing new, and waits for what is in flight.
    async fn end(mut self, within: Duration) {
        // What is turned off now stays off.
        self.pulse.guard(std::iter::empty());
        self.stop.send_replace(true);
        let ended = async {
            for listener in self.listeners.iter_mut().chain(&mut self.leaving) {
                listener.ended().await;
            }
            self.worker.drained().await;
        };
        if timeout(within, ended).await.is_err() {
            tracing::warn!(worker = self.index, "queries in flight were abandoned");
        }
        self.worker.tell();
    }
}

/// The processor of the worker with this number: one of those that the calling thread may use, in their order; none if there
/// are fewer.
fn processor_of(worker: usize) -> Option<usize> {
    let usable = rustix::thread::sched_getaffinity(None).ok()?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|processor| usable.is_set(*processor));
    usable.nth(worker)
}

/// New sockets in place of those that were turned off or closed.
fn sockets_of(listeners: impl Iterator<Item = (Address, u16)>) -> io::Result<Ready> {
    let bound = listeners.map(|(address, server)| {
        // Ours already: the other workers have it, or another process that shares it.
        let sockets = Sockets::bind(address, Port::Shared).map_err(io::Error::other)?;
        Ok((sockets, server))
    });
    register(bound.collect::<io::Result<Bound>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_one_of_the_processors_that_the_process_may_use() {
        let first = processor_of(0).unwrap();
        let mut only = CpuSet::new();
        only.set(first);
        rustix::thread::sched_setaffinity(None, &only).unwrap();
        assert_eq!((processor_of(0), processor_of(1)), (Some(first), None));
    }
}
