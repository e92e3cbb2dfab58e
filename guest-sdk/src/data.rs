//! Large files that the host keeps for filters.

use std::cell::{Cell, RefCell};

#[cfg(doc)]
use crate::Filter;
use crate::{FromValue, Value};

/// The size of a page in bytes.
const PAGE: usize = 4096;

/// The number of cached pages.
const PAGES: usize = 16;

/// The maximum number of bytes that the host reads in one call.
const CALL: usize = 64 << 10;

/// A file named in the configuration with `(data)"PATH"`, of any format and almost any size. The proxy keeps
/// one copy for all instances of all filters; an instance reads only the parts it needs. The contents never
/// change: when the file does, the filter is configured again, and old instances keep the old contents as
/// long as they live.
///
/// ```
/// use dnsweir_filter::{Data, Filter, Invalid, Manifest, Query, Rcode, Setup, Type, Verdict, test};
///
/// /// Refuses the names of a list, which is sorted: `list (data)"names.txt"`.
/// struct Listed(Data);
///
/// impl Filter for Listed {
///     fn configure(setup: Setup<'_>) -> Result<(Listed, Manifest), Invalid> {
///         let list = setup.config().setting("list")?;
///         Ok((Listed(list), Manifest::new().queries()))
///     }
///
///     fn query(&mut self, query: &Query<'_>) -> Verdict {
///         let name = query.name().to_string();
///         match self.0.find_line(name.trim_end_matches('.'), b' ') {
///             Some(_) => Verdict::refuse(Rcode::NXDOMAIN),
///             None => Verdict::pass(),
///         }
///     }
/// }
///
/// let list = test::data("ads.example since 2024\nweb.example since 2025\n");
/// let mut filter = test::start::<Listed>([test::node("list").arg(list)]).unwrap();
/// let mut ask = |name: &str| filter.query(&test::query(name, Type::A));
/// assert_eq!(ask("ads.example"), Verdict::refuse(Rcode::NXDOMAIN));
/// assert_eq!(ask("www.example"), Verdict::pass());
///
/// let mistakes = test::start::<Listed>([test::node("list").arg("names.txt")]).unwrap_err();
/// assert_eq!(mistakes[0].message, "the first argument of `list` must be a file of data, not \"names.txt\"");
/// assert_eq!(mistakes[0].help, "write: (data)\"PATH\"");
/// ```
///
/// What a [refresh](Filter::refresh) has [published](crate::Setup::published) is read in the same way. It
/// changes between two calls of the filter, never during one.
#[derive(Debug)]
pub struct Data {
    index: u32,
    /// The batch of the last check, and the revision found in it; `None` for data that never changes.
    seen: Option<Cell<(u64, u64)>>,
    size: Cell<u64>,
    /// A direct-mapped cache: page `n` is in slot `n % PAGES`.
    pages: RefCell<[Option<Page>; PAGES]>,
}

#[derive(Debug)]
struct Page {
    number: u64,
    octets: Vec<u8>,
}

impl Data {
    pub(crate) fn new(index: u32) -> Data {
        Data {
            index,
            seen: None,
            size: Cell::new(host::size(index).unwrap_or(0)),
            pages: RefCell::default(),
        }
    }

    /// The data published under a name.
    pub(crate) fn published(name: &str) -> Data {
        Data {
            seen: Some(Cell::new((crate::host::batch(), host::revision()))),
            ..Data::new(host::published(name))
        }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Discards cached data if other data has been published since. Checks once per batch.
    fn renew(&self) {
        let Some(seen) = &self.seen else { return };
        let (batch, revision) = seen.get();
        let now = crate::host::batch();
        if now == batch {
            return;
        }
        let current = host::revision();
        seen.set((now, current));
        if current != revision {
            self.size.set(host::size(self.index).unwrap_or(0));
            self.pages.take();
        }
    }

    /// The size in bytes; 0 if nothing is published.
    pub fn size(&self) -> u64 {
        self.renew();
        self.size.get()
    }

    /// The lines, without their line ends.
    ///
    /// This reads all of the data, so use it where there is time, as in a [refresh](Filter::refresh).
    pub fn lines(&self) -> impl Iterator<Item = Vec<u8>> {
        // The last piece read, its offset, and how much of it has been consumed.
        let (mut piece, mut at, mut done) = (Vec::new(), 0, 0);
        std::iter::from_fn(move || {
            let mut line = Vec::new();
            loop {
                let rest: &[u8] = piece.get(done..).unwrap_or_default();
                if let Some(end) = rest.iter().position(|&octet| octet == b'\n') {
                    line.extend_from_slice(&rest[..end]);
                    done += end + 1;
                    return Some(line);
                }
                line.extend_from_slice(rest);
                at += piece.len() as u64;
                (piece, done) = (host::read(self.index, at, CALL as u32), 0);
                if piece.is_empty() {
                    return (!line.is_empty()).then_some(line);
                }
            }
        })
    }

    /// Reads bytes from `offset` into `into`, and returns how many: fewer than its length only at the end of
    /// the data.
    ///
    /// Reads pages of 4 KiB and caches the last 16 of them, so that a search that reads a few bytes here and
    /// there does not call the host for each read.
    ///
    /// ```
    /// # use dnsweir_filter::{Data, FromValue, test};
    /// # fn read_header(data: &Data) -> Option<u32> {
    /// let mut version = [0; 4];
    /// match data.read_at(8, &mut version) {
    ///     4 => Some(u32::from_le_bytes(version)),
    ///     _ => None, // it is shorter
    /// }
    /// # }
    /// ```
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> usize {
        self.renew();
        let mut done = 0;
        while done < into.len() {
            let at = offset.saturating_add(done as u64);
            let rest = &mut into[done..];
            let count = match rest.len() {
                // Pages of so large a piece are unlikely to be read again: bypass the cache.
                PAGE.. => self.read_from_host(at, rest),
                _ => self.read_from_page(at, rest),
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        done
    }

    fn read_from_host(&self, at: u64, into: &mut [u8]) -> usize {
        let octets = host::read(self.index, at, into.len().min(CALL) as u32);
        into[..octets.len()].copy_from_slice(&octets);
        octets.len()
    }

    fn read_from_page(&self, at: u64, into: &mut [u8]) -> usize {
        if at >= self.size.get() {
            return 0;
        }
        let (number, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let mut pages = self.pages.borrow_mut();
        let place = &mut pages[(number % PAGES as u64) as usize];
        let page = match place {
            Some(page) if page.number == number => page,
            _ => place.insert(Page {
                number,
                octets: host::read(self.index, number * PAGE as u64, PAGE as u32),
            }),
        };
        let there = page.octets.get(within..).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        count
    }

    /// The first line with this key, without its line end. A line's key is the part before its first
    /// `separator`, or the whole line. One call into the host, which takes a microsecond or two however large
    /// the data is.
    ///
    /// The lines must be sorted by key, byte by byte, and have at most 4 096 bytes. `LC_ALL=C sort` sorts
    /// them if the separator sorts before every character of the keys, such as a tab or a space. In unsorted
    /// data, a line may not be found.
    pub fn find_line(&self, key: impl AsRef<[u8]>, separator: u8) -> Option<Vec<u8>> {
        host::find_line(self.index, key.as_ref(), separator)
    }
}

impl FromValue for Data {
    const EXPECTED: &'static str = "a file of data";

    fn from_value(value: Value<'_>) -> Result<Data, String> {
        match value {
            Value::Data(index) => Ok(Data::new(index)),
            _ => Err("write: (data)\"PATH\"".to_owned()),
        }
    }
}

#[cfg(all(target_family = "wasm", not(doc)))]
use crate::bindings::dnsweir::filter::data as host;
#[cfg(any(doc, not(target_family = "wasm")))]
use crate::test::data as host;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn pieces_of_any_size_are_read_wherever_they_lie() {
        let octets: Vec<u8> = (0..3 * CALL + 7).map(|index| (index % 251) as u8).collect();
        let crate::bindings::dnsweir::filter::types::Value::Data(index) = test::data(&octets).into_raw()
        else {
            panic!("data is something else");
        };
        let data = Data::new(index);
        assert_eq!(data.size(), octets.len() as u64);
        let lines: Vec<Vec<u8>> = data.lines().collect();
        let expected: Vec<&[u8]> = octets.split(|&octet| octet == b'\n').collect();
        assert_eq!(lines, expected);
        for offset in [
            0,
            1,
            PAGE - 1,
            PAGE,
            17 * PAGE + 3,
            octets.len() - 1,
            octets.len(),
            octets.len() + PAGE,
        ] {
            for length in [0, 1, 2, PAGE - 1, PAGE, PAGE + 1, CALL + 1, 3 * CALL] {
                let mut into = vec![0; length];
                let count = data.read_at(offset as u64, &mut into);
                let expected = octets.get(offset..).unwrap_or_default();
                assert_eq!(
                    into[..count],
                    expected[..expected.len().min(length)],
                    "{offset} {length}"
                );
            }
        }
        let mut into = [0; 4];
        assert_eq!(data.read_at(u64::MAX, &mut into), 0);
    }
}
