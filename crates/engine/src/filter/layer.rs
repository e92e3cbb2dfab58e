//! Modules and components, told apart.

/// What a file of WebAssembly holds.
#[derive(PartialEq, Eq)]
pub(super) enum Layer {
    Module,
    Component,
}

/// What a file holds by its preamble, which is "\0asm", a version, and the layer; none: something else. A precompiled
/// file has another preamble, and running it would be running foreign machine code.
pub(super) fn layer(bytes: &[u8]) -> Option<Layer> {
    match bytes.get(..8)? {
        [0, b'a', b's', b'm', _, _, 0, 0] => Some(Layer::Module),
        [0, b'a', b's', b'm', _, _, 1, 0] => Some(Layer::Component),
        _ => None,
    }
}
