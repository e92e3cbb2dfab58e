//! What the process may do beyond what anybody may: three capabilities, and no more, from its first moment on.
//!
//! The network is set up with nothing else, so nothing has to be dropped later that a check, a reload or a
//! worker that listens again would miss. Programs that we start, iptables above all, inherit the same three.
//! A process without root keeps those of them that it was given.

use std::io;

/// By their numbers in linux/capability.h, and what each is for.
const NEEDED: [libc::c_ulong; 3] = [
    10, // NET_BIND_SERVICE: listening on port 53
    12, // NET_ADMIN: links, addresses, rules
    13, // NET_RAW: legacy iptables opens a raw socket
];

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
/// start. A process that may not even do that goes on with what it has.
pub fn keep_what_is_needed() {
    if let Err(error) = keep() {
        tracing::warn!(%error, "more rights are kept than are needed");
    }
}

fn keep() -> io::Result<()> {
    // Without the capability SETPCAP, the bounding set stays as it is. The kernel refuses unknown numbers.
    for number in (0..=LAST).filter(|number| !NEEDED.contains(number)) {
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
    let needed = NEEDED.iter().fold(0, |set, number| set | 1 << number);
    let kept = halves[0].permitted & needed;
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
    for number in NEEDED.into_iter().filter(|number| kept & 1 << number != 0) {
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
