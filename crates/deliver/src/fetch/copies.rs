//! Last good copies on disk, served while a server is unreachable.
//!
//! Each location has two files: the contents, and a description. The contents are written first, and the
//! description has their digest, so after any interruption a copy is either complete or ignored.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::{Data, Location, hex};
use crate::private_folder::{PrivateFolder, Unfinished};

/// The largest description, in bytes.
const DESCRIPTION: u64 = 64 << 10;

/// The most bytes of all copies. The least recently used make room, even if no longer configured.
const KEPT: u64 = 1 << 30;

/// A folder of copies.
#[derive(Debug, Clone)]
pub struct Copies(PrivateFolder);

/// The description of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    /// The URL, for people who look into the folder.
    pub url: String,
    /// The SHA-256 of the contents.
    pub sha256: String,
    /// The version as named by the server (RFC 9110 section 8.8.3).
    pub etag: Option<String>,
    /// The time of the last change as named by the server (RFC 9110 section 8.8.2).
    pub last_modified: Option<String>,
}

impl Copies {
    /// Keeps copies in `folder`.
    pub fn new(folder: PrivateFolder) -> Copies {
        Copies(folder)
    }

    /// Returns the description of the last good copy, if there is one.
    pub(super) fn describe(&self, location: &Location) -> Option<Description> {
        let mut text = String::new();
        let description = self.0.file(&described(&name(location))).ok()?;
        description.take(DESCRIPTION).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Reads the copy, if it matches the description and is within the location's current size limit.
    pub(super) fn read(&self, location: &Location, described: &Description) -> Option<Arc<Data>> {
        let name = name(location);
        let data = Data::read(self.0.file(&name).ok()?, location.access.size as u64).ok()?;
        for name in [&name, &self::described(&name)] {
            // If touching fails, it is evicted first, but can still be used.
            let _ = self.0.touch(name);
        }
        (data.digest() == described.sha256).then_some(data)
    }

    /// Creates the file for a new copy.
    pub(super) fn begin(&self, location: &Location) -> io::Result<Unfinished> {
        self.0.begin(&name(location))
    }

    /// Replaces the copy.
    pub(super) fn keep(
        &self,
        location: &Location,
        copy: Unfinished,
        description: &Description,
    ) -> io::Result<()> {
        let octets = copy.file.metadata()?.len();
        // The file being written counts as well, until it is in place.
        let being_written = |one: &str| one.starts_with(&name(location));
        if !self.0.make_room(&name(location), 0, KEPT, being_written)? {
            tracing::warn!(url = %location.url, octets, "there is no room to keep a copy of it");
            return Ok(());
        }
        copy.file.sync_all()?;
        copy.keep()?;
        let mut beside = self.0.begin(&described(&name(location)))?;
        serde_json::to_writer(&mut beside.file, description)?;
        beside.file.write_all(b"\n")?;
        beside.keep()
    }
}

/// Creates a file in memory for contents of which no copy is kept.
pub(super) fn in_memory() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(File::from(rustix::fs::memfd_create("dnsweir-fetch", flags)?))
}

/// Returns the file name of a location's copy, hashed since a URL may be long and contain anything.
fn name(location: &Location) -> String {
    hex::digits(&Sha256::digest(location.url.as_str()))
}

fn described(name: &str) -> String {
    format!("{name}.json")
}
