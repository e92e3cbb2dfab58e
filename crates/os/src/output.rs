//! Standard output, where filters print, and standard error, where the log goes.
//!
//! A reader may be slow or stopped, or a journal that is restarting, and neither a worker nor the main thread
//! nor the watchdog may wait for it. So each stream is a bounded queue with its own writing thread. What does
//! not fit is dropped and counted, and the log reports the count once the reader is back. A running proxy
//! writes to neither stream in any other way.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::confine;

/// Bytes that may be queued for a stream. As many again may be being written.
pub const CAPACITY: usize = 1 << 20;

/// How long filters' lines are collected before a write, unless half of the queue is full earlier: a busy
/// server prints many in that time, and waking the writing thread for each would cost more than the lines do.
const GATHER: Duration = Duration::from_millis(20);

/// How long the process waits for the readers at its end.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long to wait before retrying a pipe that another process made non-blocking. The mode is shared with
/// every process that has the pipe, so we never set it ourselves.
const FULL: Duration = Duration::from_millis(20);

static STDOUT: OnceLock<Arc<Queue>> = OnceLock::new();
static STDERR: OnceLock<Arc<Queue>> = OnceLock::new();

/// The queue of standard output.
///
/// # Errors
/// If its thread cannot be started.
pub fn stdout() -> io::Result<Arc<Queue>> {
    the(&STDOUT, || Queue::of_process("stdout", io::stdout(), GATHER))
}

/// The queue of standard error. Does not collect lines: the last ones may say why the process ends.
///
/// # Errors
/// If its thread cannot be started.
pub fn stderr() -> io::Result<Arc<Queue>> {
    the(&STDERR, || {
        Queue::of_process("stderr", io::stderr(), Duration::ZERO)
    })
}

/// The stream without the standard library's buffer and lock, whose holder would wait for the reader.
fn own(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from(stream.as_fd().try_clone_to_owned()?))
}

fn the(one: &OnceLock<Arc<Queue>>, start: impl FnOnce() -> io::Result<Queue>) -> io::Result<Arc<Queue>> {
    if let Some(queue) = one.get() {
        return Ok(Arc::clone(queue));
    }
    let queue = Arc::new(start()?);
    Ok(Arc::clone(one.get_or_init(|| queue)))
}

/// Dropped lines by stream name.
pub fn dropped() -> [(&'static str, u64); 2] {
    [("stdout", &STDOUT), ("stderr", &STDERR)]
        .map(|(name, one)| (name, one.get().map_or(0, |queue| queue.dropped())))
}

/// Waits until both streams are written out, at most 1 s so that no reader can delay the end.
pub fn flush() {
    let end = Instant::now() + FAREWELL;
    for queue in [&STDOUT, &STDERR].into_iter().filter_map(OnceLock::get) {
        queue.flush(end);
    }
}

/// The queue of one stream and its writing thread. Dropping it writes what is left and ends the thread.
pub struct Queue {
    state: Arc<State>,
}

struct State {
    name: &'static str,
    gather: Duration,
    /// Dropped lines, or other records.
    dropped: AtomicU64,
    pending: Mutex<Pending>,
    /// Something is pending, or the queue is closed.
    filled: Condvar,
    /// Half of the room is taken, or the queue is closed: write now.
    urgent: Condvar,
    /// Nothing is pending and nothing is being written.
    drained: Condvar,
}

#[derive(Default)]
struct Pending {
    octets: Vec<u8>,
    /// The writing thread waits on `filled`.
    idle: bool,
    writing: bool,
    closed: bool,
    /// The writing thread has ended.
    ended: bool,
}

/// Receives the text that is put into a queue.
pub struct Text<'q>(&'q mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Pending {
    fn is_urgent(&self) -> bool {
        self.closed || self.octets.len() >= CAPACITY / 2
    }

    fn is_drained(&self) -> bool {
        !self.writing && self.octets.is_empty()
    }
}

impl Queue {
    /// Starts a queue in front of `sink`, which may block. Lines are collected for `gather` before a write.
    ///
    /// # Errors
    /// If the writing thread cannot be started.
    pub fn start(
        name: &'static str,
        sink: impl Write + Send + 'static,
        gather: Duration,
    ) -> io::Result<Queue> {
        Queue::begin(name, gather, || sink)
    }

    /// The queue of a stream of the process, which starts before it is known what the process may write: its
    /// thread may open nothing at all.
    fn of_process(name: &'static str, stream: impl AsFd, gather: Duration) -> io::Result<Queue> {
        let sink = own(stream)?;
        Queue::begin(name, gather, || {
            let _ = confine::keep_to(&[], &[]);
            sink
        })
    }

    /// Like `start`, but the writing thread creates the sink.
    fn begin<W: Write>(
        name: &'static str,
        gather: Duration,
        sink: impl FnOnce() -> W + Send + 'static,
    ) -> io::Result<Queue> {
        let state = Arc::new(State {
            name,
            gather,
            dropped: AtomicU64::new(0),
            pending: Mutex::default(),
            filled: Condvar::new(),
            urgent: Condvar::new(),
            drained: Condvar::new(),
        });
        thread::Builder::new().name(name.into()).spawn({
            let state = Arc::clone(&state);
            move || state.run(sink())
        })?;
        Ok(Queue { state })
    }

    /// Queues whole lines, and completes the last with a newline. Returns how many were dropped: none or all.
    pub fn print(&self, lines: &str) -> u64 {
        self.print_by(lines, |out, lines| out.0.extend_from_slice(lines.as_bytes()))
    }

    /// Like `print`, but `append` puts the lines into the queue, and may escape them.
    pub fn print_by(&self, lines: &str, append: impl FnOnce(&mut Text<'_>, &str)) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        let count = || {
            // Drops come by the million: sums of one byte let the compiler compare 16 bytes at a time.
            let ends = |part: &[u8]| {
                part.iter()
                    .fold(0, |sum: u8, &octet| sum + u8::from(octet == b'\n'))
            };
            let ends = lines.as_bytes().chunks(255).map(|part| u64::from(ends(part)));
            ends.sum::<u64>() + u64::from(!lines.ends_with('\n'))
        };
        self.push(lines.len(), count, |out| {
            append(&mut Text(out), lines);
            if !out.ends_with(b"\n") {
                out.push(b'\n');
            }
        })
    }

    /// Queues records of about `size` bytes, which `append` writes. Returns how many were dropped: none, or
    /// all `count`.
    pub fn push(&self, size: usize, count: impl FnOnce() -> u64, append: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let mut pending = self.state.pending.lock();
        if pending.octets.len() + size >= CAPACITY {
            drop(pending);
            let dropped = count();
            self.state.dropped.fetch_add(dropped, Ordering::Relaxed);
            return dropped;
        }
        let idle = mem::take(&mut pending.idle);
        let urgent = pending.is_urgent();
        append(&mut pending.octets);
        let urgent = pending.is_urgent() && !urgent;
        drop(pending);
        if idle {
            self.state.filled.notify_one();
        }
        if urgent {
            self.state.urgent.notify_one();
        }
        0
    }

    /// Lines, or other records, dropped so far.
    pub fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }

    fn flush(&self, end: Instant) {
        let mut pending = self.state.pending.lock();
        let left = end.saturating_duration_since(Instant::now());
        self.state
            .drained
            .wait_while_for(&mut pending, |pending| !pending.is_drained(), left);
    }

    /// Closes the queue, and waits at most 1 s until the sink is closed.
    pub fn finish(&self) {
        self.state.pending.lock().closed = true;
        self.state.filled.notify_one();
        self.state.urgent.notify_one();
        let mut pending = self.state.pending.lock();
        let ended = |pending: &mut Pending| !pending.ended;
        self.state.drained.wait_while_for(&mut pending, ended, FAREWELL);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Writes whole records, as the log does: each is queued in one piece or dropped.
impl Write for &Queue {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.print(&String::from_utf8_lossy(octets));
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl State {
    fn run(&self, mut sink: impl Write) {
        let mut octets = Vec::new();
        let mut told = 0;
        let mut pending = self.pending.lock();
        loop {
            self.filled.wait_while(&mut pending, |pending| {
                pending.idle = pending.octets.is_empty() && !pending.closed;
                pending.idle
            });
            if pending.octets.is_empty() {
                break;
            }
            if !self.gather.is_zero() {
                self.urgent
                    .wait_while_for(&mut pending, |pending| !pending.is_urgent(), self.gather);
            }
            mem::swap(&mut octets, &mut pending.octets);
            pending.writing = true;
            drop(pending);
            write(&mut sink, &octets);
            octets.clear();
            // Drops happen while a write blocks; now that it has ended, there is room to report them.
            let dropped = self.dropped.load(Ordering::Relaxed) - told;
            if dropped > 0 {
                told += dropped;
                tracing::warn!(
                    stream = self.name,
                    dropped,
                    "its reader is too slow: output was dropped"
                );
            }
            pending = self.pending.lock();
            pending.writing = false;
            if pending.octets.is_empty() {
                self.drained.notify_all();
            }
        }
        drop(pending);
        drop(sink);
        self.pending.lock().ended = true;
        self.drained.notify_all();
    }
}

/// Writes all of it, however long that takes.
fn write(sink: &mut impl Write, mut octets: &[u8]) {
    while !octets.is_empty() {
        match sink.write(octets) {
            Ok(0) => return,
            Ok(count) => octets = &octets[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(FULL),
            // A closed pipe must not end the proxy, and cannot be reported.
            Err(_) => return,
        }
    }
    let _ = sink.flush();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Announces each write, then blocks until it may finish.
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
        let output = Queue::start(
            "test",
            Slow {
                written: written_in,
                go_on: go_on_out,
            },
            GATHER,
        )
        .unwrap();
        assert_eq!(output.print("one\ntwo"), 0);
        assert_eq!(written.recv().unwrap(), "one\ntwo\n");
        // From here on, the reader is stuck in its first write.
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
        assert_eq!(output.dropped(), 3);
        drop(go_on);
        assert_eq!(written.recv().unwrap().len(), 1023 * 1024);
        assert_eq!(output.print("back"), 0);
        drop(output);
        assert_eq!(written.recv().unwrap(), "back\n");
    }
}
