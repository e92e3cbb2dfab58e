//! Compiled filters kept on disk, so that a start need not compile what was compiled before.
//!
//! Compiled code is machine code: loading a forged file means running it. It is therefore read only from a [folder that
//! no other user can write to or replace](crate::private_folder), and never from where modules come from. A
//! file's name is a digest of the module, the compiler's version and its settings, and it contains a digest of its
//! content, so that a half-written one is found.

use std::hash::{Hash, Hasher};
use std::io;

use sha2::{Digest, Sha256};
use wasmtime::component::Component as Compiled;

use super::compile;
use super::plain;
use crate::private_folder::PrivateFolder;

/// Octets of the digest that a file begins with.
const DIGEST: usize = 32;

/// Octets of all that is kept. Each version of a module is compiled to a file of its own; those that were not used for longest
/// make room.
const KEPT: u64 = 256 << 20;

/// A folder of compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledCache(PrivateFolder);

impl CompiledCache {
    /// Keeps them in `folder`.
    pub fn new(folder: PrivateFolder) -> CompiledCache {
        CompiledCache(folder)
    }

    /// The component that `module` was compiled to before, if it was.
    pub(super) fn load(&self, engine: &wasmtime::Engine, module: &[u8]) -> Option<Compiled> {
        let name = name(engine, module);
        let file = self.0.read(&name).ok()?;
        let (digest, code) = file.split_at_checked(DIGEST)?;
        if *digest != *Sha256::digest(code) {
            return None;
        }
        // A file that cannot be touched is the first to go, and can still be used.
        let _ = self.0.touch(&name);
        // SAFETY: this process, or another one of this user and this version, wrote the file: nobody else can
        // write to it, to the folder that we hold, or put another one in its place, the name holds version and
        // settings of the compiler, and the digest says that all of it is there. It was read into memory that nobody
        // else can change.
        unsafe { compile::open(engine, code) }.ok()
    }

    /// Keeps `code`, which `module` was compiled to.
    ///
    /// # Errors
    ///
    /// When the disk says so, or there is no room for it. Nothing is lost: the next start compiles again.
    pub(super) fn store(&self, engine: &wasmtime::Engine, module: &[u8], code: &[u8]) -> io::Result<()> {
        let name = name(engine, module);
        let octets = (DIGEST + code.len()) as u64;
        if !self.0.make_room(&name, octets, KEPT, |_| false)? {
            let problem = format!("its {octets} octets are more than the {KEPT} of all that is kept");
            return Err(io::Error::other(problem));
        }
        self.0.store(&name, &[&Sha256::digest(code), code])
    }
}

/// What the file of a module is called.
fn name(engine: &wasmtime::Engine, module: &[u8]) -> String {
    let mut key = KeyDigest(Sha256::new());
    key.write(module);
    // Wasmtime's version, the compiler's settings and the processor's features.
    engine.precompile_compatibility_hash().hash(&mut key);
    key.write(env!("CARGO_PKG_VERSION").as_bytes());
    // What was put into a plain module with it.
    plain::ingredients().for_each(|ingredient| key.write(ingredient));
    let digest = key.0.finalize();
    let digits: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("{digits}.cwasm")
}

/// Collects what a `Hash` has to say for a digest that does not collide.
struct KeyDigest(Sha256);

impl Hasher for KeyDigest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Nobody asks: `name` takes the digest.
        0
    }
}
