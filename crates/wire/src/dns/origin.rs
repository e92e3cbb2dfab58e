//! The origin of an answer.

/// What produced a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An upstream, just now.
    Upstream,
    /// The cache, still fresh.
    Cache,
    /// The cache, past its TTL (RFC 8767).
    Stale,
    /// A filter.
    Filter,
    /// The proxy itself: an error, a special-use name (RFC 6761).
    Local,
}

impl Origin {
    /// All of them.
    pub const ALL: [Origin; 5] = [
        Origin::Upstream,
        Origin::Cache,
        Origin::Stale,
        Origin::Filter,
        Origin::Local,
    ];

    /// The origin as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Upstream => "upstream",
            Origin::Cache => "cache",
            Origin::Stale => "stale",
            Origin::Filter => "filter",
            Origin::Local => "local",
        }
    }
}
