//! The world a guest lives in: its limits, the functions it may call, and what it is granted of [WASI](super::wasi).
//!
//! There is nothing else. A guest cannot wait; text that it hands out is bounded, escaped and rate-limited before anybody
//! sees it.

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

/// Log lines at once, and the time in which one more is granted.
const LOG_BURST: u32 = 50;
const LOG_INTERVAL: Duration = Duration::from_millis(100);

/// Octets that are printed in one call. The SDK hands lines over when there are 32 KiB of them.
const PRINTED: usize = 64 << 10;

/// Why a count is ignored.
pub(super) const IGNORED: &str = "invalid name or label, or too many counters";

/// Memories of a component: more than one if it was composed of several.
const MEMORIES: usize = 4;

/// Tables of a component: the filter's own and one of wit-component's, for each part that it was composed of.
const TABLES: usize = 8;

/// Entries of all tables together. Go's runtime takes 6000.
pub(super) const TABLE_ENTRIES: usize = 32 << 10;

/// What the instances of one filter share.
pub(super) struct Context {
    pub(super) name: String,
    pub(super) limits: Limits,
    /// What it may have of WASI.
    pub(super) grants: config::Wasi,
    /// Octets that an instance takes beside linear memory.
    pub(super) overhead: usize,
    pub(super) counters: Arc<FilterCounters>,
    pub(super) output: Arc<Queue>,
    pub(super) ticker: Arc<Ticker>,
    /// Those that the manifest declares, once it is known.
    pub(super) tables: OnceLock<Tables>,
    /// By the index that the filter knows it by.
    data: Arc<[Arc<Data>]>,
    /// What its data is made of while it is at work.
    pub(super) refresh: Option<config::Refresh>,
    /// What its refresh has made.
    pub(super) published: Arc<Published>,
    log: Mutex<LogBudget>,
    /// Whether nobody is to see what it logs, prints and counts.
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

    /// One for instances without any effect: their tables are empty, and nobody sees what they log, print and count.
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

    /// Octets of linear memory that an instance may take.
    pub(super) fn linear_memory(&self) -> usize {
        self.limits.memory.saturating_sub(self.overhead)
    }

    /// Whether one more line may be logged for this filter, and how many were left out before it.
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
pub(super) struct World {
    context: Arc<Context>,
    pub(super) allocated: Allocated,
    /// How long a call may take.
    pub(super) time: TimeLimit,
    /// Whether what it does is still wanted.
    cancel: Cancel,
    /// Whether it is configured.
    serving: bool,
    data: DataView,
    /// What it has of WASI.
    wasi: Wasi,
}

/// What an instance may take and has taken, over all its memories and tables.
pub(super) struct Allocated {
    /// Of linear memory.
    pub(super) octets: usize,
    /// Octets that it may take.
    limit: usize,
    /// Of tables.
    entries: usize,
    /// Octets that were asked for, of linear memory in all, beyond the limit.
    pub(super) refused: Option<usize>,
    /// Know the most that any instance of the filter had.
    counters: Arc<FilterCounters>,
}

impl Allocated {
    /// Nothing yet, of `limit` octets.
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

/// Grows one part of a sum. What was granted and then could not be had stays in it, to the guest's disadvantage.
fn grow(sum: &mut usize, current: usize, desired: usize, limit: usize) -> bool {
    let grown = sum.saturating_add(desired.saturating_sub(current));
    let granted = grown <= limit;
    if granted {
        *sum = grown;
    }
    granted
}

impl World {
    /// Of an instance that may take so many octets of linear memory, whose calls may take as long as `time` says, and end
    /// when they are cancelled.
    ///
    /// # Errors
    ///
    /// When a folder that it is granted cannot be opened.
    pub(super) fn new(
        context: Arc<Context>,
        memory: usize,
        time: TimeLimit,
        cancel: Cancel,
    ) -> wasmtime::Result<World> {
        Ok(World {
            allocated: Allocated::new(memory, Arc::clone(&context.counters)),
            data: DataView::new(Arc::clone(&context.data), Arc::clone(&context.published)),
            time,
            cancel,
            serving: false,
            wasi: Wasi::new(&context.grants, Arc::clone(&context) as Arc<dyn Log>)?,
            context,
        })
    }

    /// From now on calls may take as long as `time` says. They are wanted for as long as the instance is there,
    /// whatever becomes of who wanted its start.
    pub(super) fn start_serving(&mut self, time: TimeLimit) {
        self.time = time;
        self.cancel = Cancel::default();
        self.serving = true;
        self.wasi.close_folders();
    }

    /// From now on the one call may take as long as `time` says, and write so many octets. It ends when whoever wanted it
    /// is gone, and has the folders that it is granted.
    pub(super) fn start_refreshing(&mut self, time: TimeLimit, output: usize) {
        self.time = time;
        self.serving = true;
        self.data.begin_output(output);
    }

    /// What becomes of a call under way when the epoch advances.
    #[cold]
    pub(super) fn deadline(&mut self) -> UpdateDeadline {
        if self.time.is_up() || self.cancel.is_cancelled() {
            UpdateDeadline::Interrupt
        } else {
            UpdateDeadline::Continue(1)
        }
    }

    /// Lines for standard output.
    pub(super) fn print_lines(&self, lines: &str) {
        if self.context.aside {
            return;
        }
        if lines.len() > PRINTED {
            let ends = lines.bytes().filter(|octet| *octet == b'\n').count().max(1);
            add(&self.context.counters.lines_dropped, ends as u64);
            return;
        }
        // The queue takes everything.
        let escape = |out: &mut output::Text<'_>, lines: &str| {
            let _ = escape_into(out, lines, &['\n']);
        };
        add(
            &self.context.counters.lines_dropped,
            self.context.output.print_by(lines, escape),
        );
    }

    /// Adds to a counter of the filter's own.
    pub(super) fn add_to_counter(&self, name: &str, labels: &[(String, String)], by: u64) {
        let counters = &self.context.counters;
        if counters.own.add(name, labels, by) {
            return;
        }
        // Told once; from then on the number tells.
        if counters.own_dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            let name = text::one_line(name, text::LOG_LINE);
            let filter = self.context.name.as_str();
            tracing::warn!(target: "filter", filter, "counter \"{name}\" ignored: {IGNORED}");
        }
    }
}

impl Log for Context {
    /// A line in the proxy's log.
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

/// Has lines printed from where they lie in the guest's memory, which the generated binding copies first. A filter may
/// print a line for each query.
///
/// # Errors
///
/// None: the linker has the interface.
pub(super) fn print_in_place(linker: &mut Linker<World>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("dnsweir:filter/host@0.1.0")?.func_wrap(
        "print",
        |store: StoreContextMut<'_, World>, (lines,): (WasmStr,)| {
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

impl WithTables for World {
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

impl WithData for World {
    fn data(&self) -> &DataView {
        &self.data
    }

    fn data_mut(&mut self) -> &mut DataView {
        &mut self.data
    }
}

impl HasWasi for World {
    fn wasi(&mut self) -> &mut Wasi {
        &mut self.wasi
    }
}

impl types::Host for World {}

impl host::Host for World {
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

    fn state() -> World {
        state_printing_to(io::sink())
    }

    fn state_printing_to(sink: impl Write + Send + 'static) -> World {
        let mut config = crate::filter::tests::block(Vec::new());
        config.limits.memory = 1 << 20;
        let output = Arc::new(Queue::start("test", sink, Duration::ZERO).unwrap());
        let ticker = Arc::new(Ticker::start(|| ()).unwrap());
        let time = TimeLimit::new(config.limits.time);
        let context = Context::new(&config, 0, Arc::default(), output, ticker);
        World::new(Arc::new(context), 1 << 20, time, Cancel::default()).unwrap()
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
