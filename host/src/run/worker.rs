//! A worker's thread: one runtime, its listeners, and the commands of the main thread.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::LocalOptions;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::watchdog::{BEAT, Pulse};
use crate::filter::Instance;
use crate::listen::{Limits, Listener, Port, Registered, Sockets};
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

/// What the main thread tells a worker.
pub enum Command {
    /// Make these sockets, of addresses that it does not listen on yet, ready for the next generation, in place of
    /// others that were. The last thing that can fail: whoever waits is told.
    Register(Bound, oneshot::Sender<io::Result<()>>),
    /// There will be no next generation: close what is ready for it.
    Forget,
    /// Go on with another generation, and listen on what is ready for it. TraceView when the next batch will be served
    /// by it.
    Adopt(Adoption, oneshot::Sender<()>),
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
    commands: mpsc::UnboundedSender<Command>,
    ended: oneshot::Receiver<()>,
}

impl WorkerThread {
    /// Starts a worker with its first generation and the sockets for it. `begun` is told whether it listens.
    pub fn spawn(
        index: usize,
        shared: Arc<Shared>,
        first: Adoption,
        sockets: Bound,
        begun: oneshot::Sender<io::Result<()>>,
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
                        let work = runtime.spawn_local(async move {
                            match register(sockets) {
                                Ok(ready) => {
                                    work(index, shared, beating, (first, ready, begun), received).await;
                                }
                                Err(error) => drop(begun.send(Err(error))),
                            }
                        });
                        let _ = runtime.block_on(work);
                    }
                    Err(error) => drop(begun.send(Err(error))),
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

    /// Resolves when the thread has ended.
    pub async fn join(self) {
        let _ = self.ended.await;
    }
}

/// The index of a worker that has ended without being told.
pub async fn first_to_end(workers: &mut [WorkerThread]) -> usize {
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

async fn work(
    index: usize,
    shared: Arc<Shared>,
    pulse: Arc<Pulse>,
    (first, mut ready, begun): (Adoption, Ready, oneshot::Sender<io::Result<()>>),
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let (stop, stopping) = watch::channel(false);
    let live = |generation, instances, previous: Option<&Live>| {
        Live::new(generation, instances, previous, Arc::clone(&shared), index)
    };
    let worker = Worker::new(Arc::clone(&shared), live(first.generation, first.instances, None));
    tokio::task::spawn_local(Rc::clone(&worker).tell_when_due());
    let limits = Rc::new(RefCell::new(first.limits));
    let listen = |ready: &mut Ready| -> Vec<Listener> {
        let ready = ready.drain(..);
        ready
            .map(|(sockets, server)| Listener::start(&worker, sockets, server, &limits, &stopping))
            .collect()
    };
    let mut listeners = listen(&mut ready);
    pulse.guard(listeners.iter().map(Listener::switch));
    let _ = begun.send(Ok(()));
    if index == 0 {
        begin_sources(&worker);
    }
    let mut within = Duration::ZERO;
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            _ = beats.tick() => {
                if pulse.beat() {
                    match sockets_of(&listeners) {
                        Ok(mut again) => {
                            listeners = listen(&mut again);
                            pulse.guard(listeners.iter().map(Listener::switch));
                            tracing::warn!(worker = index, "is back: its listeners are enabled again");
                        }
                        // An address may be missing; the next beat tries again.
                        Err(error) => tracing::error!(worker = index, %error, "is back, but its listeners cannot be enabled"),
                    }
                }
                continue;
            }
        };
        match command {
            None => break,
            Some(Command::Register(sockets, done)) => {
                let registered = register(sockets);
                let _ = done.send(registered.map(|registered| ready = registered));
            }
            Some(Command::Forget) => ready.clear(),
            Some(Command::Adopt(adoption, done)) => {
                *limits.borrow_mut() = adoption.limits;
                let previous = worker.live();
                worker.swap(live(adoption.generation, adoption.instances, Some(&previous)));
                let wanted = &worker.live().generation.config.listen.addresses.clone();
                listeners.extend(listen(&mut ready));
                listeners.retain(|listener: &Listener| wanted.contains(&listener.address));
                pulse.guard(listeners.iter().map(Listener::switch));
                let _ = done.send(());
                if index == 0 {
                    begin_sources(&worker);
                }
            }
            Some(Command::Stop { within: bound }) => {
                within = bound;
                break;
            }
        }
    }
    // What is turned off now stays off.
    pulse.guard(std::iter::empty());
    let _ = stop.send(true);
    let ended = async {
        for listener in &mut listeners {
            listener.ended().await;
        }
        worker.drained().await;
    };
    if timeout(within, ended).await.is_err() {
        tracing::warn!(worker = index, "queries in flight were abandoned");
    }
    worker.tell();
}

/// New sockets in place of those of listeners that were turned off.
fn sockets_of(listeners: &[Listener]) -> io::Result<Ready> {
    let bound = listeners.iter().map(|listener| {
        // Ours already: the other workers have it.
        let sockets = Sockets::bind(listener.address, Port::Shared).map_err(io::Error::other)?;
        Ok((sockets, listener.server))
    });
    register(bound.collect::<io::Result<Bound>>()?)
}

/// Has sources that are new begin with what they do by themselves.
fn begin_sources(worker: &Rc<Worker>) {
    for source in &worker.live().generation.sources {
        source.begin();
    }
}
