//! What the bindings call: `wit_bindgen::rt`, but for the memory in which lists are handed over.

use std::alloc::Layout;

pub use wit_bindgen::rt::*;

/// Takes the place of that of `wit_bindgen::rt`.
pub struct Cleanup;

impl Cleanup {
    /// Memory for a list, all zero, so that equal values have equal octets: the bindings leave what an `option` without a
    /// value has room for as it was, and the host makes verdicts with the same octets once for all of them.
    #[expect(clippy::new_ret_no_self, reason = "what the bindings call")]
    pub fn new(layout: Layout) -> (*mut u8, Option<wit_bindgen::rt::Cleanup>) {
        let (memory, cleanup) = wit_bindgen::rt::Cleanup::new(layout);
        // SAFETY: the memory has this layout, is not used yet, and of size 0 nothing is written.
        unsafe { memory.write_bytes(0, layout.size()) };
        (memory, cleanup)
    }
}
