//! The command line: words of the form `--name value`, and nothing else.

use std::path::PathBuf;

/// Options that were given.
pub struct Args {
    given: Vec<(String, String)>,
}

impl Args {
    /// Reads `words`, in which only the options in `known` may occur.
    pub fn read(words: impl Iterator<Item = String>, known: &[&str]) -> Result<Args, String> {
        let mut given = Vec::new();
        let mut words = words;
        while let Some(word) = words.next() {
            let name = word
                .strip_prefix("--")
                .filter(|name| known.contains(name))
                .ok_or_else(|| format!("{word:?} is not understood; known are --{}", known.join(", --")))?;
            let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
            given.push((name.to_owned(), value));
        }
        Ok(Args { given })
    }

    /// The last value of `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        let last = self.given.iter().rfind(|(given, _)| given == name);
        last.map(|(_, value)| value.as_str())
    }

    /// A path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// A value of a type that can be parsed, or `default`.
    pub fn value<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("--{name} {text}: not a value that fits")),
        }
    }

    /// The parts of a list with commas, each understood by `parse`; none if it was not given.
    pub fn list<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<Vec<T>>, String> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let parts = text.split(',').map(|part| {
            let part = part.trim();
            parse(part).ok_or_else(|| format!("--{name}: {part:?} is not known"))
        });
        parts.collect::<Result<_, _>>().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Args, String> {
        Args::read(words.iter().map(|word| (*word).to_owned()), &["rounds", "peers"])
    }

    #[test]
    fn options_are_read_and_others_refused() {
        let args = read(&["--rounds", "3", "--peers", "a, b", "--rounds", "5"]).unwrap();
        assert_eq!(args.value("rounds", 1_u32), Ok(5));
        let peers = args.list("peers", |part| Some(part.to_owned())).unwrap();
        assert_eq!(peers, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert!(args.list("peers", |_| None::<()>).is_err());
        assert!(read(&["--round", "3"]).is_err());
        assert!(read(&["--rounds"]).is_err());
        assert!(read(&["--rounds", "x"]).unwrap().value("rounds", 1_u32).is_err());
        assert_eq!(read(&[]).unwrap().text("rounds"), None);
    }
}
