//! Data that replaces the host's.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

thread_local! {
    /// All data of the test. None is ever removed, so that indices stay valid.
    static ALL: RefCell<Vec<Rc<[u8]>>> = const { RefCell::new(Vec::new()) };
    /// The index of the data published under each name.
    static PUBLISHED: RefCell<BTreeMap<String, u32>> = const { RefCell::new(BTreeMap::new()) };
    static REVISION: Cell<u64> = const { Cell::new(0) };
    /// The output of the current refresh.
    static OUTPUT: RefCell<BTreeMap<String, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Ends a refresh: publishes its output, or discards it.
pub(super) fn end_refresh(publish: bool) {
    let output = OUTPUT.take();
    if !publish {
        return;
    }
    let names: Vec<String> = PUBLISHED.with_borrow(|all| all.keys().cloned().collect());
    for name in names.iter().filter(|name| !output.contains_key(*name)) {
        set(published(name), &[]);
    }
    for (name, octets) in output {
        set(published(&name), &octets);
    }
    REVISION.set(REVISION.get() + 1);
}

fn set(index: u32, octets: &[u8]) {
    ALL.with_borrow_mut(|all| all[index as usize] = octets.into());
}

pub(crate) fn published(name: &str) -> u32 {
    let known = PUBLISHED.with_borrow(|all| all.get(name).copied());
    known.unwrap_or_else(|| {
        let index = add(&[]);
        PUBLISHED.with_borrow_mut(|all| all.insert(name.to_owned(), index));
        index
    })
}

pub(crate) fn revision() -> u64 {
    REVISION.get()
}

pub(crate) fn append(name: &str, octets: &[u8]) -> bool {
    OUTPUT.with_borrow_mut(|output| {
        output
            .entry(name.to_owned())
            .or_default()
            .extend_from_slice(octets)
    });
    true
}

pub(crate) fn publish(name: &str, index: u32) -> bool {
    append(name, &get(index).unwrap_or_default())
}

/// Adds data, and returns its index.
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

/// Searches line by line, and panics if the data is not sorted, where the host might not find a line.
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
