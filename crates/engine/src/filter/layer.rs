//! Distinguishes modules from components.

/// The kind of a WebAssembly file.
#[derive(PartialEq, Eq)]
pub(super) enum Layer {
    Module,
    Component,
}

/// The kind of a file by its preamble: "\0asm", a version, and the layer; none: something else. A precompiled
/// file has another preamble, and running it would mean running foreign machine code.
pub(super) fn layer(bytes: &[u8]) -> Option<Layer> {
    match bytes.get(..8)? {
        [0, b'a', b's', b'm', _, _, 0, 0] => Some(Layer::Module),
        [0, b'a', b's', b'm', _, _, 1, 0] => Some(Layer::Component),
        _ => None,
    }
}
