//! What could not be done to the network.

use std::io;

/// What failed, in the words of node-cache's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rule could not be listed, written or deleted.
    Iptables,
    /// Another program held the xtables lock for too long.
    IptablesLock,
    /// A program did not end in time, and was killed; or the kernel did not answer in time.
    Deadline,
    /// Another process kept the right to change the network, or a stranger took it.
    Turn,
    /// The link could not be made, or an address not added.
    InterfaceAdd,
    /// The link could not be looked at, or something not be taken away.
    InterfaceCheck,
}

impl Kind {
    /// All of them.
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

/// Something that could not be done to the network.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// What failed.
    pub kind: Kind,
    pub(super) text: String,
}

/// As the system's own kind of error.
pub(super) fn io_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}
