//! The canonical order of names (RFC 4034 section 6.1).

use std::cmp::Ordering;

/// The most labels of a name, the root included.
const LABELS: usize = 128;

/// Compares two lowercased wire names label by label, starting from the root.
pub fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let (mut places, mut others) = ([0; LABELS], [0; LABELS]);
    let (count, other_count) = (labels(one, &mut places), labels(other, &mut others));
    for index in 1..=count.min(other_count) {
        let (at, other_at) = (places[count - index], others[other_count - index]);
        let order = label(one, at).cmp(label(other, other_at));
        if order != Ordering::Equal {
            return order;
        }
    }
    count.cmp(&other_count)
}

/// Records the offset of each label but the root's, and returns their number.
fn labels(name: &[u8], places: &mut [usize; LABELS]) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Some(&length) = name.get(at).filter(|length| **length > 0)
        && count < LABELS
    {
        places[count] = at;
        count += 1;
        at += 1 + usize::from(length);
    }
    count
}

fn label(name: &[u8], at: usize) -> &[u8] {
    let end = at + 1 + usize::from(name[at]);
    &name[at + 1..end.min(name.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::name::Name;

    /// The order shown in RFC 4034 section 6.1.
    #[test]
    fn names_are_in_canonical_order() {
        let names = [
            "example",
            "a.example",
            "yljkjljk.a.example",
            "Z.a.example",
            "zABC.a.EXAMPLE",
            "z.example",
            r"\001.z.example",
            "*.z.example",
            r"\200.z.example",
        ];
        let names = names.map(|name| Name::parse(name).unwrap());
        for (index, name) in names.iter().enumerate() {
            for (other_index, other) in names.iter().enumerate() {
                let order = compare(name.as_bytes(), other.as_bytes());
                assert_eq!(order, index.cmp(&other_index), "{name} {other}");
            }
        }
        assert_eq!(compare(b"\0", b"\x01a\0"), Ordering::Less);
    }
}
