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

/// The longest time that a stop waits for clients to take their replies.
const TAKING: Duration = Duration::from_secs(1);

/// A generation for one worker, ready so that nothing can fail any more.
pub struct Adoption {
    /// The half that workers share.
    pub generation: Arc<Generation>,
    /// One instance per new filter.
    pub instances: Vec<Instance>,
    /// The new limits of all listeners.
    pub limits: Limits,
}

/// Sockets with their server indexes.
pub type Bound = Vec<(Sockets, u16)>;

/// The channel of commands to a worker.
pub type Commands = mpsc::UnboundedSender<Command>;

/// Commands of the main thread to a worker.
pub enum Command {
    /// Register these sockets of new addresses for the next generation, replacing earlier ones. This is the
    /// last step that can fail; the result is sent back.
    Register(Bound, oneshot::Sender<io::Result<()>>),
    /// The next generation was abandoned: close the sockets registered for it.
    Forget,
    /// Switch to another generation, and listen on the registered sockets. Replies once the next batch will
    /// be served by it.
    Adopt(Adoption, oneshot::Sender<()>),
    /// Also listen on the registered sockets.
    Join,
    /// Start the background work of the generation's sources and pods. Sent to one worker only, after all
    /// have adopted the generation: otherwise a secondary that gets a NOTIFY could ask a worker that still
    /// serves the old zone.
    Begin,
    /// Another process answers on all of this one's addresses: accept nothing new, drain the sockets and
    /// close them. Open connections continue as long as queries come on them.
    StepAside,
    /// The other process is gone: listen again. Replies when that is so, or is retried.
    StepBack(oneshot::Sender<()>),
    /// Accept nothing new, and end when nothing is in progress or time is up.
    Stop {
        /// The time limit.
        within: Duration,
    },
}

/// A running worker.
pub struct WorkerThread {
    /// Its heartbeat.
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
                    // A task like the others: `block_on` polls its own future whenever any task is ready. A
                    // panic has been reported before it gets here, and the thread ends either way.
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

    /// Sends a command. If the worker has ended, it is lost; [`first_to_end`] detects that.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Returns a channel by which others can send commands as well.
    pub fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// Resolves when the thread has ended.
    pub async fn join(self) {
        let _ = self.ended.await;
    }
}

/// Resolves to the index of a worker that has ended on its own.
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

/// Registered sockets with their server indexes.
type Ready = Vec<(Registered, u16)>;

fn register(sockets: Bound) -> io::Result<Ready> {
    let ready = sockets.into_iter();
    ready
        .map(|(sockets, server)| Ok((Registered::new(sockets)?, server)))
        .collect()
}

/// The state of a worker's thread.
struct Work {
    index: usize,
    shared: Arc<Shared>,
    worker: Rc<Worker>,
    limits: Rc<RefCell<Limits>>,
    pulse: Arc<Pulse>,
    listeners: Vec<Listener>,
    /// Set to true to end open connections once they are idle.
    stop: watch::Sender<bool>,
    /// Sockets registered for the next generation.
    ready: Ready,
    /// The addresses it left when it stepped aside, until it listens again.
    left: Vec<(Address, u16)>,
    /// The listeners it left, until their sockets are drained.
    leaving: Vec<Listener>,
    /// Whether listening again has failed and is to be retried.
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
        stop: watch::Sender::new(false),
        ready: Ready::new(),
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
        let stop = self.stop.subscribe();
        let ready = ready.into_iter();
        ready
            .map(|(sockets, server)| Listener::start(&self.worker, sockets, server, &self.limits, &stop))
            .collect()
    }

    /// Switches to another generation, and to its listeners.
    fn adopt(&mut self, adoption: Adoption) {
        *self.limits.borrow_mut() = adoption.limits;
        let (previous, shared) = (self.worker.live(), Arc::clone(&self.shared));
        let (generation, instances) = (adoption.generation, adoption.instances);
        let live = Live::new(generation, instances, Some(&previous), shared, self.index);
        self.worker.swap(live);
        self.join();
    }

    /// Listens on the registered sockets, and stops listening where the generation does not.
    fn join(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        self.listeners.extend(self.listen(ready));
        let generation = Arc::clone(&self.worker.live().generation);
        let wanted = &generation.config.listen;
        let is_wanted = |address: Address| wanted.each().any(|wanted| wanted == address);
        let unwanted = self
            .listeners
            .extract_if(.., |listener| !is_wanted(listener.address));
        self.leaving.extend(unwanted.inspect(|listener| listener.leave()));
        self.left.retain(|(address, _)| is_wanted(*address));
        self.choose();
        self.guard();
    }

    /// Has the watchdog turn its listeners off when it hangs. If it did already, replaces them.
    fn guard(&mut self) {
        if !self.pulse.guard(self.listeners.iter().map(Listener::switch)) {
            self.listen_again();
        }
    }

    /// If configured, makes the kernel choose this worker for packets that arrive on its processor. Not for
    /// QUIC: a connection stays with its worker wherever its client's packets arrive.
    fn choose(&self) {
        let by_processor = self.worker.live().generation.config.listen.by_processor;
        let processor = by_processor.then(|| processor_of(self.index)).flatten();
        let plain = self
            .listeners
            .iter()
            .filter(|listener| listener.address.1.is_none());
        plain.for_each(|listener| listener.switch().prefer(processor));
    }

    /// Starts the background work of new sources.
    fn begin(&self) {
        let generation = Arc::clone(&self.worker.live().generation);
        for source in &generation.sources {
            source.upkeep().begin();
        }
        if let Some(pods) = &generation.pods {
            pods.begin();
        }
    }

    /// Records a heartbeat, and retries what has failed.
    fn beat(&mut self) {
        if self.pulse.beat() {
            self.listen_again();
        }
        if self.returning {
            self.step_back();
        }
        self.leaving.retain(|listener| !listener.has_ended());
    }

    /// Leaves its addresses to another process.
    fn step_aside(&mut self) {
        self.returning = false;
        if self.listeners.is_empty() {
            return;
        }
        // Sockets turned off now stay off.
        self.pulse.guard_new(std::iter::empty());
        let left = self
            .listeners
            .iter()
            .map(|listener| (listener.address, listener.server));
        self.left.extend(left);
        self.stop.send_replace(true);
        self.stop = watch::Sender::new(false);
        self.leave();
    }

    /// Has all listeners drain their sockets and end.
    fn leave(&mut self) {
        self.listeners.iter().for_each(Listener::leave);
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
                self.guard();
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
                self.leave();
                self.listeners = self.listen(again);
                self.choose();
                self.pulse.guard_new(self.listeners.iter().map(Listener::switch));
                tracing::warn!(worker = self.index, "is back: its listeners are enabled again");
            }
            // An address may be missing; the next beat tries again.
            Err(error) => {
                tracing::error!(worker = self.index, %error, "is back, but its listeners cannot be enabled");
            }
        }
    }

    /// Accepts nothing new, and waits for what is in flight.
    async fn end(mut self, within: Duration) {
        // Sockets turned off now stay off.
        self.pulse.guard_new(std::iter::empty());
        self.stop.send_replace(true);
        self.leave();
        let connections = Arc::clone(&self.limits.borrow().connections);
        let ended = async {
            for listener in &mut self.leaving {
                listener.ended().await;
            }
            self.worker.drained().await;
            // A client that does not read must not hold the others up.
            let _ = timeout(TAKING, connections.settled()).await;
        };
        if timeout(within, ended).await.is_err() {
            tracing::warn!(worker = self.index, "queries in flight were abandoned");
        }
        self.worker.tell();
    }
}

/// Returns the processor of the worker with this number, counting those that the calling thread may use;
/// `None` if there are fewer.
fn processor_of(worker: usize) -> Option<usize> {
    let usable = rustix::thread::sched_getaffinity(None).ok()?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|processor| usable.is_set(*processor));
    usable.nth(worker)
}

/// Binds new sockets in place of those that were turned off or closed.
fn sockets_of(listeners: impl Iterator<Item = (Address, u16)>) -> io::Result<Ready> {
    let bound = listeners.map(|(address, server)| {
        // Shared, since the other workers have the port, or another process that shares it.
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
