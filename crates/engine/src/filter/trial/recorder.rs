//! The store data of a guest on trial, which records everything the guest does.

use std::sync::Arc;
use std::time::Duration;

use dnsweir_os::clock::UnixTime;
use parking_lot::Mutex;
use wasmtime::UpdateDeadline;

use crate::config::{self, Data};
use crate::filter::bindings::dnsweir::filter::{host, types};
use crate::filter::cancel::Cancel;
use crate::filter::data::{DataView, Published, WithData};
use crate::filter::host_state::{Allocated, IGNORED};
use crate::filter::own_counters::OwnCounters;
use crate::filter::tables::{Tables, WithTables};
use crate::filter::text;
use crate::filter::time_limit::TimeLimit;
use crate::filter::wasi::{HasWasi, Log, Wasi};
use crate::plain_text::escape_into;

/// Maximum bytes of printed lines kept per call.
const PRINTED: usize = 64 << 10;

/// Maximum log lines kept per call.
const LOG_LINES: usize = 100;

/// The store data of a guest on trial.
pub(super) struct Recorder {
    pub(super) allocated: Allocated,
    pub(super) log: Arc<Lines>,
    pub(super) printed: String,
    pub(super) counts: OwnCounters,
    pub(super) time: TimeLimit,
    cancel: Cancel,
    /// None: the guest is not configured yet.
    tables: Option<Arc<Tables>>,
    data: DataView,
    /// The guest's clock.
    now: UnixTime,
    pub(super) wasi: Wasi,
}

/// Levels and texts logged by one call.
#[derive(Default)]
pub(super) struct Lines(Mutex<Vec<(&'static str, String)>>);

impl Recorder {
    /// A recorder for a new guest with this much linear memory and time, and with these grants and data.
    ///
    /// # Errors
    /// When a granted folder cannot be opened.
    pub(super) fn new(
        linear_memory: usize,
        time: Duration,
        grants: &config::Wasi,
        data: (&Arc<[Arc<Data>]>, &Arc<Published>),
        cancel: &Cancel,
    ) -> wasmtime::Result<Recorder> {
        let log = Arc::<Lines>::default();
        let wasi = Wasi::new(grants, Arc::clone(&log) as Arc<dyn Log>)?;
        Ok(Recorder {
            allocated: Allocated::new(linear_memory, Arc::default()),
            log,
            printed: String::new(),
            counts: OwnCounters::default(),
            time: TimeLimit::new(time),
            cancel: cancel.clone(),
            tables: None,
            data: DataView::new(Arc::clone(data.0), Arc::clone(data.1)),
            now: UnixTime::default(),
            wasi,
        })
    }

    /// Clears the records of the last call, and sets the time limit and clock of the next.
    pub(super) fn begin(&mut self, time: Duration, tables: &Arc<Tables>, now: UnixTime) {
        self.time = TimeLimit::new(time);
        self.counts = OwnCounters::default();
        self.printed = String::new();
        self.log.take();
        self.data.renew();
        self.tables = Some(Arc::clone(tables));
        self.now = now;
    }

    /// Decides, whenever the epoch advances, whether the current call goes on.
    pub(super) fn deadline(&mut self) -> UpdateDeadline {
        if self.time.is_up() || self.cancel.is_cancelled() {
            UpdateDeadline::Interrupt
        } else {
            UpdateDeadline::Continue(1)
        }
    }
}

impl WithTables for Recorder {
    fn tables(&self) -> Option<&Tables> {
        self.tables.as_deref()
    }

    fn clock(&self) -> u64 {
        self.now.as_millis().saturating_mul(1_000_000)
    }
}

impl WithData for Recorder {
    fn data(&self) -> &DataView {
        &self.data
    }

    fn data_mut(&mut self) -> &mut DataView {
        &mut self.data
    }
}

impl HasWasi for Recorder {
    fn wasi(&mut self) -> &mut Wasi {
        &mut self.wasi
    }
}

impl Lines {
    pub(super) fn take(&self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Log for Lines {
    fn line(&self, level: host::Level, message: &str) {
        let level = match level {
            host::Level::Error => "error",
            host::Level::Warn => "warn",
            host::Level::Info => "info",
            host::Level::Debug => "debug",
        };
        let mut lines = self.0.lock();
        if lines.len() < LOG_LINES {
            lines.push((level, text::one_line(message, text::LOG_LINE)));
        }
    }
}

impl types::Host for Recorder {}

impl host::Host for Recorder {
    fn log(&mut self, level: host::Level, message: String) {
        self.log.line(level, &message);
    }

    fn print(&mut self, lines: String) {
        if self.printed.len() + lines.len() <= PRINTED {
            // Infallible for String.
            let _ = escape_into(&mut self.printed, &lines, &['\n']);
        }
    }

    fn count(&mut self, name: String, labels: Vec<(String, String)>, by: u64) {
        if !self.counts.add(&name, &labels, by) {
            let ignored = format!("counter \"{name}\" ignored: {IGNORED}");
            self.log.line(host::Level::Warn, &ignored);
        }
    }
}
