//! What the admin address shows about sources.

/// What `/status` shows about a source.
pub struct Status {
    /// Its configuration word, and what it asks.
    pub text: String,
    /// The upstreams it asks.
    pub upstreams: Vec<UpstreamStatus>,
}

/// What `/status` shows about an upstream.
pub struct UpstreamStatus {
    /// Its address, and the protocol used.
    pub address: String,
    /// The address alone, as metrics label it.
    pub to: String,
    /// Whether it is preferred to others.
    pub healthy: bool,
    /// Why its last probe failed; `None` if it was answered.
    pub fault: Option<String>,
    /// Whether it leads back to this proxy.
    pub looping: bool,
    /// How many queries it did not answer in time.
    pub unanswered: u64,
}
