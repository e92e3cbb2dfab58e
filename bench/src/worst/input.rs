//! Input other than messages: what a file or an object from outside can make the proxy do.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;

use clap::ValueEnum;
use dnsweir_config as config;
use dnsweir_engine::filter::look_at_module;
use dnsweir_serve::source::fuzzing;

/// What it is read as: the fuzz targets of the same names, without what these check of a configuration.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Reader {
    /// A filter's module, before it is compiled.
    Module,
    /// A slice of endpoints, and its service asked for.
    Slice,
    /// A zone file, and some of its names asked for.
    Zone,
    /// A configuration.
    Config,
}

/// Reads a file `count` times. Returns its size.
///
/// # Errors
///
/// If it cannot be read.
pub fn run(reader: Reader, file: &Path, count: u64) -> Result<String, Box<dyn Error>> {
    let octets = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    for _ in 0..count {
        take_in(reader, black_box(&octets));
    }
    Ok(format!("{} octets", octets.len()))
}

/// The part to count.
#[inline(never)]
fn take_in(reader: Reader, octets: &[u8]) {
    match reader {
        Reader::Module => look_at_module(octets),
        Reader::Slice => fuzzing::slice(octets),
        Reader::Zone => fuzzing::zone(octets),
        Reader::Config => {
            let text = String::from_utf8_lossy(octets);
            let read = config::parse("input", &text, Path::new("/nonexistent"), &[("log", b"")]);
            drop(black_box(read));
        }
    }
}
