//! Restricts processes: a child that reads untrusted data gets bounded memory and time, and no access to
//! paths, network and processes that it does not need; the proxy itself, once configured, can only write and
//! execute what its configuration names. An attacker who takes over a compiler, a registry client or the
//! proxy finds little to go on with.

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

/// Gives a child a third of a query thread's CPU share. Less would starve it on a busy machine.
const NICE: libc::c_int = 5;

/// The resources that a child may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confinement {
    /// Bytes of writable memory.
    pub memory: usize,
    /// CPU time.
    pub time: Duration,
}

/// What a child may access beside the files it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing.
    Nothing,
    /// Servers, and the files needed to find them and verify their certificates.
    Servers,
}

/// Files for name resolution and trusted certificates; missing ones are skipped.
const ABOUT_SERVERS: [&str; 20] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/run/systemd/resolve",
    // The C library resolves names with further libraries.
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
    // Often links to files elsewhere.
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
];

/// The environment variables that name other certificates.
pub const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Returns whether this kernel can restrict paths (Landlock). If not, a child that pulls could open whatever
/// its user may.
pub fn keeps_paths() -> bool {
    landlock::version().is_some()
}

/// Restricts this thread and the threads it will start: they may write only at and below `written`, and
/// execute only at and below `executed`; missing paths are skipped. Irreversible. Does nothing without
/// Landlock.
///
/// # Errors
///
/// If the kernel has Landlock but refuses.
pub fn keep_to(written: &[&Path], executed: &[&Path]) -> io::Result<()> {
    landlock::keep_to(written, executed)
}

/// Confines this unprivileged process for the rest of its life. `parent` is the process that waits for it.
///
/// # Errors
///
/// If the kernel refuses a limit: the process must not go on then.
pub fn confine(parent: u32, confinement: Confinement, reach: Reach) -> io::Result<()> {
    // std's descriptors are closed on exec; this closes what a library or our starter left open.
    // SAFETY: nothing in this process has opened anything but standard input, output and error yet.
    done(unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) })?;
    // SAFETY: takes numbers and no memory.
    done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.into())?;
    if std::os::unix::process::parent_id() != parent {
        // The parent ended before it could signal us.
        exit(1);
    }
    let seconds = confinement.time.as_secs() + u64::from(confinement.time.subsec_nanos() > 0);
    let memory = confinement.memory as u64;
    // Not RLIMIT_AS: allocators and stacks reserve more address space than is ever used.
    limit(Resource::Data, memory, memory)?;
    // Standard output is a file in memory.
    limit(Resource::Fsize, memory, memory)?;
    // The soft limit sends SIGXCPU, which shows the cause; SIGKILL at the hard limit does not.
    limit(Resource::Cpu, seconds, seconds + 1)?;
    limit(Resource::Core, 0, 0)?;
    // Best effort: run after the threads that answer queries, and be killed first when the machine (not the
    // container) runs out of memory. A parent that may not write there itself cannot pass that on.
    // SAFETY: takes numbers and no memory.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    wall_in(reach)
}

/// Blocks everything out of reach.
fn wall_in(reach: Reach) -> io::Result<()> {
    match reach {
        Reach::Nothing => {
            landlock::restrict(&[], false)?;
            match system_calls::refuse() {
                // A kernel without seccomp filters may still have Landlock.
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

/// Creates an anonymous file in memory, visible only through this process's descriptors and closed on exec.
///
/// # Errors
///
/// If the kernel refuses.
pub fn file_in_memory(name: &CStr) -> io::Result<File> {
    let create = |flags| memfd_create(name, MemfdFlags::CLOEXEC | flags);
    // Some kernels require the flag that makes it non-executable; those before 6.3 do not know it.
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
