//! The outcome of a TLS handshake, for counters.

/// The outcome of a TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// A new session.
    Full,
    /// A resumed session.
    Resumed,
    /// Either of these: QUIC does not say which.
    Unknown,
    /// The handshake failed or timed out.
    Failed,
    /// Not started: a QUIC client has to prove its address first.
    Retried,
}

impl Handshake {
    /// All variants.
    pub const ALL: [Handshake; 5] = [
        Handshake::Full,
        Handshake::Resumed,
        Handshake::Unknown,
        Handshake::Failed,
        Handshake::Retried,
    ];

    /// Returns its label in `/metrics`.
    pub fn as_str(self) -> &'static str {
        match self {
            Handshake::Full => "full",
            Handshake::Resumed => "resumed",
            Handshake::Unknown => "unknown",
            Handshake::Failed => "failed",
            Handshake::Retried => "retried",
        }
    }
}
