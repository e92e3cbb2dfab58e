//! `dnsweir verify`: whether the files of a release are those that somebody has signed.

use std::fs;
use std::path::Path;

use super::Stop;
use super::artifacts::text_of;
use crate::registry;

/// What the name of a list's signature ends with.
const SIGNATURE: &str = ".sig";

/// Holds a list of checksums, as sha256sum writes it, against its signature, which is beside it, and the files beside it against the list. Not
/// all of them have to be there.
///
/// # Errors
/// When the list is signed by somebody else, and when a file is not what it says.
pub fn verify(sums: &Path, key: &Path) -> Result<String, Stop> {
    let shown = sums.display();
    let text = text_of(sums)?;
    let mut signature = sums.as_os_str().to_owned();
    signature.push(SIGNATURE);
    let signature = text_of(Path::new(&signature))?;
    let signed = registry::has_signed(&text_of(key)?, text.as_bytes(), &signature);
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
