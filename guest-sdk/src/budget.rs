//! How much a call may hand over to the host, and how the host counts it. A call that hands over more fails.

/// Maximum bytes of the names or records of a call: what the host accepts, 1 MiB, less room for what goes
/// with them.
pub(crate) const MOST: usize = (1 << 20) - (1 << 17);

/// What the host counts for a text besides its bytes.
pub(crate) const TEXT: usize = 24;

/// What the host counts for a record besides the bytes of its name and data.
#[cfg(feature = "messages")]
pub(crate) const RECORD: usize = 56;
