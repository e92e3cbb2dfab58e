//! Waits for events while the proxy runs, and takes it from one generation to the next.
//!
//! Everything that can fail is done before the first worker switches. When the process is told to end, a load
//! or reload in progress is abandoned.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::signal::unix::Signal;
use tokio::sync::oneshot;

use super::absent;
use super::before::Former;
use super::descriptors::Descriptors;
use super::named_upstreams::NamedUpstreams;
use super::refresh::Refresher;
use super::worker::{self, Adoption, Command};
use super::{
    ConfigOrigin, Doors, Prepared, Proxy, Signals, Stop, bind, ceiling, interval, machine, port, prepare,
};
use crate::config::Config;
use crate::filter::{self, Instance};
use crate::listen::Limits;
use crate::log::REPORT;
use crate::node::{Plan, Reconciler};
use crate::registry::Deliveries;
use crate::serve::generation::{Generation, Loaded};
use crate::source;
use crate::watch;

/// How many loads in a row a newer change may cancel. The next one runs to its end: otherwise files that
/// change faster than they load would never be loaded.
const SUPERSEDED: u32 = 3;

/// Held while a configuration is loaded.
static LOADING: Mutex<()> = Mutex::new(());

/// The reasons to load the configuration again.
struct Reasons {
    /// Changes of its files.
    changes: watch::Changes,
    deliveries: Arc<Deliveries>,
    named: Arc<NamedUpstreams>,
}

impl Reasons {
    /// Resolves with the next one. Cancel-safe.
    async fn come(&mut self, hangup: &mut Signal) -> &'static str {
        tokio::select! {
            _ = hangup.recv() => { self.changes.note(); "SIGHUP" }
            () = self.changes.changed() => "a file changed",
            () = self.deliveries.moved() => "a tag moved",
            () = self.named.changed() => "an upstream has other addresses",
        }
    }

    /// Watches the files of the running configuration and those of one that was read, valid or not. Returns
    /// whether that has new ones.
    fn watch(&mut self, running: &Config, read: &Result<Config, Stop>) -> bool {
        let files = match read {
            Ok(config) => config.files.as_slice(),
            Err(Stop::Configuration(report)) => report.files(),
            // It does not say which there are.
            Err(Stop::Machine(_)) => return false,
        };
        self.changes.watch(&[running.files.as_slice(), files].concat())
    }
}

/// Why a load was given up.
enum GivenUp {
    /// The process ends.
    End,
    /// There is a reason for another one.
    Superseded(&'static str),
}

/// Does a part of a load. Dropping it, because the process ends or, if it `yields`, there is a reason for
/// another load, cancels it.
async fn unless_given_up<T>(
    part: impl Future<Output = T>,
    signals: &mut Signals,
    reasons: &mut Reasons,
    yields: bool,
) -> Result<T, GivenUp> {
    tokio::select! {
        done = part => Ok(done),
        () = signals.end.come() => Err(GivenUp::End),
        why = reasons.come(&mut signals.hangup), if yields => Err(GivenUp::Superseded(why)),
    }
}

/// Waits until a generation has what it needs to answer: the data of its filters and sources, and its pods.
/// They load in parallel, each for at most its configured time since it began.
///
/// # Errors
/// When there is no thread to refresh filters.
pub async fn learn(refresher: &Refresher, generation: &Generation) -> io::Result<()> {
    refresher.supply(generation);
    let sources = source::bring_up(&generation.sources);
    let pods = async {
        if let Some(pods) = &generation.pods {
            pods.bring_up().await;
        }
    };
    let (refreshed, ..) = tokio::join!(refresher.bring_up(generation), sources, pods);
    refreshed
}

impl Proxy {
    /// Handles events until it is time to end.
    pub(super) async fn attend(
        &mut self,
        signals: &mut Signals,
        changes: watch::Changes,
    ) -> Result<(), Stop> {
        let mut reasons = Reasons {
            changes,
            deliveries: Arc::clone(&self.state.deliveries),
            named: Arc::clone(&self.named),
        };
        let mut superseded = 0;
        let mut newer = None;
        loop {
            let why = match newer.take() {
                Some(why) => why,
                None => tokio::select! {
                    () = signals.end.come() => return Ok(()),
                    index = worker::first_to_end(&mut self.workers) => {
                        return Err(Stop::Machine(format!("worker {index} has ended, which is a bug of dnsweir: please report it")));
                    }
                    why = reasons.come(&mut signals.hangup) => why,
                    () = self.engine.alarm() => {
                        tokio::select! {
                            () = self.go_back() => continue,
                            // Going back is abandoned, like a reload.
                            () = signals.end.come() => return Ok(()),
                        }
                    }
                    () = self.before.is_old() => {
                        self.before.forget_old();
                        continue;
                    }
                    () = absent::news(&mut self.news) => match self.look_at_links().await {
                        Some(why) => why,
                        None => continue,
                    },
                },
            };
            tracing::info!(why, "reloading the configuration");
            self.before.make_room(&self.state.generation.read().config);
            let loaded = self.load_next(signals, &mut reasons, superseded < SUPERSEDED);
            let loaded = match loaded.await {
                Ok(loaded) => loaded,
                Err(GivenUp::End) => return Ok(()),
                Err(GivenUp::Superseded(why)) => {
                    superseded += 1;
                    newer = Some(why);
                    continue;
                }
            };
            superseded = 0;
            tokio::select! {
                () = self.reload(why, loaded, &mut reasons.changes) => {}
                // The reload is abandoned: the process ends.
                () = signals.end.come() => return Ok(()),
            }
        }
    }

    /// Goes back to the previous filter when one fails for many names while on probation, if the previous one
    /// fails for fewer of the same. Everything else stays.
    async fn go_back(&mut self) {
        let current = Arc::clone(&self.state.generation.read());
        while let Some((index, charges, former)) = self.before.charged(&current) {
            let (name, why) = (current.filters[index].filter.name(), charges.why.clone());
            let failed = charges.names();
            let asked = Arc::clone(&former.loaded.filter);
            let would = filter::beside(&self.engine, move |engine| asked.failures_on(&charges, engine)).await;
            let would = would.unwrap_or(failed);
            if would >= failed {
                tracing::error!(
                    "the filter {name:?} failed for {failed} names while on probation, most recently: {why}; the previous one fails for \
                     {would} of them, so the new one stays"
                );
                continue;
            }
            let why = format!(
                "the filter {name:?} is not the one in the file but the previous one: the one in the file failed for {failed} \
                 names, most recently: {why}; the previous one fails for {would} of them"
            );
            tracing::error!("{why}");
            match self.put_back(&current, index, &former, why).await {
                Ok(()) => {
                    self.state.reverted_reloads.fetch_add(1, Ordering::Relaxed);
                }
                Err(stop) => tracing::error!(name: REPORT, "could not go back:\n{stop}"),
            }
            return;
        }
    }

    /// Puts a former filter in place of the one at this index.
    async fn put_back(
        &mut self,
        current: &Arc<Generation>,
        index: usize,
        former: &Former,
        why: String,
    ) -> Result<(), Stop> {
        let config = former.in_place_of(index, &current.config, why);
        self.adapt(current, config, Some(former.loaded.clone())).await
    }

    /// Gives the running configuration the addresses that its upstreams have now. They were a reason to reload,
    /// which a rejected configuration has used up.
    async fn renew_upstreams(&mut self, current: &Arc<Generation>) {
        let (named, mut config) = (Arc::clone(&self.named), current.config.clone());
        let renewed = filter::beside(&self.engine, move |_| {
            named.renew_in(&mut config).then_some(config)
        });
        let adapted = match renewed.await.map_err(machine) {
            Ok(None) => return,
            Ok(Some(config)) => self.adapt(current, config, None).await,
            Err(stop) => Err(stop),
        };
        match adapted {
            Ok(()) => {
                // The servers of `bootstrap` may have others, too.
                self.named.settle(&self.state.generation.read().config);
                self.tell_notes();
                tracing::info!("upstreams have other addresses: the previous configuration uses them");
            }
            Err(stop) => {
                self.refresher.supply(current);
                tracing::error!(name: REPORT, "could not use the new addresses of upstreams:\n{stop}");
            }
        }
    }

    /// Switches to a configuration made from the running one, with a `former` filter if it has one.
    async fn adapt(
        &mut self,
        current: &Arc<Generation>,
        config: Config,
        former: Option<Loaded>,
    ) -> Result<(), Stop> {
        let (number, workers) = (current.number + 1, self.workers.len());
        let running = Arc::clone(current);
        let prepared = filter::beside(&self.engine, move |engine| {
            let _alone = LOADING.lock();
            prepare(number, config, engine, workers, Some(&running), former.as_ref())
        });
        let prepared = prepared.await.map_err(machine)??;
        learn(&self.refresher, &prepared.generation)
            .await
            .map_err(machine)?;
        self.change_over(prepared).await
    }

    /// Prepares the next generation from the current files, which are watched from then on, whether they are
    /// valid or not.
    async fn load_next(
        &self,
        signals: &mut Signals,
        reasons: &mut Reasons,
        yields: bool,
    ) -> Result<Result<Prepared, Stop>, GivenUp> {
        let read = loop {
            let read = unless_given_up(self.read_next(), signals, reasons, yields).await?;
            // A new file may have changed since it was read, before it was watched.
            if !reasons.watch(&self.state.generation.read().config, &read) {
                break read;
            }
        };
        match read {
            Ok(config) => unless_given_up(self.prepare_next(config), signals, reasons, yields).await,
            Err(stop) => Ok(Err(stop)),
        }
    }

    /// Reads the current files, and changes nothing.
    async fn read_next(&self) -> Result<Config, Stop> {
        let (origin, without_test_cases) = (self.origin.clone(), self.without_test_cases);
        if let ConfigOrigin::Demonstration = origin {
            return Err(machine("there is no configuration file to reload"));
        }
        // It takes a while; the admin address keeps answering.
        let read = filter::beside(&self.engine, move |_| {
            // A cancelled load may still be reading data, and there is no memory for two.
            let _alone = LOADING.lock();
            origin.load(without_test_cases, false)
        });
        read.await.map_err(machine)?.map_err(Stop::Configuration)
    }

    /// Prepares the next generation from its configuration. If that is rejected, [`Self::reload`] sets back
    /// what this changes for upstreams.
    async fn prepare_next(&self, mut config: Config) -> Result<Prepared, Stop> {
        let current = Arc::clone(&self.state.generation.read());
        let (number, workers) = (current.number + 1, self.workers.len());
        self.named.learn(&mut config).await;
        self.state.deliveries.deliver(&mut config).await?;
        let prepared = filter::beside(&self.engine, move |engine| {
            let _alone = LOADING.lock();
            prepare(number, config, engine, workers, Some(&current), None)
        });
        let prepared = prepared.await.map_err(machine)??;
        let learnt = learn(&self.refresher, &prepared.generation).await;
        learnt.map_err(machine)?;
        Ok(prepared)
    }

    /// Switches to what was loaded; if that is invalid, changes nothing, and goes on watching its files, since
    /// one of them is to be corrected.
    async fn reload(&mut self, why: &str, loaded: Result<Prepared, Stop>, changes: &mut watch::Changes) {
        let done = match loaded {
            Ok(prepared) => self.change_over(prepared).await,
            Err(stop) => Err(stop),
        };
        let generation = Arc::clone(&self.state.generation.read());
        self.named.settle(&generation.config);
        match done {
            Ok(()) => {
                changes.watch(&generation.config.files);
                self.state.reloads.fetch_add(1, Ordering::Relaxed);
                *self.state.reload_error.lock() = None;
                self.tell_notes();
                match &self.onlooker {
                    Some(tell) => tell(Ok(&generation)),
                    None => tracing::info!(generation = generation.number, why, "reloaded"),
                }
            }
            Err(stop) => {
                self.refresher.supply(&generation);
                self.state.failed_reloads.fetch_add(1, Ordering::Relaxed);
                *self.state.reload_error.lock() = Some(stop.to_string());
                match &self.onlooker {
                    Some(tell) => tell(Err(&stop)),
                    None => tracing::error!(
                        name: REPORT,
                        generation = generation.number,
                        why,
                        "not reloaded; the previous configuration stays in use:\n{stop}"
                    ),
                }
                self.renew_upstreams(&generation).await;
            }
        }
    }

    /// Switches all workers to another generation, including the first; on failure, nothing changes.
    pub(super) async fn change_over(&mut self, prepared: Prepared) -> Result<(), Stop> {
        let current = Arc::clone(&self.state.generation.read());
        let workers = self.workers.len();
        let Prepared {
            generation,
            instances,
        } = prepared;
        let (config, old) = (&generation.config, &current.config);
        let descriptors = Descriptors::of_process(config, workers).map_err(machine)?;
        self.walls.hold(config).map_err(machine)?;
        if self.reconciler.is_none() && config.node.is_some() {
            return Err(machine(
                "a `node` section needs capabilities that were dropped at startup, since there was none: restart dnsweir",
            ));
        }
        let doors = match self.bind_next(config, old).await {
            Ok(doors) => doors,
            Err(stop) => {
                self.forget_next(old).await;
                return Err(stop);
            }
        };
        // Nothing after this can fail: the next generation begins here.
        self.open(doors, config);
        self.await_links(config);
        if config.workers != workers {
            tracing::warn!(
                workers,
                wanted = config.workers,
                "a changed number of workers takes effect after a restart"
            );
        }
        let (shared, connections) = (&self.state.shared, &self.state.connections);
        shared.upstream_sockets.set_limit(descriptors.upstream_sockets);
        connections.bound(&config.listen, descriptors.connections);
        let ceiling = ceiling(&generation, workers, descriptors);
        shared.cache.set_limit(ceiling.cache());
        *self.state.ceiling.write() = ceiling;
        let limits = Limits::new(&config.listen, workers, Arc::clone(connections));
        self.adopt(&generation, instances, &limits).await;
        shared.waiting.set_limit(config.waiting_queries);
        self.state.deliveries.accept(&generation.config);
        *self.state.generation.write() = Arc::clone(&generation);
        // Set first, so that `/status` shows the generation that answers while the node's network is checked.
        self.guard(&generation.config, &current.config).await;
        self.before.follow(&current, &generation);
        // Addresses may have appeared before we were notified of them.
        self.take_absent().await;
        Ok(())
    }

    /// Adapts the node's network to another configuration, and tests it.
    async fn guard(&self, config: &Config, old: &Config) {
        let Some(reconciler) = self.concerned(config, old) else {
            return;
        };
        let (plan, interval) = (Plan::of(config), interval(config));
        if let Err(error) = reconciler.guard(plan.clone(), interval).await {
            tracing::error!(%error, "node: the rules are still those of the previous configuration");
            return;
        }
        self.watchdog.beat();
        reconciler.test(&plan, interval).await;
    }

    /// Returns the node's reconciler, if another configuration changes anything for it.
    fn concerned(&self, config: &Config, old: &Config) -> Option<&Reconciler> {
        let changed = Plan::of(config) != Plan::of(old) || config.node != old.node;
        self.reconciler.as_ref().filter(|_| changed)
    }

    /// Adds addresses, and binds the new ones: everything that can fail. The running generation keeps
    /// serving.
    async fn bind_next(&self, config: &Config, old: &Config) -> Result<Doors, Stop> {
        let added: Vec<_> = config
            .listen
            .each()
            .filter(|address| {
                let known = old.listen.each().any(|known| known == *address);
                !known || self.state.absent.read().contains(address)
            })
            .collect();
        // A predecessor that ends must not remove the addresses before we listen on them.
        let _turn = match self.concerned(config, old) {
            Some(reconciler) => Some(reconciler.carry(Plan::of(config)).await.map_err(machine)?),
            None => None,
        };
        let workers = self.workers.len();
        let bound = bind(&self.state.shared, &added, workers, port(config)).map_err(machine)?;
        if let Some(why) = bound.why
            && bound.absent.len() == config.listen.each().count()
        {
            return Err(machine(why));
        }
        self.register(bound.sockets).await?;
        // Last, since it replaces what is there.
        let admin = self.bind_admin(config).map_err(machine)?;
        let control = self.bind_control(config).map_err(machine)?;
        Ok(Doors {
            admin,
            control,
            absent: bound.absent,
        })
    }

    /// Undoes the preparations for a generation that was abandoned.
    async fn forget_next(&self, old: &Config) {
        for worker in &self.workers {
            worker.send(Command::Forget);
        }
        if let Some(reconciler) = self.reconciler.as_ref().filter(|_| old.node.is_some())
            && let Err(error) = reconciler.guard(Plan::of(old), interval(old)).await
        {
            tracing::error!(%error, "node: could not put back what was made ready");
        }
    }

    /// Switches each worker to another generation, then makes one of them start the generation's background
    /// work.
    async fn adopt(&self, generation: &Arc<Generation>, instances: Vec<Vec<Instance>>, limits: &Limits) {
        let mut adopted = Vec::new();
        for (worker, instances) in self.workers.iter().zip(instances) {
            let (done, wait) = oneshot::channel();
            let adoption = Adoption {
                generation: Arc::clone(generation),
                instances,
                limits: limits.clone(),
            };
            worker.send(Command::Adopt(adoption, done));
            adopted.push(wait);
        }
        for adopted in adopted {
            // If the worker has ended, `attend` notices, and the process ends.
            let _ = adopted.await;
        }
        if let Some(worker) = self.workers.first() {
            worker.send(Command::Begin);
        }
    }

    /// Makes each worker register the sockets of the next generation.
    pub(super) async fn register(&self, sockets: Vec<worker::Bound>) -> Result<(), Stop> {
        let mut registered = Vec::new();
        for (worker, sockets) in self.workers.iter().zip(sockets) {
            let (done, wait) = oneshot::channel();
            worker.send(Command::Register(sockets, done));
            registered.push(wait);
        }
        for registered in registered {
            registered
                .await
                .map_err(|_| machine("a worker has ended"))?
                .map_err(machine)?;
        }
        Ok(())
    }
}
