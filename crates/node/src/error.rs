//! Errors of changing the network.

use std::io;

/// The kind of failure, in the terms of node-cache's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rule could not be listed, written or deleted.
    Iptables,
    /// Another program held the xtables lock for too long.
    IptablesLock,
    /// A program did not end in time and was killed, or the kernel did not answer in time.
    Deadline,
    /// Another process kept the right to change the network, or another user's process took it.
    Turn,
    /// The link could not be created, or an address not added.
    InterfaceAdd,
    /// The link could not be inspected, or something could not be removed.
    InterfaceCheck,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] = [
        Kind::Iptables,
        Kind::IptablesLock,
        Kind::Deadline,
        Kind::Turn,
        Kind::InterfaceAdd,
        Kind::InterfaceCheck,
    ];

    /// The value of the label `kind`.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Iptables => "iptables",
            Kind::IptablesLock => "iptables_lock",
            Kind::Deadline => "deadline",
            Kind::Turn => "turn",
            Kind::InterfaceAdd => "interface_add",
            Kind::InterfaceCheck => "interface_check",
        }
    }
}

/// A failed change of the network.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// The kind of failure.
    pub kind: Kind,
    pub(super) text: String,
}

/// Converts an rtnetlink error to the system's error type.
pub(super) fn io_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}
