//! The program behind `dnsweir top`: shows in a terminal what a running dnsweir does.
//!
//! All data comes from `/status` and `/metrics` of its admin address, so that it works on this machine as
//! well as through a forwarded port.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a program speaks to the person who called it")]

mod changes;
mod client;
mod samples;
mod screen;
mod status;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use dnsweir_flags::TopFlags;
use dnsweir_os::programs::{EX_OSERR, started_with};
use rustix::termios::tcgetwinsize;

use changes::Look;
use screen::{PLAIN, Screen};

/// The size assumed for a terminal that does not report one.
const SIZE: (usize, usize) = (100, 40);

/// The command line after the version. `dnsweir` has checked it, and shows its help.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    flags: TopFlags,
}

fn main() -> ExitCode {
    let shown = started_with().and_then(|arguments| {
        let words = [OsString::from("dnsweir top")].into_iter().chain(arguments);
        run(&Args::parse_from(words).flags)
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dnsweir: {error}");
            ExitCode::from(EX_OSERR)
        }
    }
}

/// Shows the activity until the terminal closes or the process is stopped.
///
/// # Errors
/// The problem as text: nothing serves the address, or something other than dnsweir does.
fn run(flags: &TopFlags) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let look = || runtime.block_on(client::look(flags.admin));
    let interval = Duration::from_secs(flags.interval.into());
    let terminal = io::stdout().is_terminal() && !flags.once;
    let mut before = look()?;
    // The first interval is short, since there are no rates before.
    let mut pause = interval.min(Duration::from_secs(1));
    loop {
        let due = Instant::now() + pause;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        pause = interval;
        let text = match look() {
            Ok(now) => {
                let text = show(&before, &now, terminal);
                before = now;
                text
            }
            // The process may be restarting.
            Err(error) if terminal => format!("{error}\n"),
            Err(error) => return Err(error),
        };
        let written = match terminal {
            true => print(&overwriting(&text)),
            false => print(&text),
        };
        if written.is_err() || !terminal {
            return Ok(());
        }
    }
}

fn show(before: &Look, now: &Look, terminal: bool) -> String {
    let (width, height) = match terminal {
        true => size().unwrap_or(SIZE),
        false => (SIZE.0, PLAIN),
    };
    Screen::new(width, height).draw(before, now)
}

/// The columns and lines of the terminal.
fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    let size = (usize::from(size.ws_col), usize::from(size.ws_row));
    (size.0 > 0 && size.1 > 0).then_some(size)
}

/// Overwrites the previous text: clears each line to its end, and everything below. This avoids flicker, and
/// leaves the terminal's scrollback as it is.
fn overwriting(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n"))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
