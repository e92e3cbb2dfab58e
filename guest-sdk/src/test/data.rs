//! In the place of the host's data.

use std::cell::RefCell;
use std::rc::Rc;

thread_local! {
    /// All of a test's: none is ever taken away, so that an index stays what it is.
    static ALL: RefCell<Vec<Rc<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Adds data, and gives its index.
pub(super) fn add(octets: &[u8]) -> u32 {
    ALL.with_borrow_mut(|all| {
        all.push(octets.into());
        all.len() as u32 - 1
    })
}

fn get(index: u32) -> Option<Rc<[u8]>> {
    ALL.with_borrow(|all| all.get(index as usize).cloned())
}

pub(crate) fn size(index: u32) -> Option<u64> {
    get(index).map(|data| data.len() as u64)
}

pub(crate) fn read(index: u32, offset: u64, length: u32) -> Vec<u8> {
    let data = get(index).unwrap_or_default();
    let start = usize::try_from(offset).unwrap_or(data.len()).min(data.len());
    let rest = &data[start..];
    rest[..rest.len().min(length as usize).min(64 << 10)].to_vec()
}

/// Looks at each line, and fails where the host might not find one.
pub(crate) fn find_line(index: u32, key: &[u8], separator: u8) -> Option<Vec<u8>> {
    let data = get(index)?;
    let text = data.strip_suffix(b"\n").unwrap_or(&data);
    let key_of = |line: &[u8]| line.split(|&octet| octet == separator).next().map(<[u8]>::to_vec);
    let mut lines = text.split(|&octet| octet == b'\n');
    assert!(
        lines.clone().is_sorted_by_key(key_of),
        "the lines of the data are not sorted by their keys"
    );
    let line = lines.find(|line| key_of(line).as_deref() == Some(key));
    line.filter(|_| !data.is_empty()).map(<[u8]>::to_vec)
}
