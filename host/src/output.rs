//! Standard output, where filters print.
//!
//! Whoever reads our output may be slow or stopped, and a worker must not wait for it. Lines are therefore put
//! into a bounded buffer that a thread of its own writes out; what does not fit is dropped and counted.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::text;

/// Octets that may wait for the reader.
const CAPACITY: usize = 1 << 20;

/// How long lines are gathered before they are written, unless half of the room is taken before: a busy server's
/// come many times in that time, and waking the writing thread for each would cost more than they do.
const GATHER: Duration = Duration::from_millis(20);

/// How long the end of the process waits for the reader to take what is left.
const FAREWELL: Duration = Duration::from_secs(1);

/// Owns the writing thread: dropping this writes what is left, then ends it.
pub(super) struct Output {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    /// Something is pending, or the end has come.
    filled: Condvar,
    /// It cannot wait: half of the room is taken, or the end has come.
    urgent: Condvar,
    /// Nothing is pending and nothing is being written.
    drained: Condvar,
}

#[derive(Default)]
struct Pending {
    text: String,
    /// The writing thread waits to be told.
    idle: bool,
    writing: bool,
    closed: bool,
}

impl Pending {
    fn is_urgent(&self) -> bool {
        self.closed || self.text.len() >= CAPACITY / 2
    }
}

impl Output {
    pub(super) fn start(sink: impl Write + Send + 'static) -> io::Result<Output> {
        let shared = Arc::new(Shared::default());
        thread::Builder::new().name("filter-output".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run(sink)
        })?;
        Ok(Output { shared })
    }

    /// Queues whole lines; a last one without a newline gets one. Returns how many were dropped: none or all.
    pub(super) fn print(&self, lines: &str) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        let mut pending = self.shared.pending.lock();
        if pending.text.len() + lines.len() >= CAPACITY {
            return lines.lines().count() as u64;
        }
        let idle = mem::take(&mut pending.idle);
        let urgent = pending.is_urgent();
        text::escape_into(&mut pending.text, lines, &['\n']);
        if !pending.text.ends_with('\n') {
            pending.text.push('\n');
        }
        let urgent = pending.is_urgent() && !urgent;
        drop(pending);
        if idle {
            self.shared.filled.notify_one();
        }
        if urgent {
            self.shared.urgent.notify_one();
        }
        0
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let mut pending = self.shared.pending.lock();
        pending.closed = true;
        self.shared.filled.notify_one();
        self.shared.urgent.notify_one();
        self.shared.drained.wait_while_for(
            &mut pending,
            |pending| pending.writing || !pending.text.is_empty(),
            FAREWELL,
        );
    }
}

impl Shared {
    fn run(&self, mut sink: impl Write) {
        let mut text = String::new();
        let mut pending = self.pending.lock();
        loop {
            self.filled.wait_while(&mut pending, |pending| {
                pending.idle = pending.text.is_empty() && !pending.closed;
                pending.idle
            });
            if pending.text.is_empty() {
                return;
            }
            self.urgent
                .wait_while_for(&mut pending, |pending| !pending.is_urgent(), GATHER);
            mem::swap(&mut text, &mut pending.text);
            pending.writing = true;
            drop(pending);
            // A closed pipe must not end the proxy, and there is nobody to tell.
            let _ = sink.write_all(text.as_bytes()).and_then(|()| sink.flush());
            text.clear();
            pending = self.pending.lock();
            pending.writing = false;
            if pending.text.is_empty() {
                self.drained.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Announces each write, then waits until it may finish.
    struct Slow {
        written: Sender<String>,
        go_on: Receiver<()>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written
                .send(String::from_utf8(bytes.to_vec()).unwrap())
                .unwrap();
            let _ = self.go_on.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stopped_reader_costs_lines_and_no_time() {
        let (written_in, written) = channel();
        let (go_on, go_on_out) = channel();
        let output = Output::start(Slow {
            written: written_in,
            go_on: go_on_out,
        })
        .unwrap();
        assert_eq!(output.print("one\ntwo"), 0);
        assert_eq!(written.recv().unwrap(), "one\ntwo\n");
        // The reader is stuck in its first write from here on.
        let line = format!("{}\n", "x".repeat(1023));
        let mut kept = 0;
        while output.print(&line) == 0 {
            kept += 1;
        }
        assert_eq!(kept, 1023, "as many lines as fit below the capacity");
        assert_eq!(
            output.print(&format!("{line}{line}")),
            2,
            "dropped lines are counted"
        );
        drop(go_on);
        assert_eq!(written.recv().unwrap().len(), 1023 * 1024);
        assert_eq!(output.print("back"), 0);
        drop(output);
        assert_eq!(written.recv().unwrap(), "back\n");
    }

    #[test]
    fn forged_lines_and_escapes_are_spelt_out() {
        let (written_in, written) = channel();
        let (_, go_on) = channel();
        let output = Output::start(Slow {
            written: written_in,
            go_on,
        })
        .unwrap();
        output.print("a\rb\x1b[2J\n");
        assert_eq!(written.recv().unwrap(), "a\\rb\\u{1b}[2J\n");
    }
}
