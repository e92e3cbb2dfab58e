//! `dnsweir top`: what a running dnsweir does, in a terminal, as its admin address says.
//!
//! Everything comes from `/status` and `/metrics`, so that it shows a process on this machine as well as one behind a
//! forwarded port.

mod client;
mod figures;
mod samples;
mod screen;
mod status;

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use figures::Look;
use screen::{PLAIN, Screen};

/// The size of a terminal that does not tell.
const SIZE: (usize, usize) = (100, 40);

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The admin address.
    pub admin: SocketAddr,
    /// From one look to the next.
    pub interval: Duration,
    /// Whether to print what one interval has shown, and end.
    pub once: bool,
}

/// Shows it until the terminal goes away or the process is ended.
///
/// # Errors
/// In words: nobody serves the address, or somebody who is not dnsweir.
pub fn run(options: Options) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let look = || runtime.block_on(client::look(options.admin));
    let terminal = io::stdout().is_terminal() && !options.once;
    let mut before = look()?;
    // One that has just begun to look has no rates yet: the first come soon.
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
            // It may be restarting.
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
    let (width, height) = match terminal_size::terminal_size() {
        Some((width, height)) if terminal => (usize::from(width.0), usize::from(height.0)),
        _ => SIZE,
    };
    let height = if terminal { height } else { PLAIN };
    Screen::new(width, height).draw(before, now)
}

/// The text in the place of what was there: each line to its end, and everything below. Nothing flickers, and what scrolled out
/// of the terminal before stays as it was.
fn overwriting(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n"))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
