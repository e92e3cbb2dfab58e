//! What the process may do beyond what anybody may: what its configuration needs, and no more, from its first
//! moment on.
//!
//! With a `node` section that is three capabilities, without one it is one, and where nothing is served it is
//! none. Nothing has to be dropped later that a check, a reload or a worker that listens again would miss. Programs
//! that we start, iptables above all, inherit the same. A process without root keeps those of them that it was given.

use rustix::io;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

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
    fn capabilities(self) -> CapabilitySet {
        match self {
            Needs::Nothing => CapabilitySet::empty(),
            Needs::Port => CapabilitySet::NET_BIND_SERVICE,
            // NET_ADMIN for links, addresses and rules; NET_RAW for the self-test's packets, and since legacy iptables opens a
            // raw socket.
            Needs::Network => {
                CapabilitySet::NET_BIND_SERVICE | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW
            }
        }
    }
}

/// Every capability that a kernel may know, whether it has a name yet or not.
fn each() -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number))
}

/// Gives everything else up, for this thread and those that it will start, and for all programs that they
/// start.
///
/// # Errors
/// When the process may not even do that; it can go on with what it has.
pub fn keep(needs: Needs) -> io::Result<()> {
    let needed = needs.capabilities();
    for capability in each().filter(|&it| !needed.contains(it)) {
        // Without the capability SETPCAP, the bounding set stays as it is. The kernel refuses what it does not know.
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
    // No program that we start may get rights from a file.
    thread::set_no_new_privs(true)
}
