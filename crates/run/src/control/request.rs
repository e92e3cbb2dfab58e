//! Requests over the control socket.

use std::fmt;

use tracing::level_filters::LevelFilter;

use crate::dns::name::Name;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Health of the process that serves the socket; like `/health`, but never answered by another process.
    Health,
    /// Dump the whole cache.
    Dump,
    /// Drop the cached answers for a name, and if `below`, for all names below it.
    Flush {
        /// The name.
        name: Box<Name>,
        /// Whether names below it are included.
        below: bool,
    },
    /// Set the log level.
    LogLevel(LevelFilter),
}

impl Request {
    /// Creates a request to flush a name, given as text.
    ///
    /// # Errors
    /// When it is not a domain name.
    pub fn flush(name: &str, below: bool) -> Result<Request, String> {
        let wrong = |_| format!("{name} is not a domain name");
        let name = Box::new(Name::parse(name).map_err(wrong)?);
        Ok(Request::Flush { name, below })
    }

    /// Parses what [`Display`](fmt::Display) wrote.
    ///
    /// # Errors
    /// As text.
    pub fn parse(line: &str) -> Result<Request, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["health"] => Ok(Request::Health),
            ["cache", "dump"] => Ok(Request::Dump),
            ["cache", "flush", name] => Request::flush(name, false),
            ["cache", "flush-below", name] => Request::flush(name, true),
            ["log-level", level] => level
                .parse()
                .map(Request::LogLevel)
                .map_err(|_| format!("{level} is not a log level")),
            _ => Err("unknown request: is this another version of dnsweir?".into()),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Health => f.write_str("health"),
            Request::Dump => f.write_str("cache dump"),
            Request::Flush { name, below: false } => write!(f, "cache flush {name}"),
            Request::Flush { name, below: true } => write!(f, "cache flush-below {name}"),
            Request::LogLevel(level) => write!(f, "log-level {level}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let name = Box::new(Name::parse("a\\ b.example").unwrap_or(Name::ROOT));
        for request in [
            Request::Health,
            Request::Dump,
            Request::Flush {
                name: Box::new(Name::ROOT),
                below: true,
            },
            Request::Flush { name, below: false },
            Request::LogLevel(LevelFilter::DEBUG),
        ] {
            assert_eq!(Request::parse(&request.to_string()), Ok(request));
        }
        for line in [
            "",
            "cache",
            "cache flush",
            "cache flush a..b",
            "log-level loud",
            "halt",
        ] {
            assert!(Request::parse(line).is_err(), "{line}");
        }
    }
}
