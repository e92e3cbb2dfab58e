//! `dnsweir top`: shows in a terminal what a running dnsweir does.
//!
//! All data comes from `/status` and `/metrics` of its admin address, so that it works on this machine as
//! well as through a forwarded port.

mod changes;
mod client;
mod samples;
mod screen;
mod status;

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

use changes::Look;
use screen::{PLAIN, Screen};

/// The size assumed for a terminal that does not report one.
const SIZE: (usize, usize) = (100, 40);

/// What to show.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The admin address.
    pub admin: SocketAddr,
    /// The time between snapshots.
    pub interval: Duration,
    /// Whether to print one interval and exit.
    pub once: bool,
}

/// Shows the activity until the terminal closes or the process is stopped.
///
/// # Errors
/// The problem as text: nothing serves the address, or something other than dnsweir does.
pub fn run(options: Options) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let look = || runtime.block_on(client::look(options.admin));
    let terminal = io::stdout().is_terminal() && !options.once;
    let mut before = look()?;
    // The first interval is short, since there are no rates before.
    let mut pause = options.interval.min(Duration::from_secs(1));
    loop {
        let due = Instant::now() + pause;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        pause = options.interval;
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
