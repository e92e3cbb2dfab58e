//! The log on standard error, with a level that can change at run time.
//!
//! Strangers can cause lines and choose words in them, so each line is made [`plain`], and each kind has its
//! own [`pace`].

mod pace;
mod plain;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, reload};

use crate::output;
use pace::Pace;
pub use pace::{REPORT, left_out};
use plain::Plain;

/// Changes the level of the log, once it has started.
static LEVEL: OnceLock<reload::Handle<LevelFilter, tracing_subscriber::Registry>> = OnceLock::new();

/// Starts logging at this level, as text or JSON lines.
///
/// # Errors
/// If the queue of standard error cannot be started.
pub fn start(level: LevelFilter, json: bool) -> io::Result<()> {
    let stderr = output::stderr()?;
    let (level, handle) = reload::Layer::new(level);
    let (is_coloured, pace) = (std::io::stderr().is_terminal(), Pace::default());
    let all = tracing_subscriber::registry().with(level).with(pace.clone());
    let lines = fmt::layer().with_writer(stderr);
    let started = match json {
        true => {
            let format = fmt::format().json();
            let plain = Plain {
                format,
                is_json: true,
                is_coloured: false,
                pace,
            };
            let fields = fmt::format::JsonFields::new();
            all.with(lines.fmt_fields(fields).event_format(plain)).try_init()
        }
        false => {
            let format = fmt::format().with_ansi(is_coloured);
            let plain = Plain {
                format,
                is_json: false,
                is_coloured,
                pace,
            };
            all.with(lines.with_ansi(is_coloured).event_format(plain))
                .try_init()
        }
    };
    if started.is_ok() {
        let _ = LEVEL.set(handle);
    }
    // A panic is logged like anything else: the panicking thread must not wait for a reader either.
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        match Backtrace::capture() {
            backtrace if backtrace.status() == BacktraceStatus::Captured => {
                tracing::error!(name: REPORT, thread, "{panic}\n{backtrace}");
            }
            _ => tracing::error!(name: REPORT, thread, "{panic}"),
        }
    }));
    Ok(())
}

/// Sets the level of the log.
///
/// # Errors
/// A message, if there is no log.
pub fn set_level(level: LevelFilter) -> Result<(), String> {
    let handle = LEVEL.get().ok_or("this process has no log")?;
    handle.reload(level).map_err(|error| error.to_string())?;
    tracing::info!(%level, "the log has another level");
    Ok(())
}
