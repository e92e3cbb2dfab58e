//! Contents of files in memory that cannot change: one copy of each per process.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, LazyLock, Weak};

use dnsweir_wire::hex;
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sha2::{Digest as _, Sha256};

/// Bytes per read.
const CHUNK: usize = 256 << 10;

/// A SHA-256.
type Digest = [u8; 32];

/// Loaded data by digest, so that a reload that names the same data makes no copy.
static KNOWN: LazyLock<Mutex<HashMap<Digest, Weak<Data>>>> = LazyLock::new(Mutex::default);

/// The contents of a file when it was read.
pub struct Data {
    digest: Digest,
    mapping: Mapping,
}

impl Data {
    /// Reads a file of at most `largest` bytes.
    ///
    /// # Errors
    /// When the file is larger or cannot be read.
    pub fn read(mut file: File, largest: u64) -> io::Result<Arc<Data>> {
        // Reading it twice costs less than a second copy in memory.
        let digest = each_chunk(&mut file, largest, |_| Ok(()))?;
        if let Some(known) = KNOWN.lock().get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        file.rewind()?;
        Data::copy(&mut file, largest).map(Data::shared)
    }

    /// Copies the current contents of a file.
    fn copy(file: &mut File, largest: u64) -> io::Result<Data> {
        let mut memory = unsealed()?;
        let digest = each_chunk(file, largest, |chunk| memory.write_all(chunk))?;
        Data::sealed(&memory, digest)
    }

    /// Seals the memory: from now on nothing can change it.
    fn sealed(memory: &File, digest: Digest) -> io::Result<Data> {
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(memory, seals)?;
        let mapping = Mapping::of_sealed(memory)?;
        Ok(Data { digest, mapping })
    }

    /// Returns the known data with the same digest, or registers this.
    fn shared(self) -> Arc<Data> {
        let mut known = KNOWN.lock();
        known.retain(|_, data| data.strong_count() > 0);
        if let Some(same) = known.get(&self.digest).and_then(Weak::upgrade) {
            return same;
        }
        let digest = self.digest;
        let shared = Arc::new(self);
        known.insert(digest, Arc::downgrade(&shared));
        shared
    }

    /// The SHA-256 in hexadecimal.
    pub fn digest(&self) -> String {
        hex::digits(&self.digest)
    }
}

/// Builds data piece by piece.
pub struct DataWriter {
    memory: File,
    digest: Sha256,
}

impl DataWriter {
    /// Makes an empty writer.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new() -> io::Result<DataWriter> {
        Ok(DataWriter {
            memory: unsealed()?,
            digest: Sha256::new(),
        })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        self.digest.update(octets);
        self.memory.write_all(octets)
    }

    /// Seals and returns the data.
    ///
    /// # Errors
    /// When the data cannot be mapped.
    pub fn finish(self) -> io::Result<Arc<Data>> {
        Data::sealed(&self.memory, self.digest.finalize().into()).map(Data::shared)
    }
}

/// Creates a memory file that can be sealed.
fn unsealed() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(File::from(memfd_create("dnsweir-data", flags)?))
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.mapping.octets()
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        self.digest == other.digest
    }
}

/// Fingerprints of filters hash this output, so the digest stands for the contents.
impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({})", self.digest())
    }
}

/// Reads a file from its current position to its end, and returns its digest.
fn each_chunk(
    file: &mut File,
    largest: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Digest> {
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    let mut octets = 0;
    loop {
        let count = match file.read(&mut chunk) {
            Ok(0) => return Ok(digest.finalize().into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        octets += count as u64;
        if octets > largest {
            return Err(io::Error::other("it grows while it is being read"));
        }
        digest.update(&chunk[..count]);
        take(&chunk[..count])?;
    }
}

/// Memory whose contents cannot change. `None` if empty: the kernel refuses to map 0 bytes.
struct Mapping(Option<(NonNull<u8>, usize)>);

// SAFETY: the bytes are never written, and every thread sees them at the same address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a whole sealed memory file. Every page is populated now, so that no query waits for a page fault.
    fn of_sealed(memory: &File) -> io::Result<Mapping> {
        let length = usize::try_from(memory.metadata()?.len()).map_err(io::Error::other)?;
        if length == 0 {
            return Ok(Mapping(None));
        }
        // SAFETY: no address is requested, so that no mapping is replaced. The mapping shows the file, whose
        // seals forbid writing, shrinking and growing: the bytes never change and the pages never go away.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::PRIVATE | MapFlags::POPULATE,
                memory,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped to nowhere"))?;
        Ok(Mapping(Some((start, length))))
    }

    fn octets(&self) -> &[u8] {
        match self.0 {
            // SAFETY: that many bytes are mapped there until `self` is dropped, and nothing can change them.
            Some((start, length)) => unsafe { slice::from_raw_parts(start.as_ptr(), length) },
            None => &[],
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some((start, length)) = self.0 {
            // SAFETY: this is the address and length of the mapping, and no borrow of it is left. Unmapping
            // an existing mapping cannot fail.
            let _ = unsafe { munmap(start.as_ptr().cast(), length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn read(path: &Path, largest: u64) -> io::Result<Arc<Data>> {
        Data::read(File::open(path)?, largest)
    }

    #[test]
    fn what_is_the_same_is_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let octets: Vec<u8> = (0..3 * CHUNK + 1).map(|index| (index % 251) as u8).collect();
        fs::write(&one, &octets).unwrap();
        fs::write(&other, &octets).unwrap();
        let first = read(&one, u64::MAX).unwrap();
        assert_eq!(**first, octets);
        assert!(Arc::ptr_eq(&first, &read(&other, u64::MAX).unwrap()));
        // Data stays as it was read, whatever happens to the file.
        fs::write(&one, "b").unwrap();
        let second = read(&one, u64::MAX).unwrap();
        assert_eq!(&second[..], b"b");
        assert_eq!(**first, octets);
        assert_ne!(first, second);
        // Unused data is not kept.
        let digest = second.digest;
        drop(second);
        assert!(
            KNOWN
                .lock()
                .get(&digest)
                .is_none_or(|data| data.strong_count() == 0)
        );
    }

    #[test]
    fn an_empty_file_is_data_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        fs::write(&path, "").unwrap();
        assert_eq!(&read(&path, 0).unwrap()[..], b"");
        fs::write(&path, "a").unwrap();
        let error = read(&path, 0).unwrap_err();
        assert_eq!(error.to_string(), "it grows while it is being read");
    }
}
