//! A filter alone, called once at a time while everything it does is recorded.
//!
//! Unlike an [`Instance`](super::Instance) it memoizes nothing, is never suspended, and its clock stands
//! still. Log lines, printed lines and counters go only into an [`Execution`]. On a
//! [metered](super::Engine::metered) engine the instructions of each call are counted, too. They, and all
//! else here, are the same on every machine.
//!
//! A guest is entered through the same `Functions` as on a worker.

mod declared;
mod recorder;

use std::sync::Arc;
use std::time::Duration;

use dnsweir_os::clock::UnixTime;
use wasmtime::Store;
use wasmtime::component::Component;

use super::ask::{Answers, ROUNDS};
use super::batch::{Asked, Batch};
use super::bindings::dnsweir::filter::types;
use super::cancel::Cancel;
use super::check;
use super::configure::{rejections, setup};
use super::data::{self, Output, Published, Snapshot, SourceFile, WithData as _};
use super::details::Details;
use super::engine::Engine;
use super::exports::{Exports, Functions};
use super::face;
use super::failure::HOSTCALL_BYTES;
use super::failure::Reason;
use super::footprint::overhead;
use super::interest::Interest;
use super::load::{self, Filter};
use super::load_error::LoadError;
use super::outcomes::Outcomes;
use super::own_counters::OwnCount;
use super::refresh;
use super::tables::Tables;
use super::ticker::Mark;
use super::time_limit::thread_clock;
use super::verdict::{Outcome, QueryOutcome, ResponseOutcome};
use super::wasi::HANDLES;
use super::{Failure, text};
use crate::config::{self, Data};
use recorder::Recorder;

pub use declared::Declared;

/// Time limit of any call. The operator's limits suit one machine; a trial must give the same result on all.
const CALL_TIME: Duration = Duration::from_secs(2);

/// A filter on trial.
pub struct Trial {
    code: Arc<Exports<Recorder>>,
    mark: Mark,
    setup: types::Setup,
    /// By the index that the filter uses.
    data: Arc<[Arc<Data>]>,
    /// The data that its refreshes have published.
    published: Arc<Published>,
    /// Maximum bytes of its refresh's output and of its linear memory.
    refresh_limits: (usize, usize),
    config: Vec<config::ConfigNode>,
    /// What it is granted of WASI.
    grants: config::Wasi,
    /// Maximum bytes of linear memory of an instance.
    linear_memory: usize,
    manifest: types::Manifest,
    interest: Interest,
    tables: Arc<Tables>,
    /// Time of the last call.
    now: UnixTime,
    /// None: lost to a failure. The next call starts another.
    guest: Option<Started>,
    /// The cost of configuring it.
    configured: Cost,
    /// CPU time left for all calls together.
    left: Duration,
    /// Cancels the trial.
    cancel: Cancel,
}

/// The record of one call.
#[derive(Debug)]
pub struct Execution<V> {
    /// Its outcome; none: its manifest does not cover the record, and it was not called.
    pub outcome: Option<V>,
    /// The failure, if it failed.
    pub failure: Option<Failure>,
    /// Level and text of each log line.
    pub log: Vec<(&'static str, String)>,
    /// What it printed.
    pub printed: String,
    /// Its counters, as far as the call changed them.
    pub counts: Vec<OwnCount>,
    /// What it cost.
    pub cost: Cost,
    /// The number of calls so far for this query or response.
    calls: usize,
}

/// The cost of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Instructions executed; none on an engine that does not count them.
    pub instructions: Option<u64>,
    /// Bytes of linear memory of the instance after the call. Memory never shrinks.
    pub memory: usize,
}

impl<V> Execution<Outcome<V>> {
    /// Makes the next call and merges this record into its own. Fails instead once there were too many calls.
    pub fn then(self, next: impl FnOnce() -> Execution<Outcome<V>>) -> Execution<Outcome<V>> {
        let calls = self.calls + 1;
        if calls > 1 + ROUNDS {
            return Execution {
                outcome: Some(Outcome::Failed),
                failure: Some(Failure {
                    reason: Reason::Garbage,
                    message: format!("it asks more than {ROUNDS} times"),
                }),
                ..self
            };
        }
        let mut next = next();
        next.calls = calls;
        next.log.splice(0..0, self.log);
        next.printed.insert_str(0, &self.printed);
        for before in self.counts {
            let same = |count: &&mut OwnCount| count.name == before.name && count.labels == before.labels;
            match next.counts.iter_mut().find(same) {
                Some(count) => count.count += before.count,
                None => next.counts.push(before),
            }
        }
        let instructions = self.cost.instructions.zip(next.cost.instructions);
        next.cost.instructions = instructions.map(|(before, then)| before + then);
        next
    }
}

struct Started {
    store: Store<Recorder>,
    phases: Functions,
}

impl Trial {
    /// Compiles and configures a filter, as [`Filter::load`] does.
    ///
    /// # Errors
    /// As for [`Filter::load`].
    pub fn load(engine: &Engine, config: &config::Filter, zones: &[String]) -> Result<Trial, LoadError> {
        face::check(&config.code)?;
        let overhead = overhead(&config.code, &config.limits)?;
        let component = load::component(engine, &config.code, &config.limits)?;
        Trial::start(engine, &component, config, overhead, zones)
    }

    /// Puts a loaded filter on trial with another configuration, `config`, and other zones.
    ///
    /// # Errors
    /// As for [`Filter::load`].
    pub fn of(
        engine: &Engine,
        filter: &Filter,
        config: &config::Filter,
        zones: &[String],
    ) -> Result<Trial, LoadError> {
        Trial::start(
            engine,
            filter.exports.component(),
            config,
            filter.context.overhead,
            zones,
        )
    }

    /// Makes a new trial of the same filter.
    ///
    /// # Errors
    /// As for [`Filter::load`].
    pub fn anew(
        &self,
        engine: &Engine,
        config: &config::Filter,
        zones: &[String],
    ) -> Result<Trial, LoadError> {
        Trial::configured_with(engine, Arc::clone(&self.code), config, self.linear_memory, zones)
    }

    fn start(
        engine: &Engine,
        component: &Component,
        config: &config::Filter,
        overhead: usize,
        zones: &[String],
    ) -> Result<Trial, LoadError> {
        let interface = |error: wasmtime::Error| LoadError::Interface(text::in_words(&error));
        let linker = load::link::<Recorder>(engine, component)?;
        let pre = linker.instantiate_pre(component).map_err(interface)?;
        let code = Arc::new(Exports::new(pre).map_err(interface)?);
        let linear_memory = config.limits.memory.saturating_sub(overhead);
        Trial::configured_with(engine, code, config, linear_memory, zones)
    }

    fn configured_with(
        engine: &Engine,
        code: Arc<Exports<Recorder>>,
        config: &config::Filter,
        linear_memory: usize,
        zones: &[String],
    ) -> Result<Trial, LoadError> {
        let mut trial = Trial {
            code,
            mark: engine.ticker.mark(),
            setup: setup(config, zones),
            data: config.data().cloned().collect(),
            published: Arc::default(),
            refresh_limits: (config.limits.data, config.limits.refresh_memory),
            config: config.config.clone(),
            grants: config.wasi.clone(),
            linear_memory,
            manifest: types::Manifest {
                qtypes: Vec::new(),
                suffixes: Vec::new(),
                queries: false,
                responses: false,
                events: false,
                messages: false,
                tables: Vec::new(),
                details: Vec::new(),
                asks: false,
                sources: Vec::new(),
                outcomes: Vec::new(),
            },
            interest: Interest::none(),
            tables: Arc::new(Tables::none()),
            now: UnixTime::default(),
            guest: None,
            configured: Cost::default(),
            left: config.limits.load_time,
            cancel: engine.cancel.clone(),
        };
        let (guest, manifest, cost) = trial.serving()?;
        let missing = trial.code.missing(&manifest);
        if !missing.is_empty() {
            return Err(LoadError::MissingPhases(missing.join(", ")));
        }
        trial.interest = Interest::new(&manifest).map_err(LoadError::Manifest)?;
        let tables = Tables::open(&manifest.tables, config.limits.tables, None);
        trial.tables = Arc::new(tables.map_err(LoadError::Manifest)?);
        (trial.manifest, trial.configured, trial.guest) = (manifest, cost, Some(guest));
        Ok(trial)
    }

    /// Starts and configures an instance, which has the folders that it is granted.
    fn configure(&self, memory: usize) -> Result<(Started, types::Manifest, Cost), LoadError> {
        let time = CALL_TIME.min(self.left);
        let recorder = Recorder::new(
            memory,
            time,
            &self.grants,
            (&self.data, &self.published),
            &self.cancel,
        )
        .map_err(|error| LoadError::Failed(Failure::of(&error, None)))?;
        let mut store = Store::new(self.code.component().engine(), recorder);
        store.limiter(|recorder| &mut recorder.allocated);
        store.set_hostcall_fuel(HOSTCALL_BYTES);
        store.set_max_component_handles(HANDLES);
        store.epoch_deadline_callback(|mut store| Ok(store.data_mut().deadline()));
        let failed = |store: &Store<Recorder>, error| LoadError::Failed(failure(store, &error));
        arm(&mut store);
        let called = self.mark.during(|| {
            let phases = Functions::new(&self.code, &mut store)?;
            let configured = phases.configure(&mut store, &self.setup)?;
            Ok((phases, configured))
        });
        let (phases, configured) = called.map_err(|error| failed(&store, error))?;
        let manifest = configured.map_err(|errors| LoadError::Rejected(rejections(errors, &self.config)))?;
        let cost = cost(&store);
        Ok((Started { store, phases }, manifest, cost))
    }

    /// Starts an instance for calls of queries, which have no folders.
    fn serving(&self) -> Result<(Started, types::Manifest, Cost), LoadError> {
        let (mut guest, manifest, cost) = self.configure(self.linear_memory)?;
        guest.store.data_mut().wasi.close_folders();
        Ok((guest, manifest, cost))
    }

    /// Its manifest as text.
    pub fn declared(&self) -> Declared {
        Declared::new(&self.manifest)
    }

    /// The cost of configuring it.
    pub fn configured(&self) -> Cost {
        self.configured
    }

    /// The details of queries that it requests.
    pub fn details(&self) -> &Details {
        &self.interest.details
    }

    /// The query phase.
    pub fn query(&mut self, now: UnixTime, query: types::Query, asked: Asked<'_>) -> Execution<QueryOutcome> {
        self.now = now;
        let wanted = self.manifest.queries && self.interest.covers(query.qtype, asked.name);
        let asks = self.manifest.asks;
        let mut batch = Batch::default();
        batch.push_query(query, asked, 0);
        let sources = Arc::clone(&self.interest.sources);
        self.execute(wanted, |guest| {
            let verdicts = guest
                .phases
                .queries(&mut guest.store, now, batch.records(), batch.bytes());
            let mut out = [Outcome::Passed];
            let verdicts = verdicts.map_err(|error| failure(&guest.store, &error))?;
            check::verdicts(verdicts, asks, &sources, &mut out)?;
            let [outcome] = out;
            Ok(outcome)
        })
    }

    /// The response phase.
    pub fn response(
        &mut self,
        now: UnixTime,
        response: types::Response,
        asked: Asked<'_>,
        message: &[u8],
    ) -> Execution<ResponseOutcome> {
        self.now = now;
        let wanted = self.manifest.responses && self.interest.covers(response.query.qtype, asked.name);
        let mut batch = Batch::default();
        batch.push_response(response, asked, self.shown(message));
        let asks = self.manifest.asks;
        self.execute(wanted, |guest| {
            let responses = batch.records();
            let verdicts = guest
                .phases
                .responses(&mut guest.store, now, responses, batch.bytes());
            let mut out = [Outcome::Passed];
            check::response_verdicts(
                verdicts.map_err(|error| failure(&guest.store, &error))?,
                asks,
                &mut out,
            )?;
            let [outcome] = out;
            Ok(outcome)
        })
    }

    /// Continues with a query after its lookups.
    pub fn query_answers(
        &mut self,
        now: UnixTime,
        answers: &Answers<types::AskedQuery>,
    ) -> Execution<QueryOutcome> {
        self.now = now;
        let sources = Arc::clone(&self.interest.sources);
        self.execute(true, |guest| {
            let verdicts = guest.phases.query_answers(&mut guest.store, now, answers);
            let verdicts = verdicts.map_err(|error| failure(&guest.store, &error))?;
            let mut out = [Outcome::Passed];
            check::verdicts(verdicts, true, &sources, &mut out)?;
            let [outcome] = out;
            Ok(outcome)
        })
    }

    /// Continues with a response after its lookups.
    pub fn response_answers(
        &mut self,
        now: UnixTime,
        answers: &Answers<types::AskedResponse>,
    ) -> Execution<ResponseOutcome> {
        self.now = now;
        self.execute(true, |guest| {
            let verdicts = guest.phases.response_answers(&mut guest.store, now, answers);
            let verdicts = verdicts.map_err(|error| failure(&guest.store, &error))?;
            let mut out = [Outcome::Passed];
            check::response_verdicts(verdicts, true, &mut out)?;
            let [outcome] = out;
            Ok(outcome)
        })
    }

    /// The message of a response that the filter is shown: empty unless requested.
    pub fn shown<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        if self.manifest.messages { message } else { &[] }
    }

    /// Runs the refresh on these files in another instance; later calls see its data.
    ///
    /// # Errors
    /// The message if the filter fails or rejects the files.
    pub fn refresh(&mut self, now: UnixTime, files: Vec<SourceFile>) -> Result<(), String> {
        if !self.code.refreshes() {
            return Err("its module has no refresh".to_owned());
        }
        let (output, memory) = self.refresh_limits;
        let (mut guest, ..) = self.configure(memory).map_err(|error| error.to_string())?;
        let recorder = guest.store.data_mut();
        recorder.begin(self.left, &self.tables, now);
        recorder.data_mut().begin_output(output);
        let sources = data::sources(recorder.data_mut(), files);
        arm(&mut guest.store);
        let begun = thread_clock();
        let said = self
            .mark
            .during(|| guest.phases.refresh(&mut guest.store, now, &sources));
        self.left = self.left.saturating_sub(thread_clock().saturating_sub(begun));
        let said = said.map_err(|error| failure(&guest.store, &error).message)?;
        said.map_err(|said| refresh::complaint(&said))?;
        let output = guest.store.data_mut().data_mut().take_output();
        let made = output.map_or_else(|| Ok(Snapshot::new()), Output::finish);
        self.published.publish(made.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// The event phase.
    pub fn event(&mut self, event: types::Event, asked: Asked<'_>, message: &[u8]) -> Execution<Outcome<()>> {
        self.now = UnixTime::from_millis(event.time);
        let response = (event.response_size > 0).then_some((event.rcode, event.has_answers != 0));
        let wanted = self.interest.events.meet(Outcomes::of(response))
            && self.interest.covers(event.query.qtype, asked.name);
        let mut batch = Batch::default();
        batch.push_event(event, asked, self.shown(message));
        self.execute(wanted, |guest| {
            let done = guest
                .phases
                .events(&mut guest.store, batch.records(), batch.bytes());
            done.map_err(|error| failure(&guest.store, &error))?;
            Ok(Outcome::Passed)
        })
    }

    fn execute<V>(
        &mut self,
        wanted: bool,
        call: impl FnOnce(&mut Started) -> Result<Outcome<V>, Failure>,
    ) -> Execution<Outcome<V>> {
        let mut execution = Execution {
            outcome: None,
            failure: None,
            log: Vec::new(),
            printed: String::new(),
            counts: Vec::new(),
            cost: Cost::default(),
            calls: 1,
        };
        if !wanted {
            return execution;
        }
        let begun = thread_clock();
        if self.left.is_zero() {
            execution.outcome = Some(Outcome::Failed);
            execution.failure = Some(out_of_time());
            return execution;
        }
        let mut guest = match self.guest.take() {
            Some(guest) => guest,
            // It accepted this configuration before, so a rejection now counts as a failure.
            None => match self.serving() {
                Ok((guest, ..)) => guest,
                Err(error) => {
                    execution.outcome = Some(Outcome::Failed);
                    execution.failure = Some(Failure {
                        reason: Reason::Garbage,
                        message: error.to_string(),
                    });
                    return execution;
                }
            },
        };
        let recorder = guest.store.data_mut();
        recorder.begin(CALL_TIME.min(self.left), &self.tables, self.now);
        arm(&mut guest.store);
        let outcome = self.mark.during(|| call(&mut guest));
        self.left = self.left.saturating_sub(thread_clock().saturating_sub(begun));
        execution.cost = cost(&guest.store);
        let recorder = guest.store.data_mut();
        execution.log = recorder.log.take();
        execution.printed = std::mem::take(&mut recorder.printed);
        execution.counts = recorder.counts.snapshot();
        match outcome {
            Ok(outcome) => {
                execution.outcome = Some(outcome);
                self.guest = Some(guest);
            }
            Err(failure) => {
                execution.outcome = Some(Outcome::Failed);
                execution.failure = Some(failure);
            }
        }
        execution
    }
}

/// Sets the limits of the next call.
fn arm(store: &mut Store<Recorder>) {
    // Fails on an engine that does not meter instructions, where none can run out.
    let _ = store.set_fuel(u64::MAX);
    store.data_mut().time.begin();
    // The callback runs in the next tick and every one after it.
    store.set_epoch_deadline(1);
}

/// The failure of a call that is not made.
fn out_of_time() -> Failure {
    Failure {
        reason: Reason::Time,
        message: "all test cases together took longer than `limits load-time=` allows".into(),
    }
}

fn cost(store: &Store<Recorder>) -> Cost {
    Cost {
        instructions: store.get_fuel().ok().map(|left| u64::MAX - left),
        memory: store.data().allocated.octets,
    }
}

fn failure(store: &Store<Recorder>, error: &wasmtime::Error) -> Failure {
    Failure::of(error, store.data().allocated.refused)
}
