//! The output of `dnsweir dev`: a line per event, with colours on a terminal.
//!
//! Each event is written in one call, so that lines from workers and the builder do not mix. A file gets the
//! same text, without colours.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use dnsweir_os::clock::UnixTime;
use parking_lot::{Condvar, Mutex};

use crate::explain::time;
use crate::serve::generation::Generation;
use crate::serve::trace::{TraceEvent, TraceView};

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// How long to wait for the proxy to swap in a module.
const SWAP: Duration = Duration::from_secs(10);

/// A view on standard output.
pub struct View {
    /// Whether standard output is a terminal.
    pub colour: bool,
    /// When the source was last saved; `None` once that is in use or refused.
    saved: Mutex<Option<Instant>>,
    /// Signals that `saved` was cleared.
    settled: Condvar,
}

impl View {
    /// Makes a view.
    pub fn new() -> View {
        View {
            colour: std::io::stdout().is_terminal(),
            saved: Mutex::default(),
            settled: Condvar::new(),
        }
    }

    /// Records that the source was saved now.
    pub(super) fn saved(&self) {
        *self.saved.lock() = Some(Instant::now());
    }

    /// Waits until the saved source is in use or refused, but at most `SWAP`.
    pub(super) fn await_swap(&self) {
        let mut saved = self.saved.lock();
        self.settled
            .wait_while_for(&mut saved, |saved| saved.is_some(), SWAP);
    }

    /// Marks the last save as done.
    pub fn settled(&self) {
        *self.saved.lock() = None;
        self.settled.notify_all();
    }

    /// Shows that a generation was refused.
    pub fn refused(&self, why: &str) {
        self.failed("not swapped: the previous configuration stays in use", why);
        self.settled();
    }

    /// Shows progress.
    pub fn note(&self, text: &str) {
        self.write(DIM, text, "");
    }

    /// Shows a success.
    pub fn done(&self, text: &str) {
        self.write(GREEN, text, "");
    }

    /// Shows a failure with details.
    pub fn failed(&self, text: &str, details: &str) {
        self.write(RED, text, details);
    }

    /// Shows another program's output.
    pub fn quote(&self, details: &str) {
        print(details);
    }

    /// Shows that a generation is in use.
    pub fn swapped(&self, generation: &Generation) {
        let after = self.saved.lock().take().map(|saved| saved.elapsed());
        self.settled.notify_all();
        let after = after.map(|after| format!(", {:.2} s after the change was seen", after.as_secs_f64()));
        let number = generation.number;
        if number == 1 {
            let addresses = generation.config.listen.addresses.iter().map(ToString::to_string);
            return self.done(&format!(
                "answering on {}",
                addresses.collect::<Vec<_>>().join(" ")
            ));
        }
        self.done(&format!(
            "swapped: generation {number}{}",
            after.unwrap_or_default()
        ));
    }

    /// Shows a query, and the decisions of its filters.
    pub fn query(&self, told: &TraceView<'_>) {
        let took = time(told.took.as_nanos() as f64 / 1000.0);
        let reply = match &told.reply {
            None => "dropped".to_owned(),
            Some(reply) => {
                let data = reply
                    .answers
                    .iter()
                    .filter_map(|answer| answer.splitn(5, ' ').nth(4));
                let data = data.collect::<Vec<_>>().join(", ");
                format!("{} from {} {data}", reply.rcode, reply.source)
            }
        };
        let mut text = format!(
            "{}  {}  {} ({took})",
            told.question,
            told.client.ip(),
            reply.trim_end()
        );
        for event in told.events.iter().filter(|event| of_filter(event)) {
            let took = event
                .took
                .map(|took| format!("  ({})", time(took.as_nanos() as f64 / 1000.0)));
            // Infallible for String.
            let _ = write!(
                text,
                "\n              {}: {}{}",
                event.stage.trim_start_matches("use "),
                event
                    .did
                    .iter()
                    .map(|line| line.trim())
                    .collect::<Vec<_>>()
                    .join(" "),
                took.unwrap_or_default()
            );
        }
        self.write("", &text, "");
    }

    fn write(&self, colour: &str, text: &str, details: &str) {
        let plain = if self.colour && !colour.is_empty() {
            PLAIN
        } else {
            ""
        };
        let colour = if self.colour { colour } else { "" };
        let mut piece = format!("{}  {colour}{text}{plain}\n", clock());
        for line in details.trim_end().lines() {
            let _ = writeln!(piece, "              {line}");
        }
        print(&piece);
    }
}

/// Whether a filter was called, or its remembered verdict used.
fn of_filter(event: &TraceEvent) -> bool {
    event.stage.starts_with("use ") && !event.did.iter().any(|line| line.starts_with("not asked"))
}

/// Prints a text. Errors are ignored: the reader may be gone, and there is no other output.
fn print(piece: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
}

/// The time of day in UTC.
fn clock() -> String {
    let now = UnixTime::now().as_millis();
    let seconds = now / 1000 % 86_400;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{:03}", now % 1000)
}
