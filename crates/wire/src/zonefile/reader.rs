//! Reads a zone file and the files that it includes.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::builder::Builder;
use super::entries::{Entries, Entry, Word};
use super::generate::{self, Generate};
use super::mistake::{Mistake, Wrong};
use super::record::{self, Scope};
use super::zone::Zone;
use crate::dns::name::Name;

/// The most files of a zone, and how deep they may include each other.
const MOST_FILES: usize = 64;
const DEEPEST: usize = 8;

/// The most mistakes that are reported; the first ones usually cause the others.
const MOST_MISTAKES: usize = 20;

/// The limits of a zone.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The most bytes of memory, and the most bytes of its files together.
    pub octets: usize,
}

/// Zones in use, by file and name, so that an unchanged zone is not read again.
static KNOWN: LazyLock<Mutex<HashMap<Key, Weak<Zone>>>> = LazyLock::new(Mutex::default);

/// The first file of a zone, and the zone's name in wire format.
type Key = (PathBuf, Box<[u8]>);

/// Why there is no zone.
#[derive(Debug)]
pub struct Invalid {
    /// The first mistakes, at least one.
    pub mistakes: Vec<Mistake>,
    /// The files of the zone, even those that are missing: a change of any of them may correct it.
    pub files: Vec<PathBuf>,
}

/// Reads the zone `origin` from the file at `path`.
///
/// # Errors
/// Its mistakes.
pub fn read(path: &Path, origin: &str, bounds: Bounds) -> Result<Arc<Zone>, Invalid> {
    let whole = |wrong: Wrong| Mistake {
        file: path.to_owned(),
        line: None,
        problem: wrong.problem,
        help: wrong.help,
    };
    let origin = &Name::parse(origin).map_err(|_| {
        let problem = format!("{origin:?} is not the name of a zone");
        Invalid {
            mistakes: vec![whole(Wrong::new(problem, "write a name: \"example.org\""))],
            files: vec![path.to_owned()],
        }
    })?;
    if let Some(known) = known(path, origin, bounds) {
        return Ok(known);
    }
    let mut reader = Reader {
        folder: path.parent().unwrap_or(Path::new("")).to_owned(),
        left: bounds.octets,
        files: Vec::new(),
        unreadable: Vec::new(),
        open: Vec::new(),
        builder: Builder::new(origin, bounds.octets),
        scope: Scope {
            origin: origin.as_bytes().to_vec(),
            owner: None,
            ttl: None,
            last_ttl: None,
        },
        mistakes: Vec::new(),
    };
    let opened = reader.file(path);
    if let Err(wrong) = opened {
        reader.mistakes.push(whole(wrong));
    }
    let read = reader.files.iter().map(|(file, _)| file.clone());
    let files = read.chain(reader.unreadable).collect();
    if !reader.mistakes.is_empty() {
        let mistakes = reader.mistakes;
        return Err(Invalid { mistakes, files });
    }
    match reader.builder.finish(reader.files) {
        Ok(zone) => {
            let zone = Arc::new(zone);
            remember(path, &zone);
            Ok(zone)
        }
        Err(wrong) => Err(Invalid {
            mistakes: vec![whole(wrong)],
            files,
        }),
    }
}

/// A zone in use whose files have not changed.
fn known(path: &Path, origin: &Name, bounds: Bounds) -> Option<Arc<Zone>> {
    let key = (path.to_owned(), origin.as_bytes().into());
    let zone = KNOWN.lock().get(&key)?.upgrade()?;
    let is_same = |(file, digest): &(PathBuf, [u8; 32])| {
        contents(file, bounds.octets).is_ok_and(|contents| digest_of(&contents) == *digest)
    };
    (zone.octets <= bounds.octets && zone.files.iter().all(is_same)).then_some(zone)
}

/// Makes a zone available to [`known`] for as long as it is in use.
fn remember(path: &Path, zone: &Arc<Zone>) {
    let mut all = KNOWN.lock();
    // Before the map has to grow, drop the zones no longer in use.
    if all.len() == all.capacity() {
        all.retain(|_, known| known.strong_count() > 0);
        // Room for as many again, so that this does not happen for each zone.
        let more = all.len();
        all.reserve(more);
    }
    let key = (path.to_owned(), zone.origin.as_bytes().into());
    all.insert(key, Arc::downgrade(zone));
}

/// Reads a regular file. Others are rejected: a pipe would block, a device never end.
fn contents(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut contents = Vec::new();
    fs::File::open(path)?
        .take(most as u64 + 1)
        .read_to_end(&mut contents)?;
    match contents.len() <= most {
        true => Ok(contents),
        false => Err(io::Error::other(format!(
            "with it, the zone's files have more than {most} bytes left to them"
        ))),
    }
}

fn digest_of(contents: &[u8]) -> [u8; 32] {
    Sha256::digest(contents).into()
}

struct Reader {
    /// Files outside it are not included.
    folder: PathBuf,
    /// Bytes that may still be read.
    left: usize,
    files: Vec<(PathBuf, [u8; 32])>,
    /// The files that could not be read; each is a mistake, whose number is limited.
    unreadable: Vec<PathBuf>,
    /// The files being read, none of which may include itself.
    open: Vec<PathBuf>,
    builder: Builder,
    scope: Scope,
    mistakes: Vec<Mistake>,
}

impl Reader {
    /// Reads a file; mistakes inside it are recorded.
    fn file(&mut self, path: &Path) -> Result<(), Wrong> {
        let read = contents(path, self.left);
        let text = read.map_err(|error| {
            self.unreadable.push(path.to_owned());
            Wrong::new(
                format!("{} cannot be read: {error}", path.display()),
                "name a zone file that dnsweir may read",
            )
        })?;
        self.left -= text.len();
        self.files.push((path.to_owned(), digest_of(&text)));
        self.open.push(path.to_owned());
        for entry in Entries::new(&text) {
            let (line, done) = match entry {
                Ok(entry) => (entry.line, self.entry(&entry)),
                Err((line, wrong)) => (line, Err(wrong)),
            };
            if let Err(wrong) = done {
                self.mistakes.push(Mistake {
                    file: path.to_owned(),
                    line: Some(line),
                    problem: wrong.problem,
                    help: wrong.help,
                });
            }
            if self.mistakes.len() >= MOST_MISTAKES {
                break;
            }
        }
        self.open.pop();
        Ok(())
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Wrong> {
        let first = entry.words[0];
        if entry.indented || first.quoted || !first.text.starts_with(b"$") {
            let record = record::read(entry, &mut self.scope)?;
            return self
                .builder
                .push(&record.owner, record.rtype, record.ttl, record.data);
        }
        let rest = &entry.words[1..];
        if first.is("$ORIGIN") {
            let [name] = rest else {
                return Err(Wrong::new(
                    "`$ORIGIN` needs one name",
                    "write it as: $ORIGIN example.org.",
                ));
            };
            self.scope.origin = record::name(name, &self.scope.origin)?;
            Ok(())
        } else if first.is("$TTL") {
            let ttl = match rest {
                [ttl] => record::ttl(ttl),
                _ => None,
            };
            self.scope.ttl = Some(ttl.ok_or_else(|| {
                Wrong::new(
                    "`$TTL` needs a number of seconds",
                    "write it as: $TTL 3600, or $TTL 1h",
                )
            })?);
            Ok(())
        } else if first.is("$INCLUDE") {
            self.include(rest)
        } else if first.is("$GENERATE") {
            self.generate(entry.line, &Generate::new(rest)?)
        } else {
            let problem = format!("there is no directive {:?}", first.shown());
            Err(Wrong::new(
                problem,
                "$ORIGIN, $TTL, $INCLUDE and $GENERATE are known",
            ))
        }
    }

    /// Reads another file in place of this entry. Its origin and owner end with it (RFC 1035 section 5.1).
    fn include(&mut self, words: &[Word<'_>]) -> Result<(), Wrong> {
        let (file, origin) = match words {
            [file] => (file, None),
            [file, origin] => (file, Some(record::name(origin, &self.scope.origin)?)),
            _ => {
                let help = "write it as: $INCLUDE more.zone, or $INCLUDE more.zone sub.example.org.";
                return Err(Wrong::new("`$INCLUDE` needs a file and at most one name", help));
            }
        };
        let path = self.folder.join(file.shown());
        let is_inside = match (
            fs::canonicalize(&path),
            fs::canonicalize(folder_or_here(&self.folder)),
        ) {
            (Ok(file), Ok(folder)) => file.starts_with(folder),
            // A missing file cannot be read either, which is reported below.
            _ => {
                !path
                    .components()
                    .any(|part| part == std::path::Component::ParentDir)
                    && path.starts_with(&self.folder)
            }
        };
        if !is_inside {
            let problem = format!("{} is not in the folder of the zone file", path.display());
            return Err(Wrong::new(problem, "put it there, or below"));
        }
        if self.open.contains(&path) {
            let problem = format!("{} includes itself", path.display());
            return Err(Wrong::new(
                problem,
                "remove one of the `$INCLUDE`s on the way to it",
            ));
        }
        if self.open.len() >= DEEPEST || self.files.len() >= MOST_FILES {
            let problem =
                format!("a zone has at most {MOST_FILES} files, which include each other {DEEPEST} deep");
            return Err(Wrong::new(problem, "include less"));
        }
        let (own_origin, owner) = (self.scope.origin.clone(), self.scope.owner.clone());
        if let Some(origin) = origin {
            self.scope.origin = origin;
        }
        let read = self.file(&path);
        (self.scope.origin, self.scope.owner) = (own_origin, owner);
        read
    }

    fn generate(&mut self, line: usize, generate: &Generate<'_>) -> Result<(), Wrong> {
        for number in generate.numbers() {
            let owner = generate::expand(generate.owner, number)?;
            let data = generate::expand(&generate.data, number)?;
            // Data with blanks is in quotes, which are not part of it.
            let mut words = vec![Word::plain(&owner)];
            words.extend(&generate.between);
            for entry in Entries::new(&data) {
                words.extend(entry.map_err(|(_, wrong)| wrong)?.words);
            }
            let entry = Entry {
                line,
                indented: false,
                words,
            };
            let record = record::read(&entry, &mut self.scope)?;
            self.builder
                .push(&record.owner, record.rtype, record.ttl, record.data)?;
        }
        Ok(())
    }
}

/// The folder, or the current one if its path is empty.
fn folder_or_here(folder: &Path) -> &Path {
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}
