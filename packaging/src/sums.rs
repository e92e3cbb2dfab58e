//! The checksums of a release, in the format of `sha256sum --check` and `dnsweir verify`.

use std::path::Path;

use crate::{Failure, layout, write};

/// The file with the checksums. Files whose names start with this, such as its signature, are not listed.
pub const FILE: &str = "SHA256SUMS";

/// Writes the checksums of all files in a folder, without subfolders, and returns the path.
pub fn pack(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut text = String::new();
    for (name, digest) in files(folder)? {
        text += &format!("{digest}  {name}\n");
    }
    let file = folder.join(FILE);
    write(&file, text)?;
    Ok(vec![file.display().to_string()])
}

/// Returns the names of the files in a folder, in order, with their hexadecimal digests.
///
/// # Errors
/// When one cannot be read.
pub fn files(folder: &Path) -> Result<Vec<(String, String)>, Failure> {
    let files = crate::files(folder)?.into_iter();
    let others = files.filter(|(name, _)| !name.starts_with(FILE));
    others
        .map(|(name, path)| Ok((name, layout::digits(&crate::read(&path)?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A program that is not ours reads them.
    #[test]
    fn sha256sum_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.deb", "a.tar.gz", "SHA256SUMS.sig", "oci/index.json"] {
            write(&folder.path().join(name), name).unwrap();
        }
        pack(folder.path()).unwrap();
        pack(folder.path()).unwrap();
        let sums = fs::read_to_string(folder.path().join(FILE)).unwrap();
        let names: Vec<&str> = sums.lines().filter_map(|line| line.split("  ").nth(1)).collect();
        assert_eq!(names, ["a.tar.gz", "b.deb"]);
        let mut check = std::process::Command::new("sha256sum");
        check
            .args(["--check", "--strict", FILE])
            .current_dir(folder.path());
        assert_eq!(crate::output(&mut check).unwrap(), "a.tar.gz: OK\nb.deb: OK\n");
    }
}
