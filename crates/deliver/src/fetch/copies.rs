//! Last good copies on disk: what is served while a server is away.
//!
//! Each location has two files, the contents and what is known of them. The contents are written first, and the digest in the
//! other file says which they have to be: whatever comes between the two, a copy is whole or there is none.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::{Data, Location, hex};
use crate::private_folder::{PrivateFolder, Unfinished};

/// Octets of the longest description.
const DESCRIPTION: u64 = 64 << 10;

/// Octets of all copies. Those of what was not used for longest make room, also where it is not configured any more.
const KEPT: u64 = 1 << 30;

/// A folder of copies.
#[derive(Debug, Clone)]
pub struct Copies(PrivateFolder);

/// What is known of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    /// Where it is from, for whoever looks into the folder.
    pub url: String,
    /// Of its contents.
    pub sha256: String,
    /// What the server calls this version (RFC 9110 section 8.8.3).
    pub etag: Option<String>,
    /// When the server says that it was changed last (RFC 9110 section 8.8.2).
    pub last_modified: Option<String>,
}

impl Copies {
    /// Keeps them in `folder`.
    pub fn new(folder: PrivateFolder) -> Copies {
        Copies(folder)
    }

    /// What is known of the last good copy, if there is one.
    pub(super) fn describe(&self, location: &Location) -> Option<Description> {
        let mut text = String::new();
        let description = self.0.file(&described(&name(location))).ok()?;
        description.take(DESCRIPTION).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The copy itself, as long as it is the one described, and not larger than what the location allows now.
    pub(super) fn read(&self, location: &Location, described: &Description) -> Option<Arc<Data>> {
        let name = name(location);
        let data = Data::read(self.0.file(&name).ok()?, location.size as u64).ok()?;
        for name in [&name, &self::described(&name)] {
            // One that cannot be touched is the first to go, and can still be used.
            let _ = self.0.touch(name);
        }
        (data.digest() == described.sha256).then_some(data)
    }

    /// Room for a new copy.
    pub(super) fn begin(&self, location: &Location) -> io::Result<Unfinished> {
        self.0.begin(&name(location))
    }

    /// Puts a new copy in the place of the one before.
    pub(super) fn keep(
        &self,
        location: &Location,
        copy: Unfinished,
        description: &Description,
    ) -> io::Result<()> {
        let octets = copy.file.metadata()?.len();
        // What is being written counts as well, until it is in its place.
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

/// Where a copy goes that is not kept: a file in memory.
pub(super) fn in_memory() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(File::from(rustix::fs::memfd_create("dnsweir-fetch", flags)?))
}

/// What the copy of a location is called: its URL may be as long and odd as it likes.
fn name(location: &Location) -> String {
    hex::digits(&Sha256::digest(location.url.as_str()))
}

fn described(name: &str) -> String {
    format!("{name}.json")
}
