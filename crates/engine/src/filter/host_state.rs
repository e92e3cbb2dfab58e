//! The environment of a guest: its limits, the functions it may call, and what it is granted of
//! [WASI](super::wasi).
//!
//! There is nothing else. A guest cannot block; its text output is bounded, escaped and rate-limited before
//! it reaches the log or standard output.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wasmtime::component::{Linker, WasmStr};
use wasmtime::{ResourceLimiter, StoreContextMut, UpdateDeadline};

use super::bindings::dnsweir::filter::{host, types};
use super::cancel::Cancel;
use super::counters::{FilterCounters, add};
use super::data::{DataView, Published, WithData};
use super::footprint::INSTANCES;
use super::tables::{Tables, WithTables};
use super::text;
use super::ticker::Ticker;
use super::time_limit::TimeLimit;
use super::wasi::{HasWasi, Log, Wasi};
use crate::config::{self, Data, Limits};
use crate::output::{self, Queue};
use crate::plain_text::escape_into;

/// Log lines allowed in a burst, and the time after which one more is granted.
const LOG_BURST: u32 = 50;
const LOG_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum bytes printed in one call. The SDK passes lines on once it has 32 KiB of them.
const PRINTED: usize = 64 << 10;

/// Why a count is ignored.
pub(super) const IGNORED: &str = "invalid name or label, or too many counters";

/// Maximum memories of a component; one composed of several has more than one.
const MEMORIES: usize = 4;

/// Maximum tables of a component: the filter's own and one of wit-component's, for each part it was composed
/// of.
const TABLES: usize = 8;

/// Maximum entries of all tables together. Go's runtime uses 6,000.
pub(super) const TABLE_ENTRIES: usize = 32 << 10;

/// What the instances of one filter share.
pub(super) struct Context {
    pub(super) name: String,
    pub(super) limits: Limits,
    /// What it is granted of WASI.
    pub(super) grants: config::Wasi,
    /// Bytes that an instance takes beside linear memory.
    pub(super) overhead: usize,
    pub(super) counters: Arc<FilterCounters>,
    pub(super) output: Arc<Queue>,
    pub(super) ticker: Arc<Ticker>,
    /// The tables that the manifest declares, once it is known.
    pub(super) tables: OnceLock<Tables>,
    /// By the index that the filter uses.
    data: Arc<[Arc<Data>]>,
    /// The sources that its data is refreshed from.
    pub(super) refresh: Option<config::Refresh>,
    /// What its refreshes have published.
    pub(super) published: Arc<Published>,
    log: Mutex<LogBudget>,
    /// Whether its logs, prints and counts are discarded.
    aside: bool,
}

struct LogBudget {
    lines: u32,
    since: Instant,
    dropped: u64,
}

impl Context {
    pub(super) fn new(
        config: &config::Filter,
        overhead: usize,
        counters: Arc<FilterCounters>,
        output: Arc<Queue>,
        ticker: Arc<Ticker>,
    ) -> Context {
        let log = LogBudget {
            lines: LOG_BURST,
            since: Instant::now(),
            dropped: 0,
        };
        Context {
            name: config.name.clone(),
            limits: config.limits,
            grants: config.wasi.clone(),
            overhead,
            counters,
            output,
            ticker,
            tables: OnceLock::new(),
            data: config.data().cloned().collect(),
            refresh: config.refresh.clone(),
            published: Arc::default(),
            log: Mutex::new(log),
            aside: false,
        }
    }

    /// A context for instances without side effects: with empty tables, and logs, prints and counts
    /// discarded.
    pub(super) fn aside(&self) -> Context {
        let tables = OnceLock::new();
        if let Some(own) = self.tables.get() {
            tables.get_or_init(|| own.emptied());
        }
        Context {
            name: self.name.clone(),
            limits: self.limits,
            grants: self.grants.clone(),
            overhead: self.overhead,
            counters: Arc::default(),
            output: Arc::clone(&self.output),
            ticker: Arc::clone(&self.ticker),
            tables,
            data: Arc::clone(&self.data),
            refresh: self.refresh.clone(),
            published: Arc::clone(&self.published),
            log: Mutex::new(LogBudget {
                lines: 0,
                since: Instant::now(),
                dropped: 0,
            }),
            aside: true,
        }
    }

    /// Maximum bytes of linear memory of an instance.
    pub(super) fn linear_memory(&self) -> usize {
        self.limits.memory.saturating_sub(self.overhead)
    }

    /// Takes one log line from the filter's budget. Returns how many lines were dropped before it; none: no
    /// line left.
    pub(super) fn may_log(&self) -> Option<u64> {
        if self.aside {
            return None;
        }
        let mut budget = self.log.lock();
        let elapsed = budget.since.elapsed();
        let granted = u32::try_from(elapsed.as_nanos() / LOG_INTERVAL.as_nanos()).unwrap_or(u32::MAX);
        if granted > 0 {
            budget.lines = budget.lines.saturating_add(granted).min(LOG_BURST);
            budget.since = Instant::now();
        }
        match budget.lines.checked_sub(1) {
            Some(left) => {
                budget.lines = left;
                Some(std::mem::take(&mut budget.dropped))
            }
            None => {
                budget.dropped += 1;
                None
            }
        }
    }
}

/// The data of a store.
pub(super) struct HostState {
    context: Arc<Context>,
    pub(super) allocated: Allocated,
    /// The time limit of calls.
    pub(super) time: TimeLimit,
    /// Cancels what it does.
    cancel: Cancel,
    /// Whether it is configured, and may use its tables.
    serving: bool,
    data: DataView,
    /// Its part of WASI.
    wasi: Wasi,
}

/// What an instance has allocated and may allocate, over all its memories and tables.
pub(super) struct Allocated {
    /// Bytes of linear memory.
    pub(super) octets: usize,
    /// Maximum bytes of linear memory.
    limit: usize,
    /// Table entries.
    entries: usize,
    /// The total bytes of linear memory that a refused request would have needed.
    pub(super) refused: Option<usize>,
    /// Hold the peak of all instances of the filter.
    counters: Arc<FilterCounters>,
}

impl Allocated {
    /// Nothing allocated yet, with a limit in bytes.
    pub(super) fn new(limit: usize, counters: Arc<FilterCounters>) -> Allocated {
        Allocated {
            octets: 0,
            limit,
            entries: 0,
            refused: None,
            counters,
        }
    }
}

/// Adds the growth of one part to a sum, if the limit allows. A granted growth that then fails stays counted,
/// to the guest's disadvantage.
fn grow(sum: &mut usize, current: usize, desired: usize, limit: usize) -> bool {
    let grown = sum.saturating_add(desired.saturating_sub(current));
    let granted = grown <= limit;
    if granted {
        *sum = grown;
    }
    granted
}

impl HostState {
    /// The store data of an instance with at most `memory` bytes of linear memory. Its calls have the
    /// time limit `time`, and end when cancelled.
    ///
    /// # Errors
    ///
    /// When a granted folder cannot be opened.
    pub(super) fn new(
        context: Arc<Context>,
        memory: usize,
        time: TimeLimit,
        cancel: Cancel,
    ) -> wasmtime::Result<HostState> {
        Ok(HostState {
            allocated: Allocated::new(memory, Arc::clone(&context.counters)),
            data: DataView::new(Arc::clone(&context.data), Arc::clone(&context.published)),
            time,
            cancel,
            serving: false,
            wasi: Wasi::new(&context.grants, Arc::clone(&context) as Arc<dyn Log>)?,
            context,
        })
    }

    /// Sets the time limit of later calls. They are no longer cancelled with the load that started the
    /// instance.
    pub(super) fn start_serving(&mut self, time: TimeLimit) {
        self.time = time;
        self.cancel = Cancel::default();
        self.serving = true;
        self.wasi.close_folders();
    }

    /// Prepares for the one call of a refresh, with its time limit and maximum output in bytes. It can still
    /// be cancelled, and has the folders that it is granted.
    pub(super) fn start_refreshing(&mut self, time: TimeLimit, output: usize) {
        self.time = time;
        self.serving = true;
        self.data.begin_output(output);
    }

    /// Decides, whenever the epoch advances, whether the current call goes on.
    #[cold]
    pub(super) fn deadline(&mut self) -> UpdateDeadline {
        if self.time.is_up() || self.cancel.is_cancelled() {
            UpdateDeadline::Interrupt
        } else {
            UpdateDeadline::Continue(1)
        }
    }

    /// Prints lines to standard output.
    pub(super) fn print_lines(&self, lines: &str) {
        if self.context.aside {
            return;
        }
        if lines.len() > PRINTED {
            let ends = lines.bytes().filter(|octet| *octet == b'\n').count().max(1);
            add(&self.context.counters.lines_dropped, ends as u64);
            return;
        }
        // Infallible: the queue takes everything.
        let escape = |out: &mut output::Text<'_>, lines: &str| {
            let _ = escape_into(out, lines, &['\n']);
        };
        add(
            &self.context.counters.lines_dropped,
            self.context.output.print_by(lines, escape),
        );
    }

    /// Adds to one of the filter's own counters.
    pub(super) fn add_to_counter(&self, name: &str, labels: &[(String, String)], by: u64) {
        let counters = &self.context.counters;
        if counters.own.add(name, labels, by) {
            return;
        }
        // Logged once; later ones only count.
        if counters.own_dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            let name = text::one_line(name, text::LOG_LINE);
            let filter = self.context.name.as_str();
            tracing::warn!(target: "filter", filter, "counter \"{name}\" ignored: {IGNORED}");
        }
    }
}

impl Log for Context {
    /// Writes a line to the proxy's log.
    fn line(&self, level: host::Level, message: &str) {
        let enabled = match level {
            host::Level::Error => tracing::enabled!(target: "filter", tracing::Level::ERROR),
            host::Level::Warn => tracing::enabled!(target: "filter", tracing::Level::WARN),
            host::Level::Info => tracing::enabled!(target: "filter", tracing::Level::INFO),
            host::Level::Debug => tracing::enabled!(target: "filter", tracing::Level::DEBUG),
        };
        if !enabled {
            return;
        }
        let Some(dropped) = self.may_log() else {
            return;
        };
        let filter = self.name.as_str();
        if dropped > 0 {
            tracing::warn!(target: "filter", filter, dropped, "too many log lines");
        }
        let message = text::one_line(message, text::LOG_LINE);
        match level {
            host::Level::Error => tracing::error!(target: "filter", filter, "{message}"),
            host::Level::Warn => tracing::warn!(target: "filter", filter, "{message}"),
            host::Level::Info => tracing::info!(target: "filter", filter, "{message}"),
            host::Level::Debug => tracing::debug!(target: "filter", filter, "{message}"),
        }
    }
}

/// Prints lines straight from the guest's memory; the generated binding would copy them first. A filter may
/// print a line for each query.
///
/// # Errors
///
/// None in practice: the linker has the interface.
pub(super) fn print_in_place(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("dnsweir:filter/host@0.1.0")?.func_wrap(
        "print",
        |store: StoreContextMut<'_, HostState>, (lines,): (WasmStr,)| {
            store.data().print_lines(&lines.to_str(&store)?);
            Ok(())
        },
    )
}

impl ResourceLimiter for Allocated {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let granted = grow(&mut self.octets, current, desired, self.limit);
        if granted {
            self.counters
                .memory
                .fetch_max(self.octets as u64, Ordering::Relaxed);
        } else {
            self.refused = Some(self.octets.saturating_add(desired.saturating_sub(current)));
        }
        Ok(granted)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(grow(&mut self.entries, current, desired, TABLE_ENTRIES))
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}

impl WithTables for HostState {
    fn tables(&self) -> Option<&Tables> {
        self.context.tables.get().filter(|_| self.serving)
    }

    fn clock(&self) -> u64 {
        clock()
    }
}

/// Nanoseconds since some time before the first table was made, the same on all threads.
pub(super) fn clock() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed().as_nanos() as u64
}

impl WithData for HostState {
    fn data(&self) -> &DataView {
        &self.data
    }

    fn data_mut(&mut self) -> &mut DataView {
        &mut self.data
    }
}

impl HasWasi for HostState {
    fn wasi(&mut self) -> &mut Wasi {
        &mut self.wasi
    }
}

impl types::Host for HostState {}

impl host::Host for HostState {
    fn log(&mut self, level: host::Level, message: String) {
        self.context.line(level, &message);
    }

    fn print(&mut self, lines: String) {
        self.print_lines(&lines);
    }

    fn count(&mut self, name: String, labels: Vec<(String, String)>, by: u64) {
        self.add_to_counter(&name, &labels, by);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    fn state() -> HostState {
        state_printing_to(io::sink())
    }

    fn state_printing_to(sink: impl Write + Send + 'static) -> HostState {
        let mut config = crate::filter::tests::block(Vec::new());
        config.limits.memory = 1 << 20;
        let output = Arc::new(Queue::start("test", sink, Duration::ZERO).unwrap());
        let ticker = Arc::new(Ticker::start(|| ()).unwrap());
        let time = TimeLimit::new(config.limits.time);
        let context = Context::new(&config, 0, Arc::default(), output, ticker);
        HostState::new(Arc::new(context), 1 << 20, time, Cancel::default()).unwrap()
    }

    #[test]
    fn forged_lines_and_escapes_are_spelt_out() {
        struct TraceView(Sender<Vec<u8>>);
        impl Write for TraceView {
            fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
                self.0.send(octets.to_vec()).unwrap();
                Ok(octets.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, told) = channel();
        state_printing_to(TraceView(sender)).print_lines("a\rb\x1b[2J\n");
        assert_eq!(told.recv().unwrap(), b"a\\rb\\u{1b}[2J\n");
    }

    #[test]
    fn so_much_is_printed_in_one_call_and_the_rest_counted() {
        let (sender, told) = channel();
        struct Told(Sender<usize>);
        impl Write for Told {
            fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
                self.0.send(octets.len()).unwrap();
                Ok(octets.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let state = state_printing_to(Told(sender));
        let line = "x".repeat(63) + "\n";
        state.print_lines(&line.repeat(PRINTED / 64));
        assert_eq!(told.recv().unwrap(), PRINTED);
        state.print_lines(&line.repeat(PRINTED / 64 + 1));
        let dropped = state.context.counters.lines_dropped.load(Ordering::Relaxed);
        assert_eq!(dropped, PRINTED as u64 / 64 + 1);
        drop(state);
        assert!(told.recv().is_err(), "nothing else was printed");
    }

    #[test]
    fn memory_is_limited_and_its_peak_known() {
        let mut state = state();
        assert!(state.allocated.memory_growing(0, 1 << 16, None).unwrap());
        assert!(state.allocated.memory_growing(1 << 16, 1 << 20, None).unwrap());
        assert_eq!(state.allocated.refused, None);
        assert!(
            !state
                .allocated
                .memory_growing(1 << 20, (1 << 20) + 1, None)
                .unwrap()
        );
        assert_eq!(state.allocated.refused, Some((1 << 20) + 1));
        assert!(
            !state.allocated.memory_growing(0, 1, None).unwrap(),
            "a second one counts, too"
        );
        assert_eq!(state.context.counters.memory.load(Ordering::Relaxed), 1 << 20);
    }

    #[test]
    fn table_entries_are_limited_over_all_tables() {
        let mut state = state();
        assert!(
            state
                .allocated
                .table_growing(0, TABLE_ENTRIES - 10, None)
                .unwrap()
        );
        assert!(!state.allocated.table_growing(0, 11, None).unwrap());
        assert!(state.allocated.table_growing(0, 5, None).unwrap());
        assert!(state.allocated.table_growing(5, 10, None).unwrap());
        assert!(!state.allocated.table_growing(10, 11, None).unwrap());
    }

    #[test]
    fn log_lines_are_rationed() {
        let state = state();
        let granted = (0..10 * LOG_BURST)
            .filter(|_| state.context.may_log().is_some())
            .count() as u32;
        assert!((LOG_BURST..2 * LOG_BURST).contains(&granted), "{granted}");
    }
}
