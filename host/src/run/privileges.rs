//! What the process may do beyond what anybody may: what its configuration needs, and no more, from its first
//! moment on.
//!
//! With a `node` section that is three capabilities, without one it is one, and where nothing is served it is
//! none. Nothing has to be dropped later that a check, a reload or a worker that listens again would miss. Programs
//! that we start, iptables above all, inherit the same. A process without root keeps those of them that it was given.

use std::io;

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Trying filters and asking upstreams.
    Nothing,
    /// Listening on port 53.
    Port,
    /// That, and keeping the node's network.
    Network,
}

impl Needs {
    /// By their numbers in linux/capability.h, and what each is for.
    fn capabilities(self) -> &'static [libc::c_ulong] {
        match self {
            Needs::Nothing => &[],
            Needs::Port => &[
                10, // NET_BIND_SERVICE
            ],
            Needs::Network => &[
                10, // NET_BIND_SERVICE
                12, // NET_ADMIN: links, addresses, rules
                13, // NET_RAW: legacy iptables opens a raw socket
            ],
        }
    }
}

/// The highest number that a kernel may know.
const LAST: libc::c_ulong = 63;

/// linux/capability.h: sets of 64 bits in two halves.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    /// 0 is the calling thread.
    thread: libc::c_int,
}

/// Half of the three sets.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives everything else up, for this thread and those that it will start, and for all programs that they
/// start.
///
/// # Errors
/// When the process may not even do that; it can go on with what it has.
pub fn keep(needs: Needs) -> io::Result<()> {
    let needed = needs.capabilities();
    // Without the capability SETPCAP, the bounding set stays as it is. The kernel refuses unknown numbers.
    for number in (0..=LAST).filter(|number| !needed.contains(number)) {
        // SAFETY: takes a number and no memory.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
    let mut header = Header {
        version: VERSION,
        thread: 0,
    };
    let mut halves = [Half::default(); 2];
    // SAFETY: the kernel reads a header of this version and writes two halves.
    done(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) })?;
    let wanted = needed.iter().fold(0, |set, number| set | 1 << number);
    let kept = halves[0].permitted & wanted;
    halves = [
        Half {
            effective: kept,
            permitted: kept,
            inheritable: kept,
        },
        Half::default(),
    ];
    // SAFETY: the kernel reads a header of this version and two halves.
    done(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) })?;
    for &number in needed.iter().filter(|&number| kept & 1 << number != 0) {
        // SAFETY: takes numbers and no memory.
        done(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, number, 0, 0) }.into())?;
    }
    // No program that we start may get rights from a file.
    // SAFETY: takes numbers and no memory.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
