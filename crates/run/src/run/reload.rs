//! From one generation to the next: what is waited for while the proxy runs, and what becomes of a configuration that
//! changed.
//!
//! Whatever can fail has succeeded before the first worker is told, and whatever is under way when the process is told to
//! end is given up.

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
use crate::serve::generation::Generation;
use crate::source;
use crate::watch;

/// How many times in a row a load makes room for a newer one. The next is waited for: files that change faster than they
/// can be loaded would never be.
const SUPERSEDED: u32 = 3;

/// Held while a configuration is loaded.
static LOADING: Mutex<()> = Mutex::new(());

/// Waits until a generation knows what it has to know before it is asked: the data of its filters, what its sources answer from,
/// and its pods; for all side by side, and each for no longer than the configuration says since it began.
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
    /// Waits for what happens, and returns when it is time to end.
    pub(super) async fn attend(
        &mut self,
        signals: &mut Signals,
        mut changes: watch::Changes,
    ) -> Result<(), Stop> {
        let (deliveries, named) = (Arc::clone(&self.state.deliveries), Arc::clone(&self.named));
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
                    why = reason_to_load(&mut signals.hangup, &mut changes, &deliveries, &named) => why,
                    () = self.engine.alarm() => {
                        tokio::select! {
                            () = self.go_back() => continue,
                            // As a reload.
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
            let loaded = tokio::select! {
                loaded = self.load_next() => loaded,
                // What is being loaded ends with being waited for.
                () = signals.end.come() => return Ok(()),
                // The files say something else by now.
                why = reason_to_load(&mut signals.hangup, &mut changes, &deliveries, &named), if superseded < SUPERSEDED => {
                    superseded += 1;
                    newer = Some(why);
                    continue;
                }
            };
            superseded = 0;
            tokio::select! {
                () = self.reload(why, loaded) => {}
                // A reload that is not waited for any more is one that did not happen: we end.
                () = signals.end.come() => return Ok(()),
            }
            changes.watch(&self.state.generation.read().config.files);
        }
    }

    /// Goes back to the filter before one that fails for many while it is on probation, if that fails on less of the same.
    /// Everything else stays as it is.
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

    /// Puts a former filter in the place of the one with this index.
    async fn put_back(
        &mut self,
        current: &Arc<Generation>,
        index: usize,
        former: &Former,
        why: String,
    ) -> Result<(), Stop> {
        let (number, workers) = (current.number + 1, self.workers.len());
        let config = former.in_place_of(index, &current.config, why);
        let (running, loaded) = (Arc::clone(current), former.loaded.clone());
        let prepared = filter::beside(&self.engine, move |engine| {
            let _alone = LOADING.lock();
            prepare(number, config, engine, workers, Some(&running), Some(&loaded))
        });
        let prepared = prepared.await.map_err(machine)??;
        learn(&self.refresher, &prepared.generation)
            .await
            .map_err(machine)?;
        self.change_over(prepared).await
    }

    /// Makes the next generation of what the file says now, and changes nothing. It is given up if this is dropped.
    async fn load_next(&self) -> Result<Prepared, Stop> {
        let origin = self.origin.clone();
        if let ConfigOrigin::Demonstration = origin {
            return Err(machine("there is no configuration file to reload"));
        }
        let current = Arc::clone(&self.state.generation.read());
        let (number, workers) = (current.number + 1, self.workers.len());
        let without_test_cases = self.without_test_cases;
        // Compiling takes a while; the admin address goes on answering.
        let loaded = filter::beside(&self.engine, move |_| {
            // What was given up for this one may still be reading data, of which there is no room for more.
            let _alone = LOADING.lock();
            origin.load(without_test_cases, false)
        });
        let mut config = loaded.await.map_err(machine)??;
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

    /// Changes over to what was loaded; if that is not valid, changes nothing.
    async fn reload(&mut self, why: &str, loaded: Result<Prepared, Stop>) {
        let done = match loaded {
            Ok(prepared) => self.change_over(prepared).await,
            Err(stop) => Err(stop),
        };
        match done {
            Ok(()) => {
                self.state.reloads.fetch_add(1, Ordering::Relaxed);
                *self.state.reload_error.lock() = None;
                self.tell_notes();
                let generation = self.state.generation.read();
                match &self.onlooker {
                    Some(tell) => tell(Ok(&generation)),
                    None => tracing::info!(generation = generation.number, why, "reloaded"),
                }
            }
            Err(stop) => {
                self.state.failed_reloads.fetch_add(1, Ordering::Relaxed);
                *self.state.reload_error.lock() = Some(stop.to_string());
                let running = self.state.generation.read().number;
                match &self.onlooker {
                    Some(tell) => tell(Err(&stop)),
                    None => tracing::error!(
                        name: REPORT,
                        generation = running,
                        why,
                        "not reloaded; the previous configuration stays in use:\n{stop}"
                    ),
                }
            }
        }
    }

    /// Has everybody go on with another generation, the first one included; if that cannot be, changes nothing.
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
        // Nothing that comes after this can fail: here the next generation begins.
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
        // Whoever asks is told of the generation that answers, also while the node's network is looked at.
        self.guard(&generation.config, &current.config).await;
        self.before.follow(&current, &generation);
        // What has come while nobody was told.
        self.take_absent().await;
        Ok(())
    }

    /// Has the node's network be as another configuration wants it, and tries it.
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

    /// Who keeps the node's network, if another configuration means anything to it.
    fn concerned(&self, config: &Config, old: &Config) -> Option<&Reconciler> {
        let changed = Plan::of(config) != Plan::of(old) || config.node != old.node;
        self.reconciler.as_ref().filter(|_| changed)
    }

    /// Has addresses added, and binds those that are new: everything that can fail. What is served meanwhile is what was.
    async fn bind_next(&self, config: &Config, old: &Config) -> Result<Doors, Stop> {
        let added: Vec<_> = config
            .listen
            .each()
            .filter(|address| {
                let known = old.listen.each().any(|known| known == *address);
                !known || self.state.absent.read().contains(address)
            })
            .collect();
        // A predecessor that ends must not take the addresses away before we listen on them.
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
        // Last, since it takes the place of what is there.
        let admin = self.bind_admin(config).map_err(machine)?;
        let control = self.bind_control(config).map_err(machine)?;
        Ok(Doors {
            admin,
            control,
            absent: bound.absent,
        })
    }

    /// Puts back what was made ready for a generation that will not come.
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

    /// Has each worker go on with another generation, and then one of them begin with what the generation does by itself.
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
            // If it has ended, so do we: that is found out where all ends are.
            let _ = adopted.await;
        }
        if let Some(worker) = self.workers.first() {
            worker.send(Command::Begin);
        }
    }

    /// Has each worker make the sockets of the next generation ready.
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

/// Resolves when the configuration is to be loaded again, and says why.
async fn reason_to_load(
    hangup: &mut Signal,
    changes: &mut watch::Changes,
    deliveries: &Deliveries,
    named: &NamedUpstreams,
) -> &'static str {
    tokio::select! {
        _ = hangup.recv() => { changes.note(); "SIGHUP" }
        () = changes.changed() => "a file changed",
        () = deliveries.moved() => "a tag moved",
        () = named.changed() => "an upstream has other addresses",
    }
}
