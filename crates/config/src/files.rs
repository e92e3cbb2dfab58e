//! Reads the files that a configuration names: modules, test cases, and texts and data for filters.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::data::Data;
use super::error::{Diagnostic, Report, Source, Span};
use super::syntax;
use super::units::spell_size;

/// Size limit of a module, in bytes.
const LARGEST_MODULE: u64 = 64 * 1024 * 1024;

/// Size limit of a text, in bytes.
const LARGEST_TEXT: u64 = 16 * 1024 * 1024;

/// Reads files for one configuration and remembers their paths.
pub struct Files {
    /// Where relative paths start.
    folder: PathBuf,
    /// Modules read so far, or the errors: two filters with the same path get the same bytes.
    modules: HashMap<PathBuf, Result<Bytes, String>>,
    /// The files that the configuration depends on, each once.
    known: HashSet<PathBuf>,
    order: Vec<PathBuf>,
    /// For the filter whose block is being decoded: the limit of its data, and the total so far, in bytes.
    data_limit: usize,
    data_octets: usize,
    /// The name servers of a resolv.conf that cannot be used, or not yet, with the reason as text.
    pub(super) unusable: Vec<String>,
    /// The interfaces that a resolv.conf names.
    pub(super) interfaces: Vec<String>,
}

impl Files {
    /// Makes an empty set for a configuration in `folder`.
    pub(super) fn new(folder: &Path) -> Files {
        Files {
            folder: folder.to_owned(),
            modules: HashMap::new(),
            known: HashSet::new(),
            order: Vec::new(),
            data_limit: 0,
            data_octets: 0,
            unusable: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    /// Where relative paths start.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of the file `written` in the configuration.
    pub fn at(&self, written: impl AsRef<Path>) -> PathBuf {
        self.folder.join(written)
    }

    /// Starts on another filter, whose data may have `limit` bytes in total: at first none.
    pub fn limit_data(&mut self, limit: usize) {
        (self.data_limit, self.data_octets) = (limit, 0);
    }

    /// Reads the module at `path`.
    ///
    /// # Errors
    /// The problem as text.
    pub(super) fn module(&mut self, path: &Path) -> Result<Bytes, String> {
        self.note(path);
        let read = self.modules.entry(path.to_owned());
        read.or_insert_with(|| read_module(path).map_err(|error| error.to_string()))
            .clone()
    }

    /// Reads the UTF-8 text at `path`.
    pub(super) fn text(&mut self, path: &Path) -> io::Result<String> {
        String::from_utf8(self.read(path, LARGEST_TEXT)?).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            io::Error::other(format!("line {line} is not UTF-8"))
        })
    }

    /// Reads the data at `path`.
    pub fn data(&mut self, path: &Path) -> io::Result<Arc<Data>> {
        self.note(path);
        let octets = fs::metadata(path)?.len();
        let left = (self.data_limit - self.data_octets) as u64;
        if octets > left {
            let beside = match self.data_octets {
                0 => String::new(),
                others => format!(" beside {others} of other data"),
            };
            return Err(io::Error::other(format!(
                "it has {octets} bytes{beside}, which is more than `limits data=` allows ({})",
                spell_size(self.data_limit)
            )));
        }
        let data = Data::read(regular(path)?, left)?;
        self.data_octets += data.len();
        Ok(data)
    }

    /// Reads a file of at most `largest` bytes.
    pub(super) fn read(&mut self, path: &Path, largest: u64) -> io::Result<Vec<u8>> {
        self.note(path);
        read(path, largest)
    }

    /// Records a file that the configuration depends on, even if it cannot be read: its creation would be a
    /// change.
    pub(super) fn note(&mut self, path: &Path) {
        if self.known.insert(path.to_owned()) {
            self.order.push(path.to_owned());
        }
    }

    /// The files that the configuration depends on, in the order in which they were met.
    pub(super) fn order(&self) -> &[PathBuf] {
        &self.order
    }
}

/// The help for a text file that cannot be read.
pub(super) const TEXT_HELP: &str = "name a text file; a relative path begins at the configuration's folder";

/// The help for a file that cannot be read; `usual` is the text for anything but a URL or a folder.
pub fn unreadable_help<'a>(path: &Path, usual: &'a str) -> &'a str {
    if path.to_string_lossy().contains("://") {
        "this is a URL, and only files are read here: download it, and name the file"
    } else if path.is_dir() {
        "this is a folder: name the file in it"
    } else {
        usual
    }
}

/// Reads a configuration file. If it is too long, reads only as much as the parser needs to report that.
///
/// # Errors
/// When the file cannot be read or is not in UTF-8.
pub fn read_source(path: &Path) -> Result<Source, Report> {
    let name = path.display().to_string();
    let read = regular(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(syntax::MAX_TEXT as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let bytes = read.map_err(|error| {
        let problem = format!("{name} cannot be read: {error}");
        let unreadable = Diagnostic::new(Span::default(), problem);
        Report::new(Source::new(name.clone(), ""), vec![unreadable])
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        Err(error) => {
            // Lossy conversion does not move the text before the mistake.
            let start = error.utf8_error().valid_up_to();
            let length = char::REPLACEMENT_CHARACTER.len_utf8();
            let foreign = Diagnostic::new(Span { start, length }, "this is not UTF-8");
            let source = Source::new(name, String::from_utf8_lossy(error.as_bytes()));
            Err(Report::new(source, vec![foreign.help("save the file in UTF-8")]))
        }
    }
}

/// Reads the module at `path`.
///
/// # Errors
/// When it is not a regular file, is too large, or cannot be read.
pub fn read_module(path: &Path) -> io::Result<Bytes> {
    read(path, LARGEST_MODULE).map(Bytes::from)
}

/// Reads a whole file of at most `largest` bytes.
pub(super) fn read(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular(path)?.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        let largest = spell_size(largest as usize);
        return Err(io::Error::other(format!("it is larger than {largest}")));
    }
    Ok(bytes)
}

/// Opens a regular file. Others are refused: a pipe would block, a device might never end.
fn regular(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is not a regular file")),
    }
}
