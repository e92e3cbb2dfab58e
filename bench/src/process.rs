//! Processes of the benchmark: pinned to a processor, stopped while others are measured, and gone when their
//! owner is.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use socket2::{SockAddr, Socket, Type};

use crate::wire::{A, Question};

/// Time limits for a server's first answer, for an answer after an overload, and for its exit.
const START: Duration = Duration::from_secs(30);
const RECOVERY: Duration = Duration::from_secs(5);
const END: Duration = Duration::from_secs(3);

/// Files in a server's folder with its output; both are appended to.
pub const OUTPUT: &str = "stdout";
const ERRORS: &str = "stderr";

/// A server under test, or its upstream.
pub struct Server {
    child: Child,
    /// Where it answers.
    pub address: SocketAddrV4,
    /// The time from its start to its first answer.
    pub start: Duration,
    folder: PathBuf,
}

impl Server {
    /// Starts `command` on processor `core`, and waits until it answers on `address`. Its output goes to
    /// files in `folder`.
    pub fn start(
        command: &mut Command,
        core: usize,
        address: SocketAddrV4,
        folder: &Path,
    ) -> io::Result<Server> {
        let begin = Instant::now();
        let mut server = Server::launch(command, core, address, folder)?;
        server.until_it_answers(START).map_err(|error| {
            let program = command.get_program().display();
            io::Error::other(format!("{program}: {error}\n{}", last_words(folder)))
        })?;
        server.start = begin.elapsed();
        Ok(server)
    }

    /// Starts `command` without waiting, for servers with other questions to answer.
    pub fn launch(
        command: &mut Command,
        core: usize,
        address: SocketAddrV4,
        folder: &Path,
    ) -> io::Result<Server> {
        command
            .stdin(Stdio::null())
            .stdout(append(&folder.join(OUTPUT))?)
            .stderr(append(&folder.join(ERRORS))?);
        // SAFETY: between fork and exec only async-signal-safe functions are called: two system calls on
        // values made before.
        unsafe {
            command.pre_exec(move || {
                // If the benchmark dies in any way, nothing stays behind.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                pin(core)
            });
        }
        let program = command.get_program().display().to_string();
        let child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        Ok(Server {
            child,
            address,
            start: Duration::ZERO,
            folder: folder.to_owned(),
        })
    }

    /// Lets its existing threads use these processors.
    pub fn spread(&self, cores: &[usize]) -> io::Result<()> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.id()))? {
            let name = thread?.file_name();
            if let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) {
                set_affinity(thread, cores)?;
            }
        }
        Ok(())
    }

    /// Returns its threads whose names start with `name`, sorted by name.
    pub fn threads(&self, name: &str) -> io::Result<Vec<libc::pid_t>> {
        let mut found = Vec::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.id()))? {
            let folder = thread?;
            let called = fs::read_to_string(folder.path().join("comm"))?;
            if let (true, Some(Ok(id))) = (
                called.starts_with(name),
                folder.file_name().to_str().map(str::parse),
            ) {
                found.push((called, id));
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    /// Duplicates its datagram sockets at the address where it answers, in the order of their descriptors.
    pub fn datagram_sockets(&self) -> io::Result<Vec<Socket>> {
        // SAFETY: takes two numbers, and returns a new descriptor of our own, or an error.
        let process = unsafe {
            match libc::syscall(libc::SYS_pidfd_open, self.id(), 0) {
                -1 => return Err(io::Error::last_os_error()),
                process => OwnedFd::from_raw_fd(process as RawFd),
            }
        };
        let folder = format!("/proc/{}/fd", self.id());
        let mut open = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let name = entry?.file_name();
            open.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
        }
        open.sort_unstable();
        let (mut sockets, mut seen) = (Vec::new(), Vec::new());
        for number in open {
            // SAFETY: as above; the descriptor of the process is open.
            let socket = unsafe {
                match libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) {
                    // Closed meanwhile.
                    -1 => continue,
                    found => Socket::from_raw_fd(found as RawFd),
                }
            };
            let here = |address: SockAddr| address.as_socket_ipv4() == Some(self.address);
            let is_one =
                socket.local_addr().is_ok_and(here) && socket.r#type().is_ok_and(|kind| kind == Type::DGRAM);
            // The proxy has two descriptors of each.
            let place = fs::read_link(format!("{folder}/{number}"))?;
            if is_one && !seen.contains(&place) {
                sockets.push(socket);
                seen.push(place);
            }
        }
        Ok(sockets)
    }

    /// Returns its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops it, so that it cannot disturb another measurement.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Resumes it, and waits until it has worked off what an overload may have left.
    pub fn thaw(&mut self) -> io::Result<()> {
        self.signal(libc::SIGCONT)?;
        self.until_it_answers(RECOVERY)
    }

    /// Empties its output files.
    pub fn forget_output(&self) -> io::Result<()> {
        for name in [OUTPUT, ERRORS] {
            OpenOptions::new()
                .write(true)
                .open(self.folder.join(name))?
                .set_len(0)?;
        }
        Ok(())
    }

    fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        // SAFETY: takes two numbers. The process is our child and not yet waited for, so the ID is its own.
        match unsafe { libc::kill(self.child.id() as libc::pid_t, signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn until_it_answers(&mut self, patience: Duration) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(self.address)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let question = Question {
            letter: b'r',
            number: 0,
            qtype: A,
            exists: true,
        };
        let start = Instant::now();
        let mut reply = [0; 512];
        while start.elapsed() < patience {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("ended with {status}")));
            }
            let mut query = [0; 64];
            let length = question.write(1, &mut query);
            let received = socket
                .send(&query[..length])
                .and_then(|_| socket.recv(&mut reply));
            match received {
                // The NXDOMAIN floor denies this name, too: accept a denial.
                Ok(length) if question.is_answered_by(&reply[..length]) || reply[3] & 0x0f == 3 => {
                    return Ok(());
                }
                Ok(_) => std::thread::sleep(Duration::from_millis(50)),
                // Not listening yet: the refusal is immediate.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => {}
            }
        }
        Err(io::Error::other(format!("no answer on {} in time", self.address)))
    }
}

/// Returns the end of the output of the server in `folder`.
pub fn last_words(folder: &Path) -> String {
    let mut words = String::new();
    for name in [ERRORS, OUTPUT] {
        let text = fs::read(folder.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(8)..] {
            words += &format!("    {line}\n");
        }
    }
    words
}

impl Drop for Server {
    fn drop(&mut self) {
        // A frozen process does not handle SIGTERM. Errors mean that it has ended.
        let _ = self.signal(libc::SIGCONT);
        let _ = self.signal(libc::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < END {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pins the calling thread, and threads and processes it starts, to processor `core`.
pub fn pin(core: usize) -> io::Result<()> {
    set_affinity(0, &[core])
}

/// Returns the number of processors, regardless of the calling thread's affinity.
pub fn processors() -> usize {
    // SAFETY: takes a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1)
}

/// Restricts `thread`, or the calling thread if 0, to these processors.
pub fn set_affinity(thread: libc::pid_t, cores: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero set is empty; `CPU_SET` ignores what is out of range; the size is that of the set.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for core in cores {
            libc::CPU_SET(*core, &mut set);
        }
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the first port on `ip` from `first` that is free over UDP and TCP.
pub fn free_port(ip: Ipv4Addr, first: u16) -> io::Result<u16> {
    (first..first.saturating_add(500))
        .find(|port| UdpSocket::bind((ip, *port)).is_ok() && TcpListener::bind((ip, *port)).is_ok())
        .ok_or_else(|| io::Error::other(format!("no free port on {ip} from {first} on")))
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// A temporary folder that lives as long as the benchmark, in memory if possible: a query log on a disk would
/// measure the disk.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Creates it.
    pub fn new() -> io::Result<Scratch> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = base.join(format!("dnsweir-bench-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Creates a folder in it.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_not_free() {
        let ip = Ipv4Addr::new(127, 0, 91, 1);
        let udp = UdpSocket::bind((ip, 0)).unwrap();
        let taken = udp.local_addr().unwrap().port();
        assert_ne!(free_port(ip, taken).unwrap(), taken);
        let tcp = TcpListener::bind((ip, 0)).unwrap();
        let taken = tcp.local_addr().unwrap().port();
        assert_ne!(free_port(ip, taken).unwrap(), taken);
    }

    #[test]
    fn a_server_that_fails_says_why_and_is_gone() {
        let scratch = Scratch::new().unwrap();
        let folder = scratch.folder("failing").unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::new(127, 0, 91, 2), 9);
        let mut command = Command::new("sh");
        command.args(["-c", "echo the port is taken >&2; exit 3"]);
        let error = Server::start(&mut command, 0, address, &folder)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("the port is taken") && error.contains('3'),
            "{error}"
        );
    }
}
