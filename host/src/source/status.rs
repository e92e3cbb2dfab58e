//! What the admin address shows of sources.

/// What `/status` shows of a source.
pub struct Status {
    /// Its word, and what it asks.
    pub text: String,
    /// Whom it asks.
    pub upstreams: Vec<UpstreamStatus>,
}

/// What `/status` shows of an upstream.
pub struct UpstreamStatus {
    /// Its address.
    pub address: String,
    /// Whether it is asked before others.
    pub healthy: bool,
    /// Whether it leads back to this proxy.
    pub looping: bool,
}
