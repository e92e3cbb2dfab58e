//! Databases of addresses: <https://maxmind.github.io/MaxMind-DB/>, a binary tree of their bits, and behind it what is known
//! of them.

use std::net::IpAddr;

use crate::{Data, FromValue, Value};

/// What stands before the metadata, which is at the end.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// Octets from the end in which it has to be.
const METADATA: u64 = 128 << 10;

/// Octets between the tree and the data.
const GAP: u64 = 16;

/// Maps and arrays that stand in each other.
const DEPTH: usize = 16;

const POINTER: u64 = 1;
const TEXT: u64 = 2;
const MAP: u64 = 7;
const ARRAY: u64 = 11;
const BOOLEAN: u64 = 14;

/// A database of addresses in MaxMind's format, version 2, such as GeoLite2, IPinfo and DB-IP have it: `(data)"PATH.mmdb"`. A
/// search needs a few octets here and there, most of them on pages that [`Data`] has kept.
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
    /// Nodes of the tree.
    nodes: u64,
    /// Bits of one half of a node.
    record: u64,
    /// Whether the tree is that of IPv6 addresses, with those of IPv4 below `::/96`.
    ipv6: bool,
}

/// What stands somewhere: its type, its size, and where its content begins, or where another one is that stands for it.
struct Field {
    kind: u64,
    size: u64,
    content: u64,
}

impl Mmdb {
    /// None: it is no database, or one of a kind that is not known here.
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

    /// A text that is known of an address: of the maps that the database has, the one under the first of these keys, and
    /// so on. Which keys there are is up to who made it.
    pub fn text(&self, address: IpAddr, path: &[&str]) -> Option<String> {
        let base = self.nodes * self.record / 4 + GAP;
        let at = base + self.leaf(address)?.checked_sub(GAP)?;
        let field = self.find(base, at, path)?;
        self.read_text(&field)
    }

    /// Where in the tree an address leads, counted from its end.
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
        // The number of nodes itself says that nothing is known.
        (node > self.nodes).then(|| node - self.nodes)
    }

    /// The left or the right half of a node.
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

    /// What stands under these keys of the maps that begin here. `base` is where pointers are counted from.
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

    /// What stands here, or where the pointer leads that stands here.
    fn resolved(&self, base: u64, at: u64) -> Option<Field> {
        let field = self.field(at)?;
        if field.kind == POINTER {
            self.field(base + field.size)
        } else {
            Some(field)
        }
    }

    /// What stands here. The size of a pointer is where it leads.
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

    /// What stands behind that which stands here.
    fn behind(&self, at: u64) -> Option<u64> {
        self.behind_at_depth(at, DEPTH)
    }

    /// The same within so many maps and arrays: databases have few, and what is broken may seem to have no end of them.
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

    /// A number of so many octets, at most 8.
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
