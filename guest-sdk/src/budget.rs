//! How much a call may hand over to the host, and how the host counts it. A call that hands over more fails.
//!
//! One verdict may take all of it: what it says must not depend on what else is in the batch. If the verdicts on
//! a batch are too much together, the host calls the filter again for each query or response alone.

/// Maximum bytes of the names of a manifest or the records of a verdict: what the host accepts of a call, 1 MiB,
/// less room for what goes with them.
pub(crate) const MOST: usize = (1 << 20) - (1 << 17);

/// What the host counts for a text besides its bytes.
pub(crate) const TEXT: usize = 24;

/// What the host counts for a record besides the bytes of its name and data.
pub(crate) const RECORD: usize = 56;
