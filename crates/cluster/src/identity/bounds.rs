//! Memory bounds; `docs/limits.md` has the sum.

/// The most pods that are kept. A kubelet runs a few hundred.
pub(super) const PODS: usize = 4096;

/// The most namespaces that are followed, each by its own watch.
pub(super) const NAMESPACES: usize = 256;

/// The most bytes of an object's labels and annotations; beyond that they are left out.
pub(super) const OF_OBJECT: usize = 24 << 10;

/// Bytes beyond the configured bound: pods without labels, and the tables.
pub const FIXED_OCTETS: usize = 4 << 20;

/// Namespaces whose queries are counted by name; the others share a counter.
pub(super) const COUNTED: usize = 64;

/// Sockets to the API server, and the descriptors of the thread itself.
pub const DESCRIPTORS: usize = NAMESPACES + 16;
