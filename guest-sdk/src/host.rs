//! What a filter can do besides deciding: write a log line, print a line, count.
//!
//! A call into the host costs more than the work behind it, so printed lines and counts are buffered here and
//! passed on once per batch. Outside WebAssembly there is no host; a thread-local recorder replaces it, which
//! [`test`](crate::test) reads.

use std::cell::{Cell, RefCell};

use crate::line::{Line, Lines};

/// The severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The filter cannot do its work.
    Error,
    /// Something is wrong, and the filter goes on.
    Warn,
    /// Information for operators.
    Info,
    /// Information for the filter's developers.
    Debug,
}

/// Beyond this size, lines are passed to the host before the batch ends: a batch of long lines must not
/// exceed what the host accepts in one call.
const LINES_MAX: usize = 32 << 10;

thread_local! {
    static BATCH: Cell<u64> = const { Cell::new(0) };
    static PENDING: RefCell<Pending> = const { RefCell::new(Pending { lines: None, counts: Vec::new() }) };
}

struct Pending {
    /// None until something is printed.
    lines: Option<Lines>,
    counts: Vec<Count>,
}

struct Count {
    name: &'static str,
    labels: Vec<(String, String)>,
    by: u64,
}

/// Writes a line to the proxy's own log, under the filter's name. For rare events: each line is a call into
/// the host, which may rate-limit them.
pub fn log(level: Level, message: &str) {
    imports::log(level, message);
}

/// Prints a line to standard output. The line end is added here.
pub fn print(line: &str) {
    if line.len() <= LINES_MAX {
        return print_with(|room| room.text(line));
    }
    PENDING.with_borrow_mut(Pending::hand_over_lines);
    imports::print(&format!("{line}\n"));
}

/// Prints a line that `write` assembles in place, without a copy: for filters that print a line per query.
///
/// # Panics
///
/// If `write` itself prints something.
#[inline]
pub fn print_with(write: impl FnOnce(&mut Line<'_>)) {
    PENDING.with_borrow_mut(|pending| {
        let lines = pending.lines.get_or_insert_with(Lines::new);
        lines.add(write);
        if lines.len() > LINES_MAX {
            pending.hand_over_lines();
        }
    });
}

/// Adds to a counter, exported as the metric `dnsweir_filter_counter_total{filter, name}`.
pub fn count(name: &'static str, by: u64) {
    count_with(name, &[], by);
}

/// Adds to one of several counters with this name that differ in their labels: `count_with("blocked",
/// &[("list", "ads")], 1)`. Each set of labels becomes a time series that monitoring keeps forever, so never
/// use what clients choose, such as names, as a label. The host keeps at most 1 000 counters per filter, with
/// up to 8 labels of 128 bytes; `filter` and `name` are reserved labels.
pub fn count_with(name: &'static str, labels: &[(&str, &str)], by: u64) {
    PENDING.with_borrow_mut(|pending| {
        let counts = &mut pending.counts;
        match counts.iter_mut().find(|count| count.is(name, labels)) {
            Some(count) => count.by += by,
            None => counts.push(Count {
                name,
                labels: labels
                    .iter()
                    .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
                by,
            }),
        }
    });
}

/// A number that differs for each batch.
pub(crate) fn batch() -> u64 {
    BATCH.get()
}

/// Ends a batch: passes the buffered lines and counts to the host.
pub(crate) fn hand_over() {
    BATCH.set(BATCH.get() + 1);
    PENDING.with_borrow_mut(|pending| {
        pending.hand_over_lines();
        for Count { name, labels, by } in pending.counts.drain(..) {
            imports::count(name, &labels, by);
        }
    });
}

impl Count {
    fn is(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        let same = |((name, value), label): (&(String, String), _)| (name.as_str(), value.as_str()) == label;
        self.name == name
            && self.labels.len() == labels.len()
            && self.labels.iter().zip(labels.iter().copied()).all(same)
    }
}

impl Pending {
    fn hand_over_lines(&mut self) {
        if let Some(lines) = &mut self.lines
            && lines.len() > 0
        {
            imports::print(&lines.as_text());
            lines.clear();
        }
    }
}

#[cfg(all(target_family = "wasm", not(doc)))]
mod imports {
    use super::Level;
    use crate::bindings::dnsweir::filter::host;

    pub(super) use host::{count, print};

    pub(super) fn log(level: Level, message: &str) {
        let level = match level {
            Level::Error => host::Level::Error,
            Level::Warn => host::Level::Warn,
            Level::Info => host::Level::Info,
            Level::Debug => host::Level::Debug,
        };
        host::log(level, message);
    }
}

#[cfg(any(doc, not(target_family = "wasm")))]
pub(crate) mod imports {
    use super::Level;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    pub(crate) type Labels = Vec<(String, String)>;

    #[derive(Default)]
    pub(crate) struct Recorder {
        pub(crate) logged: Vec<(Level, String)>,
        pub(crate) printed: String,
        pub(crate) counts: BTreeMap<(String, Labels), u64>,
    }

    thread_local! {
        pub(crate) static RECORDER: RefCell<Recorder> = RefCell::default();
    }

    pub(super) fn log(level: Level, message: &str) {
        RECORDER.with_borrow_mut(|recorder| recorder.logged.push((level, message.to_owned())));
    }

    pub(super) fn print(lines: &str) {
        RECORDER.with_borrow_mut(|recorder| recorder.printed.push_str(lines));
    }

    pub(super) fn count(name: &str, labels: &[(String, String)], by: u64) {
        let counter = (name.to_owned(), labels.to_owned());
        RECORDER.with_borrow_mut(|recorder| *recorder.counts.entry(counter).or_default() += by);
    }
}
