//! Address databases in the MaxMind DB format, <https://maxmind.github.io/MaxMind-DB/>: a binary tree over
//! the bits of addresses, followed by the data about them.

use std::net::IpAddr;

use crate::{Data, FromValue, Value};

/// The marker before the metadata, which is at the end of the file.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// The marker must be within this many bytes of the end.
const METADATA: u64 = 128 << 10;

/// The number of bytes between tree and data.
const GAP: u64 = 16;

/// The maximum nesting depth of maps and arrays.
const DEPTH: usize = 16;

const POINTER: u64 = 1;
const TEXT: u64 = 2;
const MAP: u64 = 7;
const ARRAY: u64 = 11;
const BOOLEAN: u64 = 14;

/// An address database in MaxMind's format, version 2, such as GeoLite2, IPinfo and DB-IP:
/// `(data)"PATH.mmdb"`. A lookup reads a few bytes here and there, mostly from pages that [`Data`] has
/// cached.
///
/// ```
/// use dnsweir_filter::{Filter, Invalid, Manifest, Mmdb, Query, Rcode, Setup, Verdict};
///
/// /// Refuses what comes from elsewhere: `database (data)"country.mmdb"`.
/// struct AtHome(Mmdb);
///
/// impl Filter for AtHome {
///     fn configure(setup: Setup<'_>) -> Result<(AtHome, Manifest), Invalid> {
///         let database = setup.config().setting("database")?;
///         Ok((AtHome(database), Manifest::new().queries()))
///     }
///
///     fn query(&mut self, query: &Query<'_>) -> Verdict {
///         match self.0.text(query.client(), &["country", "iso_code"]).as_deref() {
///             Some("DE") => Verdict::pass(),
///             _ => Verdict::refuse(Rcode::REFUSED),
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Mmdb {
    data: Data,
    /// The number of nodes in the tree.
    nodes: u64,
    /// The size of one half of a node in bits.
    record: u64,
    /// Whether the tree is for IPv6 addresses; then it has IPv4 addresses below `::/96`.
    ipv6: bool,
}

/// A field: its type, its size, and the offset of its content; for a pointer, the target instead of the size.
struct Field {
    kind: u64,
    size: u64,
    content: u64,
}

impl Mmdb {
    /// Returns `None` if the file is not such a database, or is one of an unknown kind.
    fn open(data: Data) -> Option<Mmdb> {
        let begin = data.size().saturating_sub(METADATA);
        let mut tail = vec![0; (data.size() - begin) as usize];
        data.read_at(begin, &mut tail);
        let marker = tail.windows(MARKER.len()).rposition(|octets| octets == MARKER)?;
        let metadata = begin + (marker + MARKER.len()) as u64;
        let mut database = Mmdb {
            data,
            nodes: 0,
            record: 0,
            ipv6: false,
        };
        let number = |key| {
            let field = database.find(metadata, metadata, &[key])?;
            database.number(field.content, field.size)
        };
        let (nodes, record, version) = (
            number("node_count")?,
            number("record_size")?,
            number("ip_version")?,
        );
        (database.nodes, database.record, database.ipv6) = (nodes, record, version == 6);
        let known = [24, 28, 32].contains(&record) && u32::try_from(nodes).is_ok();
        known.then_some(database)
    }

    /// A text about an address, found by following these keys through nested maps. The keys depend on the
    /// database.
    pub fn text(&self, address: IpAddr, path: &[&str]) -> Option<String> {
        let base = self.nodes * self.record / 4 + GAP;
        let at = base + self.leaf(address)?.checked_sub(GAP)?;
        let field = self.find(base, at, path)?;
        self.read_text(&field)
    }

    /// The tree's leaf for an address, counted from the end of the tree.
    fn leaf(&self, address: IpAddr) -> Option<u64> {
        let (bits, count) = match address.to_canonical() {
            IpAddr::V4(address) if self.ipv6 => (u128::from(address.to_bits()), 128),
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) if self.ipv6 => (address.to_bits(), 128),
            IpAddr::V6(_) => return None,
        };
        let mut node = 0;
        for bit in 0..count {
            if node >= self.nodes {
                break;
            }
            node = self.half(node, (bits >> (127 - bit)) as u64 & 1)?;
        }
        // A leaf that equals the number of nodes means that there is no data.
        (node > self.nodes).then(|| node - self.nodes)
    }

    /// The left (0) or right (1) half of a node.
    fn half(&self, node: u64, side: u64) -> Option<u64> {
        let at = node * self.record / 4;
        match self.record {
            28 => {
                let upper = self.number(at + 3, 1)? >> (4 * (1 - side)) & 15;
                Some(upper << 24 | self.number(at + 4 * side, 3)?)
            }
            bits => self.number(at + bits / 8 * side, bits / 8),
        }
    }

    /// Follows these keys through nested maps, from the field at `at`. Pointers count from `base`.
    fn find(&self, base: u64, mut at: u64, path: &[&str]) -> Option<Field> {
        for key in path {
            let map = self.resolved(base, at)?;
            let mut pairs = 0..(map.kind == MAP).then_some(map.size)?;
            at = map.content;
            loop {
                pairs.next()?;
                let value = self.behind(at)?;
                if self.read_text(&self.resolved(base, at)?)? == *key {
                    at = value;
                    break;
                }
                at = self.behind(value)?;
            }
        }
        self.resolved(base, at)
    }

    /// The field at an offset; if it is a pointer, the field it points to.
    fn resolved(&self, base: u64, at: u64) -> Option<Field> {
        let field = self.field(at)?;
        if field.kind == POINTER {
            self.field(base + field.size)
        } else {
            Some(field)
        }
    }

    /// The field at an offset. The size of a pointer is its target.
    fn field(&self, at: u64) -> Option<Field> {
        let control = self.number(at, 1)?;
        let (kind, at) = match control >> 5 {
            0 => (self.number(at + 1, 1)? + 7, at + 2),
            kind => (kind, at + 1),
        };
        let (octets, size) = if kind == POINTER {
            let octets = (control >> 3 & 3) + 1;
            let upper = if octets == 4 {
                0
            } else {
                (control & 7) << (8 * octets)
            };
            let start = [0, 2048, 526_336, 0][octets as usize - 1];
            (octets, start + (upper | self.number(at, octets)?))
        } else {
            let octets = (control & 31).saturating_sub(28);
            let start = [control & 31, 29, 285, 65_821][octets as usize];
            (octets, start + self.number(at, octets)?)
        };
        Some(Field {
            kind,
            size,
            content: at + octets,
        })
    }

    /// The offset after the field at this offset.
    fn behind(&self, at: u64) -> Option<u64> {
        self.behind_at_depth(at, DEPTH)
    }

    /// Limits the nesting depth: databases need little, and a malformed one may seem endless.
    fn behind_at_depth(&self, at: u64, depth: usize) -> Option<u64> {
        let field = self.field(at)?;
        let parts = match field.kind {
            POINTER | BOOLEAN => return Some(field.content),
            MAP => 2 * field.size,
            ARRAY => field.size,
            _ => return Some(field.content + field.size),
        };
        let depth = depth.checked_sub(1)?;
        (0..parts).try_fold(field.content, |at, _| self.behind_at_depth(at, depth))
    }

    fn read_text(&self, field: &Field) -> Option<String> {
        let mut octets = vec![0; usize::try_from(field.size).ok().filter(|&size| size < 4096)?];
        let whole = field.kind == TEXT && self.data.read_at(field.content, &mut octets) == octets.len();
        String::from_utf8(octets).ok().filter(|_| whole)
    }

    /// A big-endian number of this many bytes, at most 8.
    fn number(&self, at: u64, octets: u64) -> Option<u64> {
        let mut number = [0; 8];
        let place = number.get_mut(8usize.checked_sub(octets as usize)?..)?;
        (self.data.read_at(at, place) == place.len()).then(|| u64::from_be_bytes(number))
    }
}

impl FromValue for Mmdb {
    const EXPECTED: &'static str = "a database in MaxMind's format";

    fn from_value(value: Value<'_>) -> Result<Mmdb, String> {
        Mmdb::open(Data::from_value(value)?).ok_or_else(|| "name a file in the format of .mmdb".to_owned())
    }
}
