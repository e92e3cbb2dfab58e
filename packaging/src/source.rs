//! The version and commit being packaged.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, output};

/// The source tree that the program was built from.
pub struct Source {
    /// Its root folder.
    pub root: PathBuf,
    /// The version in `Cargo.toml`.
    pub version: &'static str,
    /// The commit, in hexadecimal; `None`: the tree is not a git repository.
    pub commit: Option<String>,
    /// Seconds since 1970, the time of every packaged file, so that packaging is reproducible.
    pub time: u64,
    /// The public URL of the source, if given.
    pub repository: Option<String>,
}

impl Source {
    /// Reads them from git; `SOURCE_DATE_EPOCH` overrides the time.
    pub fn read(repository: Option<String>) -> Result<Source, Failure> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.parent().unwrap_or(here).to_owned();
        let git = |args: &[&str]| {
            let said = output(Command::new("git").arg("-C").arg(&root).args(args)).ok()?;
            Some(said.trim().to_owned())
        };
        let commit = git(&["rev-parse", "HEAD"]);
        let written = std::env::var("SOURCE_DATE_EPOCH")
            .ok()
            .or_else(|| git(&["log", "-1", "--format=%ct"]));
        let Some(written) = written else {
            return Err(
                "there is no time that the files could have: this is not a git repository; set SOURCE_DATE_EPOCH".into(),
            );
        };
        let time = written
            .parse()
            .map_err(|error| format!("SOURCE_DATE_EPOCH {written:?}: {error}"))?;
        Ok(Source {
            root,
            version: env!("CARGO_PKG_VERSION"),
            commit,
            time,
            repository,
        })
    }

    /// The time as in RFC 3339.
    pub fn date(&self) -> Result<String, Failure> {
        let time = format!("@{}", self.time);
        let date = output(Command::new("date").args(["-u", "-d", &time, "+%Y-%m-%dT%H:%M:%SZ"]))?;
        Ok(date.trim().to_owned())
    }
}
