//! `dnsweir verify`: checks the signature and the checksums of a release.

use std::fs;
use std::path::Path;

use super::Stop;
use super::artifacts::text_of;
use crate::registry::{self, key};

/// The suffix of the file with the checksums' signature.
const SIGNATURE: &str = ".sig";

/// Checks a list of checksums (in sha256sum's format) against the signature beside it, and the files beside
/// it against the list. Files may be missing.
///
/// # Errors
/// When the signature is not by this key, or a file does not match its checksum.
pub fn verify(sums: &Path, key: &Path) -> Result<String, Stop> {
    let shown = sums.display();
    let text = text_of(sums)?;
    let mut signature = sums.as_os_str().to_owned();
    signature.push(SIGNATURE);
    let signature = text_of(Path::new(&signature))?;
    let signed = key::has_signed(&text_of(key)?, text.as_bytes(), &signature);
    match signed.map_err(|wrong| Stop::Refused(format!("{}: {wrong}", key.display())))? {
        true => {}
        false => {
            let problem = format!(
                "{shown}: the signature is wrong, or by another key than {}",
                key.display()
            );
            return Err(Stop::Refused(problem));
        }
    }
    let mut said = format!("{shown} is signed with {}\n", key.display());
    let mut wrong = Vec::new();
    for line in text.lines() {
        let Some((digest, name)) = line.split_once("  ").filter(|(_, name)| !name.contains('/')) else {
            return Err(Stop::Refused(format!(
                "{shown}: {line:?} is not a checksum of a file in the same folder"
            )));
        };
        match fs::read(sums.with_file_name(name)) {
            Ok(content) if registry::digest(&content) == format!("sha256:{digest}") => {
                said += &format!("{name}: as it was signed\n");
            }
            Ok(_) => wrong.push(format!("{name}: not what was signed")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                said += &format!("{name}: not here\n")
            }
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    match wrong.is_empty() {
        true => Ok(said),
        false => Err(Stop::Refused(wrong.join("\n"))),
    }
}
