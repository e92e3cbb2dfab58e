//! How much is kept; `docs/limits.md` has the sum.

/// Pods that are kept. A kubelet runs a few hundred at most.
pub(super) const PODS: usize = 4096;

/// Namespaces that are followed, each by a watch of its own.
pub(super) const NAMESPACES: usize = 256;

/// Octets of the labels and annotations of one object, beyond which it is known without these.
pub(super) const OF_OBJECT: usize = 24 << 10;

/// Octets that are taken beside what the configuration bounds: pods without labels, and the tables.
pub const FIXED_OCTETS: usize = 4 << 20;

/// Namespaces whose queries are counted by name; those of others are counted together.
pub(super) const COUNTED: usize = 64;

/// Sockets to the API server, and what the thread itself needs.
pub const DESCRIPTORS: usize = NAMESPACES + 16;
