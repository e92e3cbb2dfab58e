//! What is said about a release on the command line.

use std::path::{Path, PathBuf};

use crate::build::target;
use crate::commands::Failure;
use crate::processor::{self, Processor};

/// All of it.
#[derive(Debug)]
pub struct Options {
    /// The folder that everything is put into.
    pub out: PathBuf,
    /// Where others find the source, as a URL.
    pub repository: Option<String>,
    /// Where image and chart are pushed: a registry, with the path before their names.
    pub registry: Option<String>,
    /// The URI that stands for who builds.
    pub builder: Option<String>,
    /// A private key, in PEM.
    pub key: Option<PathBuf>,
    /// Whether it is pushed.
    pub push: bool,
    /// Whether it is built a second time.
    pub twice: bool,
    /// What it is for.
    pub processors: Vec<&'static Processor>,
}

impl Options {
    /// Reads the words.
    ///
    /// # Errors
    /// Those that mean nothing, and those that mean nothing without another.
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
            let mut value = || words.next().cloned().ok_or_else(|| format!("{word}: say which"));
            match word.as_str() {
                "--out" => options.out = absolute(&value()?)?,
                "--repository" => options.repository = Some(value()?.trim_end_matches('/').to_owned()),
                "--registry" => options.registry = Some(value()?.trim_end_matches('/').to_owned()),
                "--builder" => options.builder = Some(value()?),
                "--key" => options.key = Some(absolute(&value()?)?),
                "--arch" => options.processors.push(processor::named(&value()?)?),
                "--push" => options.push = true,
                "--twice" => options.twice = true,
                other => return Err(format!("`{other}` is no word of `cargo xtask release`")),
            }
        }
        options.fit()?;
        if options.processors.is_empty() {
            options.processors.extend(&processor::ALL);
        }
        Ok(options)
    }

    fn fit(&self) -> Result<(), Failure> {
        if self.push && self.registry.is_none() {
            return Err("--push: say where to, with --registry".to_owned());
        }
        if self.builder.is_some() && self.repository.is_none() {
            return Err("--builder: provenance names the source as well, with --repository".to_owned());
        }
        match &self.repository {
            Some(url) if !url.starts_with("https://") => {
                Err(format!("--repository {url}: a URL begins with https://"))
            }
            _ => Ok(()),
        }
    }

    /// The image's name, if it has a registry.
    pub fn image(&self) -> Option<String> {
        self.registry
            .as_ref()
            .map(|registry| format!("{registry}/dnsweir"))
    }

    /// The words for another run that makes the same, and neither signs nor pushes it.
    pub fn what_is_made(&self) -> Vec<String> {
        let said = [
            ("--repository", &self.repository),
            ("--registry", &self.registry),
            ("--builder", &self.builder),
        ];
        let said = said
            .into_iter()
            .filter_map(|(word, value)| Some((word, value.clone()?)));
        let archs = self.processors.iter().map(|one| ("--arch", one.name.to_owned()));
        said.chain(archs)
            .flat_map(|(word, value)| [word.to_owned(), value])
            .collect()
    }
}

/// A path that is the same in another folder.
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
    fn without_a_word_nothing_is_published() {
        let options = read("").unwrap();
        assert!(!options.push && options.registry.is_none() && options.key.is_none());
        let names: Vec<&str> = options.processors.iter().map(|one| one.name).collect();
        assert_eq!(names, ["amd64", "arm64"]);
    }

    #[test]
    fn a_second_run_makes_the_same_and_publishes_nothing() {
        let line = "--repository https://git.example/a/ --registry r.example/a --builder https://b.example/1 --key k --push --twice --arch amd64";
        let words = read(line).unwrap().what_is_made().join(" ");
        assert_eq!(
            words,
            "--repository https://git.example/a --registry r.example/a --builder https://b.example/1 --arch amd64"
        );
        assert_eq!(read(&words).unwrap().what_is_made().join(" "), words);
    }

    #[test]
    fn mistakes_are_told() {
        for (line, expected) in [
            ("--push", "--registry"),
            ("--builder https://b.example/1", "--repository"),
            ("--repository git.example", "https://"),
            ("--arch riscv64", "amd64 and arm64"),
            ("--key", "say which"),
            ("--sign", "no word"),
        ] {
            let wrong = read(line).unwrap_err();
            assert!(wrong.contains(expected), "{line}: {wrong}");
        }
    }
}
