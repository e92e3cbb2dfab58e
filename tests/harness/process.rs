//! A program that runs beside the tests, and its output.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use socket2::{Socket, Type};

use super::eventually;

/// A child process. It is killed, by its own ID, when dropped.
pub struct Process {
    child: Child,
    /// The program's name, for messages.
    name: String,
    stdout: Lines,
    stderr: Lines,
    /// Output that is not being read yet.
    unread: Option<(ChildStdout, ChildStderr)>,
}

/// The output so far, line by line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Reads to the end in a separate thread.
    fn read(&self, source: impl Read + Send + 'static) {
        let filled = self.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(source);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                filled
                    .lock()
                    .push(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Process {
    /// Starts it, without standard input.
    pub fn start(command: &mut Command) -> Process {
        let mut process = Process::start_unread(command);
        process.read();
        process
    }

    /// Starts it without reading its output: its pipes fill up.
    pub fn start_unread(command: &mut Command) -> Process {
        let name = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        Process {
            child,
            name,
            stdout: Lines::default(),
            stderr: Lines::default(),
            unread: Some((stdout.expect("piped"), stderr.expect("piped"))),
        }
    }

    /// Starts reading its output.
    pub fn read(&mut self) {
        if let Some((stdout, stderr)) = self.unread.take() {
            self.stdout.read(stdout);
            self.stderr.read(stderr);
        }
    }

    /// Returns its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns a figure of `/proc/ID/status` in bytes: `VmRSS`, `VmHWM`.
    pub fn memory(&self, figure: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("a running program");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
        let kibibytes: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        1024 * kibibytes.unwrap_or_else(|| panic!("no {figure} in {status}"))
    }

    /// Returns how many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id()))
            .expect("a running program")
            .count()
    }

    /// Duplicates its datagram sockets at an address, in the order of their descriptors, once for each
    /// descriptor.
    pub fn datagram_sockets(&self, address: SocketAddr) -> Vec<Socket> {
        // SAFETY: takes two numbers, and returns a new descriptor of our own, or -1.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, self.id(), 0) };
        assert!(process >= 0, "a running program");
        // SAFETY: as above.
        let process = unsafe { OwnedFd::from_raw_fd(process as RawFd) };
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("a running program");
        let number =
            |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        let mut open: Vec<RawFd> = open.filter_map(number).collect();
        open.sort_unstable();
        let duplicate = |number: RawFd| {
            // SAFETY: `process` is open, and the result is as above; -1 for a descriptor closed meanwhile.
            let socket = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
            // SAFETY: as above.
            (socket >= 0).then(|| unsafe { Socket::from_raw_fd(socket as RawFd) })
        };
        let is_one = |socket: &Socket| {
            let here = socket
                .local_addr()
                .is_ok_and(|own| own.as_socket() == Some(address));
            here && socket.r#type().is_ok_and(|kind| kind == Type::DGRAM)
        };
        open.into_iter().filter_map(duplicate).filter(is_one).collect()
    }

    /// Returns standard output so far.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.lock().clone()
    }

    /// Returns standard error so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().clone()
    }

    /// Waits for a line of standard output that the test accepts.
    #[track_caller]
    pub fn printed(&self, what: &str, accept: impl Fn(&str) -> bool) -> String {
        eventually(what, || {
            self.stdout.lock().iter().find(|line| accept(line)).cloned()
        })
    }

    /// Waits for a line of standard error that contains the text.
    #[track_caller]
    pub fn logged(&self, text: &str) -> String {
        let found = || {
            self.stderr
                .lock()
                .iter()
                .find(|line| line.contains(text))
                .cloned()
        };
        eventually(&format!("{} to log `{text}`", self.name), found)
    }

    /// Sends a signal: `TERM`, `HUP`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(self.id().to_string())
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "cannot send {signal} to {}",
            self.name
        );
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Waits until it ends.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let name = self.name.clone();
        eventually(&format!("{name} to end"), || {
            self.child.try_wait().expect("a child")
        })
    }

    /// Kills it, and waits until it has ended.
    pub fn stop(&mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            for (stream, lines) in [("printed", &self.stdout), ("said", &self.stderr)] {
                eprintln!("--- {} {stream}:", self.name);
                for line in lines.lock().iter().rev().take(60).rev() {
                    eprintln!("{line}");
                }
            }
        }
    }
}
