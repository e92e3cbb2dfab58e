//! Compiled filters kept on disk, so that a start need not compile what was compiled before.
//!
//! Compiled code is machine code: loading a forged file means running it. It is therefore read only from a [folder that
//! no other user can write to or replace](crate::private_folder), and never from where modules come from. A
//! file's name is a digest of the module, the compiler's version and its settings. It begins with a code over name and content, by a key
//! that is kept beside it: neither a half-written file nor one that somebody has put there without reading the key is taken. A child that
//! compiles [reads no path](crate::confine).

use std::hash::{Hash, Hasher};
use std::io;

use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest, Sha256};
use wasmtime::component::Component as Compiled;

use super::compile;
use super::plain;
use crate::private_folder::PrivateFolder;

/// Octets of the code that a file begins with.
const TAG: usize = 32;

/// The file with the key, and its octets. Without it, everything is compiled anew.
const KEY: &str = "key";
const KEY_OCTETS: usize = 32;

/// Octets of all that is kept. Each version of a module is compiled to a file of its own; those that were not used for longest
/// make room.
const KEPT: u64 = 256 << 20;

/// A folder of compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledCache {
    folder: PrivateFolder,
    key: hmac::Key,
}

impl CompiledCache {
    /// Keeps them in `folder`, with the key that is there or a new one.
    ///
    /// # Errors
    ///
    /// When there is no key, and none can be kept.
    pub fn new(folder: PrivateFolder) -> io::Result<CompiledCache> {
        let read = || folder.read(KEY).ok().filter(|key| key.len() == KEY_OCTETS);
        let key = match read() {
            Some(key) => key,
            None => {
                let mut new = [0; KEY_OCTETS];
                let random = SystemRandom::new().fill(&mut new);
                random.map_err(|_| io::Error::other("no random numbers"))?;
                folder.store(KEY, &[&new])?;
                // Another process may have been faster, or slower.
                read().ok_or_else(|| io::Error::other("the key that was kept is not there"))?
            }
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Ok(CompiledCache { folder, key })
    }

    /// What a file of this name with this content begins with.
    fn tag(&self, name: &str, content: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        // Names have one length.
        context.update(name.as_bytes());
        context.update(content);
        context.sign()
    }

    /// The component that `module` was compiled to before, if it was.
    pub(super) fn load(&self, engine: &wasmtime::Engine, module: &[u8]) -> Option<Compiled> {
        let name = name(engine, module);
        let file = self.folder.read(&name).ok()?;
        let (authentic, code) = file.split_at_checked(TAG)?;
        // No secret: who could measure how long it takes reads the file.
        if *authentic != *self.tag(&name, code).as_ref() {
            return None;
        }
        // A file that cannot be touched is the first to go, and can still be used.
        let _ = self.folder.touch(&name);
        // SAFETY: this process, or another one of this user and this version, wrote the file: nobody else can
        // write to it, to the folder that we hold, or put another one in its place, the name holds version and
        // settings of the compiler, and the code says that all of it is there and who wrote it had the key. It was read into memory that nobody
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
        let octets = (TAG + code.len()) as u64;
        if !self.folder.make_room(&name, octets, KEPT, |other| other == KEY)? {
            let problem = format!("its {octets} bytes are more than the {KEPT} that are kept in all");
            return Err(io::Error::other(problem));
        }
        self.folder.store(&name, &[self.tag(&name, code).as_ref(), code])
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
    file_of(&key.0.finalize())
}

/// What a file of code is called that has this digest.
pub(super) fn file_of(digest: &[u8]) -> String {
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
