//! Limits the process's capabilities to what its configuration needs, from the start.
//!
//! With a `node` section these are three, without one it is one, and where nothing is served none. Nothing is
//! dropped later that a check, a reload or a worker that listens again would miss. Programs that we start,
//! above all iptables, inherit the same. A process without root keeps those of them that it was given.

use rustix::io;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Testing filters and asking upstreams.
    Nothing,
    /// Listening on port 53.
    Port,
    /// Listening on port 53, and managing the node's network.
    Network,
}

impl Needs {
    fn capabilities(self) -> CapabilitySet {
        match self {
            Needs::Nothing => CapabilitySet::empty(),
            Needs::Port => CapabilitySet::NET_BIND_SERVICE,
            // NET_ADMIN for links, addresses and rules; NET_RAW for the self-test's packets, and because
            // legacy iptables opens a raw socket.
            Needs::Network => {
                CapabilitySet::NET_BIND_SERVICE | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW
            }
        }
    }
}

/// Yields every possible capability bit, named or not.
fn each() -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number))
}

/// Drops all other capabilities, for this thread, the threads that it starts later, and all programs that
/// these start.
///
/// # Errors
/// When the process may not even do that; it can continue with what it has.
pub fn keep(needs: Needs) -> io::Result<()> {
    let needed = needs.capabilities();
    for capability in each().filter(|&it| !needed.contains(it)) {
        // Without CAP_SETPCAP, the bounding set stays as it is. The kernel refuses bits that it does not
        // know.
        let _ = thread::remove_capability_from_bounding_set(capability);
    }
    let kept = thread::capabilities(None)?.permitted & needed;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: kept,
    };
    thread::set_capabilities(None, sets)?;
    for capability in each().filter(|&it| kept.contains(it)) {
        thread::configure_capability_in_ambient_set(capability, true)?;
    }
    // No program that we start may gain rights from a file.
    thread::set_no_new_privs(true)
}
