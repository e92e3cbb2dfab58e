//! The command line of `cargo xtask release`.

use std::path::{Path, PathBuf};

use crate::build::target;
use crate::commands::Failure;
use crate::processor::{self, Processor};

/// The options of a release.
#[derive(Debug)]
pub struct Options {
    /// The folder for the artifacts.
    pub out: PathBuf,
    /// The public URL of the source.
    pub repository: Option<String>,
    /// The registry of image and chart, with the path before their names.
    pub registry: Option<String>,
    /// The URI that identifies the builder.
    pub builder: Option<String>,
    /// The private key to sign with, in PEM.
    pub key: Option<PathBuf>,
    /// Whether image and chart are pushed.
    pub push: bool,
    /// Whether everything is built again and compared.
    pub twice: bool,
    /// The processors to build for.
    pub processors: Vec<&'static Processor>,
}

impl Options {
    /// Parses the command line.
    ///
    /// # Errors
    /// If a flag is unknown, lacks its value or lacks another flag that it needs.
    pub fn read(args: &[String]) -> Result<Options, Failure> {
        let mut options = Options {
            out: target().join("artifacts"),
            repository: None,
            registry: None,
            builder: None,
            key: None,
            push: false,
            twice: false,
            processors: Vec::new(),
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .cloned()
                    .ok_or_else(|| format!("{word} needs a value"))
            };
            match word.as_str() {
                "--out" => options.out = absolute(&value()?)?,
                "--repository" => options.repository = Some(value()?.trim_end_matches('/').to_owned()),
                "--registry" => options.registry = Some(value()?.trim_end_matches('/').to_owned()),
                "--builder" => options.builder = Some(value()?),
                "--key" => options.key = Some(absolute(&value()?)?),
                "--arch" => options.processors.push(processor::named(&value()?)?),
                "--push" => options.push = true,
                "--twice" => options.twice = true,
                other => {
                    return Err(format!(
                        "unknown flag `{other}`: packaging/README.md lists those of `cargo xtask release`"
                    ));
                }
            }
        }
        options.check()?;
        if options.processors.is_empty() {
            options.processors.extend(&processor::ALL);
        }
        Ok(options)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.push && self.registry.is_none() {
            return Err("--push needs --registry, the registry to push to".to_owned());
        }
        if self.builder.is_some() && self.repository.is_none() {
            return Err("--builder needs --repository: the provenance also names the source".to_owned());
        }
        match &self.repository {
            Some(url) if !url.starts_with("https://") => {
                Err(format!("--repository {url}: the URL must begin with https://"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the image's name, if a registry is given.
    pub fn image(&self) -> Option<String> {
        self.registry
            .as_ref()
            .map(|registry| format!("{registry}/dnsweir"))
    }

    /// Returns the flags for a run that builds the same artifacts, but neither signs nor pushes them.
    pub fn rebuild_flags(&self) -> Vec<String> {
        let given = [
            ("--repository", &self.repository),
            ("--registry", &self.registry),
            ("--builder", &self.builder),
        ];
        let given = given
            .into_iter()
            .filter_map(|(word, value)| Some((word, value.clone()?)));
        let archs = self.processors.iter().map(|one| ("--arch", one.name.to_owned()));
        given
            .chain(archs)
            .flat_map(|(word, value)| [word.to_owned(), value])
            .collect()
    }
}

/// Makes a path absolute, so that it is valid in any working folder.
fn absolute(path: &str) -> Result<PathBuf, Failure> {
    std::path::absolute(Path::new(path)).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, Failure> {
        Options::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn without_flags_nothing_is_published() {
        let options = read("").unwrap();
        assert!(!options.push && options.registry.is_none() && options.key.is_none());
        let names: Vec<&str> = options.processors.iter().map(|one| one.name).collect();
        assert_eq!(names, ["amd64", "arm64"]);
    }

    #[test]
    fn a_second_run_builds_the_same_and_publishes_nothing() {
        let line = "--repository https://git.example/a/ --registry r.example/a --builder https://b.example/1 \
                    --key k --push --twice --arch amd64";
        let words = read(line).unwrap().rebuild_flags().join(" ");
        assert_eq!(
            words,
            "--repository https://git.example/a --registry r.example/a --builder https://b.example/1 --arch amd64"
        );
        assert_eq!(read(&words).unwrap().rebuild_flags().join(" "), words);
    }

    #[test]
    fn mistakes_are_reported() {
        for (line, expected) in [
            ("--push", "--registry"),
            ("--builder https://b.example/1", "--repository"),
            ("--repository git.example", "https://"),
            ("--arch riscv64", "amd64 or arm64"),
            ("--key", "needs a value"),
            ("--sign", "unknown flag"),
        ] {
            let wrong = read(line).unwrap_err();
            assert!(wrong.contains(expected), "{line}: {wrong}");
        }
    }
}
