//! The runtime that the bindings call: `wit_bindgen::rt`, except for the allocation of lists.

use std::alloc::Layout;

pub use wit_bindgen::rt::*;

/// Replaces `wit_bindgen::rt::Cleanup`.
pub struct Cleanup;

impl Cleanup {
    /// Allocates zeroed memory for a list, so that equal values have equal bytes: the bindings leave the
    /// unused bytes of an empty `option` as they were, and the host converts verdicts with the same bytes
    /// only once.
    #[expect(clippy::new_ret_no_self, reason = "what the bindings call")]
    pub fn new(layout: Layout) -> (*mut u8, Option<wit_bindgen::rt::Cleanup>) {
        let (memory, cleanup) = wit_bindgen::rt::Cleanup::new(layout);
        // SAFETY: the memory has this layout and is not in use yet; for size 0, nothing is written.
        unsafe { memory.write_bytes(0, layout.size()) };
        (memory, cleanup)
    }
}
