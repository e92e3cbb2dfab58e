//! Builds databases in MaxMind's format, version 2.0: https://maxmind.github.io/MaxMind-DB/

use std::net::Ipv6Addr;

/// A text in the database format.
fn text(text: &str) -> Vec<u8> {
    match text.len() {
        short @ 0..29 => [&[2 << 5 | short as u8], text.as_bytes()].concat(),
        long => [&[2 << 5 | 29, long as u8 - 29], text.as_bytes()].concat(),
    }
}

fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pairs_in_order = pairs
        .iter()
        .flat_map(|(key, value)| [text(key), value.clone()].concat());
    [7 << 5 | pairs.len() as u8]
        .into_iter()
        .chain(pairs_in_order)
        .collect()
}

fn number(number: u32) -> Vec<u8> {
    [&[6 << 5 | 4][..], &number.to_be_bytes()].concat()
}

/// A database of these networks with their countries and continents. Halves of its nodes have `record` bits.
#[allow(
    clippy::unwrap_used,
    reason = "an address that is none is a mistake of who wrote the test"
)]
pub fn database(record: u32, networks: &[(&str, u32, &str, &str)]) -> Vec<u8> {
    // Each leaf leads to an offset in the data, after a map that pointers refer to.
    let names = map(&[("names", text("a name that is longer than twenty-nine octets"))]);
    let mut data = names.clone();
    let mut tree: Vec<[Option<Result<usize, usize>>; 2]> = vec![[None; 2]];
    for &(address, length, country, continent) in networks {
        let address: Ipv6Addr = address.parse().unwrap();
        let mut at = 0;
        for bit in 0..length {
            let side = (address.to_bits() >> (127 - bit) & 1) as usize;
            if bit + 1 == length {
                tree[at][side] = Some(Err(data.len()));
            } else if let Some(Ok(next)) = tree[at][side] {
                at = next;
            } else {
                tree.push([None; 2]);
                let next = tree.len() - 1;
                tree[at][side] = Some(Ok(next));
                at = next;
            }
        }
        let pointer = vec![1 << 5, 0];
        data.extend(map(&[
            ("city", pointer),
            ("continent", map(&[("code", text(continent))])),
            (
                "country",
                map(&[("is_in_european_union", vec![1, 7]), ("iso_code", text(country))]),
            ),
        ]));
    }
    let nodes = tree.len();
    let mut octets = Vec::new();
    for halves in &tree {
        let halves = halves.map(|half| match half {
            None => nodes as u32,
            Some(Ok(next)) => next as u32,
            Some(Err(place)) => (nodes + 16 + place) as u32,
        });
        let [left, right] = halves.map(u32::to_be_bytes);
        match record {
            24 => octets.extend([&left[1..], &right[1..]].concat()),
            28 => octets.extend([&left[1..], &[left[0] << 4 | right[0]], &right[1..]].concat()),
            _ => octets.extend([left, right].concat()),
        }
    }
    octets.extend([0; 16]);
    octets.extend(data);
    octets.extend(b"\xab\xcd\xefMaxMind.com");
    octets.extend(map(&[
        ("node_count", number(nodes as u32)),
        ("record_size", number(record)),
        ("ip_version", number(6)),
    ]));
    octets
}
