//! A guest's standard output and standard error, split into lines.

use std::sync::Arc;

use crate::filter::bindings::dnsweir::filter::host::Level;
use crate::filter::text::LOG_LINE;

/// Receives lines of standard output and standard error.
pub(in crate::filter) trait Log: Send + Sync {
    /// Takes one line, without its end.
    fn line(&self, level: Level, text: &str);
}

/// Lines that are not complete yet.
pub(super) struct Lines {
    log: Arc<dyn Log>,
    output: Vec<u8>,
    error: Vec<u8>,
}

impl Lines {
    pub(super) fn new(log: Arc<dyn Log>) -> Lines {
        Lines {
            log,
            output: Vec::new(),
            error: Vec::new(),
        }
    }

    /// Logs complete lines: standard output at level info, standard error at level warn.
    pub(super) fn write(&mut self, is_error: bool, octets: &[u8]) {
        let (level, line) = match is_error {
            true => (Level::Warn, &mut self.error),
            false => (Level::Info, &mut self.output),
        };
        for part in octets.split_inclusive(|&octet| octet == b'\n') {
            let (text, ended) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            line.extend_from_slice(text);
            // A line that is too long is split.
            if (ended || line.len() >= LOG_LINE) && !line.is_empty() {
                self.log.line(level, &String::from_utf8_lossy(line));
                line.clear();
            }
        }
    }
}
