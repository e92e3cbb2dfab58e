//! Compiled filters kept on disk, so that a restart need not compile them again.
//!
//! Loading a forged file would mean running its machine code. So files are read only from a [folder that no
//! other user can write to or replace](crate::private_folder), and never from where modules come from. A
//! file's name is a digest of the module, the compiler's version and its settings. Its content starts with an
//! HMAC of name and content, with a key kept in the same folder: a half-written file is refused, and so is
//! one planted by a process that could not read the key. A child that compiles [reads no
//! path](crate::confine).

use std::hash::{Hash, Hasher};
use std::io;

use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest, Sha256};
use wasmtime::component::Component as Compiled;

use super::compile;
use super::plain;
use crate::config::hex;
use crate::private_folder::PrivateFolder;

/// Bytes of the HMAC at the start of a file.
const TAG: usize = 32;

/// The file with the key, and its size in bytes. Without it, everything is compiled again.
const KEY: &str = "key";
const KEY_OCTETS: usize = 32;

/// Maximum bytes of all files. Each version of a module has its own file; the least recently used ones are
/// evicted.
const KEPT: u64 = 256 << 20;

/// A folder of compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledCache {
    folder: PrivateFolder,
    key: hmac::Key,
}

impl CompiledCache {
    /// Keeps files in `folder`, with the key that is there or a new one.
    ///
    /// # Errors
    ///
    /// When there is no key and a new one cannot be stored.
    pub fn new(folder: PrivateFolder) -> io::Result<CompiledCache> {
        let read = || folder.read(KEY).ok().filter(|key| key.len() == KEY_OCTETS);
        let key = match read() {
            Some(key) => key,
            None => {
                let mut new = [0; KEY_OCTETS];
                let random = SystemRandom::new().fill(&mut new);
                random.map_err(|_| io::Error::other("no random numbers"))?;
                folder.store(KEY, &[&new])?;
                // Another process may have stored its key before or after.
                read().ok_or_else(|| io::Error::other("the key that was kept is not there"))?
            }
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Ok(CompiledCache { folder, key })
    }

    /// The HMAC for a file of this name and content.
    fn tag(&self, name: &str, content: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        // All names have the same length.
        context.update(name.as_bytes());
        context.update(content);
        context.sign()
    }

    /// The compiled component of `module`, if it is stored.
    pub(super) fn load(&self, engine: &wasmtime::Engine, module: &[u8]) -> Option<Compiled> {
        let name = name(engine, module);
        let file = self.folder.read(&name).ok()?;
        let (authentic, code) = file.split_at_checked(TAG)?;
        // Need not be constant-time: whoever could measure it can read the file.
        if *authentic != *self.tag(&name, code).as_ref() {
            return None;
        }
        // If this fails, the file is evicted first, but can still be used.
        let _ = self.folder.touch(&name);
        // SAFETY: this process, or another one of this user and version, wrote the file: nobody else can
        // write to it or to the folder that we hold, or put another file in its place. The name covers the
        // compiler's version and settings, and the HMAC shows that the file is complete and that its writer
        // had the key. It was read into memory that nobody else can change.
        unsafe { compile::open(engine, code) }.ok()
    }

    /// Stores `code`, the compiled `module`.
    ///
    /// # Errors
    ///
    /// When the disk fails or there is no room. Then the next start compiles again.
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

/// The file name for a module.
fn name(engine: &wasmtime::Engine, module: &[u8]) -> String {
    let mut key = KeyDigest(Sha256::new());
    key.write(module);
    // Wasmtime's version, the compiler's settings and the processor's features.
    engine.precompile_compatibility_hash().hash(&mut key);
    key.write(env!("CARGO_PKG_VERSION").as_bytes());
    // What a plain module is combined with.
    plain::ingredients().for_each(|ingredient| key.write(ingredient));
    file_of(&key.0.finalize())
}

/// The file name for code with this digest.
pub(super) fn file_of(digest: &[u8]) -> String {
    format!("{}.cwasm", hex::digits(digest))
}

/// A `Hasher` that feeds a collision-resistant digest.
struct KeyDigest(Sha256);

impl Hasher for KeyDigest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Unused: `name` takes the digest.
        0
    }
}
