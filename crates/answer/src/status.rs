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
    /// Its address, and how it is asked.
    pub address: String,
    /// The address alone, which metrics call it by.
    pub to: String,
    /// Whether it is asked before others.
    pub healthy: bool,
    /// Whether it leads back to this proxy.
    pub looping: bool,
    /// How many queries it has not answered in their time.
    pub unanswered: u64,
}
