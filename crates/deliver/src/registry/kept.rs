//! Artifacts kept on disk, so that a node can start while the registry is unreachable.
//!
//! There is a file per artifact, named by its digest, and one per tag, which names the artifact that last
//! answered queries under it. Both are checked against their digests when read, and signatures are verified
//! again.

use std::cmp::Reverse;
use std::io;

use sha2::{Digest as _, Sha256};

use super::artifact::Artifact;
use crate::config::{Reference, hex, spell_size};
use crate::private_folder::PrivateFolder;

/// The subfolder for modules.
const FOLDER: &str = "modules";

const ARTIFACT: &str = ".artifact";
const TAG: &str = ".tag";

/// How many tags of no accepted configuration stay, those used last: for one that comes back, and for other
/// processes with this folder.
const OTHER_TAGS: usize = 64;

/// The artifacts on disk; without a folder, nothing is kept.
#[derive(Debug, Clone, Default)]
pub struct Kept(Option<PrivateFolder>);

impl Kept {
    /// Keeps artifacts in `folder`.
    pub fn new(folder: Option<PrivateFolder>) -> Kept {
        Kept(folder)
    }

    /// Returns the artifact that `reference` names, if it is kept.
    pub fn find(&self, reference: &Reference) -> Option<Artifact> {
        let folder = self.0.as_ref()?.folder(FOLDER).ok()?;
        let digest = match &reference.digest {
            Some(digest) => digest.clone(),
            None => {
                let text = String::from_utf8(folder.read(&tag_file(reference)).ok()?).ok()?;
                let (name, digest) = text.trim_end().rsplit_once(' ')?;
                (name == reference.to_string()).then(|| digest.to_owned())?
            }
        };
        let file = folder.read(&artifact_file(&digest)).ok()?;
        let artifact = Artifact::read(file.into()).ok()?;
        (artifact.digest == digest).then_some(artifact)
    }

    /// Keeps an artifact. Artifacts not in `used` are evicted, oldest first, to stay within `limit` bytes in
    /// total. Tags stay: they have next to no bytes, and without its tag an artifact is not found.
    ///
    /// # Errors
    /// When it does not fit, or on an I/O error.
    pub fn store(&self, artifact: &Artifact, limit: usize, used: &[String]) -> io::Result<()> {
        let Some(folder) = &self.0 else { return Ok(()) };
        let folder = folder.folder(FOLDER)?;
        let (parts, name) = (artifact.write(), artifact_file(&artifact.digest));
        let octets: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let used: Vec<String> = used.iter().map(|digest| artifact_file(digest)).collect();
        if !folder.make_room(&name, octets, limit as u64, |one| {
            one.ends_with(TAG) || used.iter().any(|used| used == one)
        })? {
            let limit = spell_size(limit);
            return Err(io::Error::other(format!(
                "with it and those that are in use there would be more than {limit} (`keep`)"
            )));
        }
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        folder.store(&name, &parts)
    }

    /// Makes the tag of `reference` stand for the artifact with this `digest`.
    ///
    /// # Errors
    /// On an I/O error.
    pub fn point(&self, reference: &Reference, digest: &str) -> io::Result<()> {
        let Some(folder) = &self.0 else { return Ok(()) };
        let (folder, name) = (folder.folder(FOLDER)?, tag_file(reference));
        let text = format!("{reference} {digest}\n");
        if folder.read(&name).is_ok_and(|known| known == text.as_bytes()) {
            return folder.touch(&name);
        }
        folder.store(&name, &[text.as_bytes()])
    }

    /// Removes the tags of other references than these, except those used last.
    ///
    /// # Errors
    /// On an I/O error.
    pub(super) fn forget_others(&self, references: &[&Reference]) -> io::Result<()> {
        let Some(folder) = &self.0 else { return Ok(()) };
        let folder = folder.folder(FOLDER)?;
        let named: Vec<String> = references.iter().map(|reference| tag_file(reference)).collect();
        let mut others = folder.entries()?;
        others.retain(|entry| entry.name.ends_with(TAG) && !named.contains(&entry.name));
        others.sort_by_key(|entry| Reverse(entry.written));
        let mut forgotten = others.iter().skip(OTHER_TAGS);
        forgotten.try_for_each(|entry| match folder.remove(&entry.name) {
            // Another process has just done it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
    }
}

fn artifact_file(digest: &str) -> String {
    format!("{}{ARTIFACT}", digest.trim_start_matches("sha256:"))
}

fn tag_file(reference: &Reference) -> String {
    format!("{}{TAG}", hex::digits(&Sha256::digest(reference.to_string())))
}

#[cfg(test)]
mod tests {
    use super::super::artifact::tests::artifact;
    use super::*;

    fn reference(text: &str) -> Reference {
        Reference::parse(text).unwrap().unwrap()
    }

    #[test]
    fn artifacts_are_found_by_digest_and_by_the_tag_that_stands_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(PrivateFolder::open(&folder.path().join("own")).unwrap()));
        let (one, two) = (artifact(b"one"), artifact(b"two"));
        let tag = reference("oci://r.example/a:1");
        let (by_one, by_two) = (tag.with_digest(&one.digest), tag.with_digest(&two.digest));
        assert!(kept.find(&tag).is_none() && kept.find(&by_one).is_none());
        for artifact in [&one, &two] {
            kept.store(artifact, 1 << 20, &[]).unwrap();
        }
        assert!(kept.find(&tag).is_none(), "it never answered queries");
        kept.point(&tag, &one.digest).unwrap();
        assert_eq!(kept.find(&tag).unwrap().module, "one");
        assert_eq!(kept.find(&by_two).unwrap().module, "two");
        assert!(kept.find(&reference("oci://r.example/b:1")).is_none());
        kept.point(&tag, &two.digest).unwrap();
        assert_eq!(kept.find(&tag).unwrap().module, "two");
        // A file replaced by another artifact is ignored.
        let own = folder.path().join("own/modules");
        std::fs::copy(
            own.join(artifact_file(&one.digest)),
            own.join(artifact_file(&two.digest)),
        )
        .unwrap();
        assert!(kept.find(&by_two).is_none());
    }

    #[test]
    fn octets_are_bounded_and_those_in_use_stay() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(PrivateFolder::open(&folder.path().join("own")).unwrap()));
        let (one, two, three) = (artifact(b"one"), artifact(b"two"), artifact(b"six"));
        let octets: usize = one.write().iter().map(bytes::Bytes::len).sum();
        let find = |artifact: &Artifact| {
            kept.find(&reference("oci://r.example/a:1").with_digest(&artifact.digest))
                .is_some()
        };
        let limit = 2 * octets;
        kept.store(&one, limit, &[]).unwrap();
        kept.store(&two, limit, &[]).unwrap();
        kept.store(&three, limit, std::slice::from_ref(&one.digest))
            .unwrap();
        assert_eq!([&one, &two, &three].map(find), [true, false, true]);
        let wrong = kept
            .store(&two, limit, &[one.digest.clone(), three.digest.clone()])
            .unwrap_err();
        assert!(wrong.to_string().contains("`keep`"), "{wrong}");
        assert_eq!([&one, &two, &three].map(find), [true, false, true]);
        assert!(kept.store(&one, octets - 1, &[]).is_err());
    }

    /// A tag may be older than everything else, since it is written only when it moves.
    #[test]
    fn tags_stay_whatever_is_evicted() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(PrivateFolder::open(&folder.path().join("own")).unwrap()));
        let (one, two, three) = (artifact(b"one"), artifact(b"two"), artifact(b"six"));
        let octets: usize = one.write().iter().map(bytes::Bytes::len).sum();
        let tag = reference("oci://r.example/a:1");
        kept.point(&tag, &one.digest).unwrap();
        let used = std::slice::from_ref(&one.digest);
        // There is room for the tag and two artifacts.
        let limit = 5 * octets / 2;
        for artifact in [&one, &two, &three] {
            kept.store(artifact, limit, used).unwrap();
        }
        assert_eq!(kept.find(&tag).unwrap().module, "one");
        assert!(kept.store(&two, octets, used).is_err());
        assert_eq!(kept.find(&tag).unwrap().module, "one");
    }

    #[test]
    fn tags_of_other_configurations_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(PrivateFolder::open(&folder.path().join("own")).unwrap()));
        let one = artifact(b"one");
        kept.store(&one, 1 << 20, &[]).unwrap();
        let tags: Vec<Reference> = (0..OTHER_TAGS + 8)
            .map(|number| reference(&format!("oci://r.example/a:{number}")))
            .collect();
        for tag in &tags {
            kept.point(tag, &one.digest).unwrap();
        }
        kept.forget_others(&[&tags[0], &tags[1]]).unwrap();
        assert!(kept.find(&tags[0]).is_some() && kept.find(&tags[1]).is_some());
        let found = tags.iter().filter(|tag| kept.find(tag).is_some());
        assert_eq!(found.count(), OTHER_TAGS + 2);
    }
}
