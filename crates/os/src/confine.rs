//! What a process gives up: a child before it works on what strangers wrote, memory and time without end, and what it does not need of paths,
//! the network and other processes; the proxy itself, once it has its configuration, writing and executing what that does not name. Whoever breaks
//! a compiler, a client of registries or the proxy finds little there to go on from.

mod landlock;
mod system_calls;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::exit;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, Rlimit, setrlimit};

/// A third of the share that whoever answers queries gets of a processor that both want. Less, and a busy machine would
/// leave it none.
const NICE: libc::c_int = 5;

/// What a child process may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confinement {
    /// Octets of writable memory.
    pub memory: usize,
    /// Of the processor.
    pub time: Duration,
}

/// What a child process may reach beside the files that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing.
    Nothing,
    /// Servers, and what it takes to find them and to know them by their certificates.
    Servers,
}

/// What says where servers are, and whose certificates are trusted: of these, what there is.
const ABOUT_SERVERS: [&str; 20] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/run/systemd/resolve",
    // Where the C library finds names is for libraries of its own to say.
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    // Links to files elsewhere.
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
];

/// The variables of the environment that name other certificates.
pub const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Whether this kernel can keep paths from a process (Landlock). If it cannot, a child that pulls could open what its user may.
pub fn keeps_paths() -> bool {
    landlock::version().is_some()
}

/// Leaves this thread, and those that it will start, nothing to write but what is at and below some paths, and nothing to execute but what is
/// at and below others; what is not there is left out. Nothing gives it back. Where the kernel has no Landlock, nothing happens.
///
/// # Errors
///
/// When the kernel has it, and refuses.
pub fn keep_to(written: &[&Path], executed: &[&Path]) -> io::Result<()> {
    landlock::keep_to(written, executed)
}

/// Confines this process, which has no rights, for the rest of its life. `parent` is the process that waits for it.
///
/// # Errors
///
/// When the kernel refuses a limit: then nothing is safe to be done.
pub fn confine(parent: u32, confinement: Confinement, reach: Reach) -> io::Result<()> {
    // What std opens is closed on exec; this is for what a library or whoever started us left open.
    // SAFETY: nothing in this process has opened anything but standard input, output and error yet.
    done(unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) })?;
    // SAFETY: takes numbers and no memory.
    done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.into())?;
    if std::os::unix::process::parent_id() != parent {
        // It ended before it could have told us.
        exit(1);
    }
    let seconds = confinement.time.as_secs() + u64::from(confinement.time.subsec_nanos() > 0);
    let memory = confinement.memory as u64;
    // Not the address space (RLIMIT_AS), of which allocators and stacks reserve more than anybody uses.
    limit(Resource::Data, memory, memory)?;
    // Standard output is a file in memory.
    limit(Resource::Fsize, memory, memory)?;
    // At the first one the kernel sends SIGXCPU, which says what happened; SIGKILL, at the second, does not.
    limit(Resource::Cpu, seconds, seconds + 1)?;
    limit(Resource::Core, 0, 0)?;
    // Wishes, which change no outcome: to come after those who answer queries, and to be the one that the kernel ends when
    // the machine, and not the container, runs out of memory; which a parent cannot give on that may not write there itself.
    // SAFETY: takes numbers and no memory.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    wall_in(reach)
}

/// Takes away what is out of reach.
fn wall_in(reach: Reach) -> io::Result<()> {
    match reach {
        Reach::Nothing => {
            landlock::restrict(&[], false)?;
            match system_calls::refuse() {
                // A kernel without such filters; Landlock may be there.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                done => done,
            }
        }
        Reach::Servers => {
            let named = CERTIFICATES.map(|name| std::env::var_os(name).unwrap_or_default());
            let mut readable: Vec<&Path> = ABOUT_SERVERS.iter().map(Path::new).collect();
            readable.extend(named.iter().map(Path::new));
            landlock::restrict(&readable, true)
        }
    }
}

/// A file that has no name but for who looks at this process, and that a child gets only if it is told to.
///
/// # Errors
///
/// When the kernel says no.
pub fn file_in_memory(name: &CStr) -> io::Result<File> {
    let create = |flags| memfd_create(name, MemfdFlags::CLOEXEC | flags);
    // There are kernels that want to be told that it is no program, and those before 6.3, which do not know the word.
    let descriptor = create(MemfdFlags::NOEXEC_SEAL).or_else(|_| create(MemfdFlags::empty()))?;
    Ok(File::from(descriptor))
}

fn limit(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(soft),
        maximum: Some(hard),
    };
    Ok(setrlimit(resource, limit)?)
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
