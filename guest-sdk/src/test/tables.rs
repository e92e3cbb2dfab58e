//! Tables that replace the host's: without bounds, and with the time of the queries as clock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::bindings::dnsweir::filter::types as raw;

/// The entries of a table, by key.
type Contents = HashMap<Vec<u8>, Entry>;

/// The tables, by name, of filters that were started beside each other.
#[derive(Debug, Default, Clone)]
pub(super) struct Tables(Rc<RefCell<HashMap<String, Contents>>>);

#[derive(Debug)]
struct Entry {
    value: Value,
    expires: u64,
}

#[derive(Debug)]
enum Value {
    Octets(Vec<u8>),
    /// The tokens at a point in time.
    Bucket(f64, u64),
}

/// What a filter sees during a call.
#[derive(Default)]
struct Seen {
    tables: Tables,
    names: Vec<String>,
    /// In milliseconds.
    now: u64,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

impl Tables {
    /// Calls a filter that declares tables of these shapes.
    pub(super) fn during<T>(&self, shapes: &[raw::TableShape], now: u64, call: impl FnOnce() -> T) -> T {
        let seen = Seen {
            tables: self.clone(),
            names: shapes.iter().map(|shape| shape.name.clone()).collect(),
            now,
        };
        SEEN.set(Some(seen));
        let done = call();
        SEEN.set(None);
        done
    }
}

/// Runs work on a table.
fn with<T>(table: u32, work: impl FnOnce(&mut HashMap<Vec<u8>, Entry>, u64) -> T) -> T {
    SEEN.with_borrow(|seen| {
        let seen = seen
            .as_ref()
            .expect("tables are there in the phases, and not in `configure`");
        let mut tables = seen.tables.0.borrow_mut();
        let table = tables.entry(seen.names[table as usize].clone()).or_default();
        table.retain(|_, entry| entry.expires > seen.now);
        work(table, seen.now)
    })
}

fn value(table: &HashMap<Vec<u8>, Entry>, key: &[u8]) -> Option<Vec<u8>> {
    match &table.get(key)?.value {
        Value::Octets(octets) => Some(octets.clone()),
        Value::Bucket(..) => None,
    }
}

fn entry(octets: &[u8], now: u64, ttl: u64) -> Entry {
    Entry {
        value: Value::Octets(octets.to_vec()),
        expires: match ttl {
            0 => u64::MAX,
            ttl => now.saturating_add(ttl),
        },
    }
}

pub(crate) fn get(table: u32, key: &[u8]) -> Option<Vec<u8>> {
    with(table, |table, _| value(table, key))
}

pub(crate) fn put(table: u32, key: &[u8], value: &[u8], ttl: u64) -> bool {
    with(table, |table, now| {
        table.insert(key.to_vec(), entry(value, now, ttl))
    });
    true
}

pub(crate) fn remove(table: u32, key: &[u8]) -> bool {
    with(table, |table, _| table.remove(key).is_some())
}

pub(crate) fn add(table: u32, key: &[u8], by: i64, ttl: u64) -> i64 {
    with(table, |table, now| {
        if let Some(Entry {
            value: Value::Octets(octets),
            ..
        }) = table.get_mut(key)
            && let Ok(number) = octets[..].try_into()
        {
            let sum = i64::from_le_bytes(number).saturating_add(by);
            *octets = sum.to_le_bytes().to_vec();
            return sum;
        }
        table.insert(key.to_vec(), entry(&by.to_le_bytes(), now, ttl));
        by
    })
}

pub(crate) fn compare_and_swap(
    table: u32,
    key: &[u8],
    expected: Option<&[u8]>,
    new: Option<&[u8]>,
    ttl: u64,
) -> bool {
    with(table, |table, now| {
        if value(table, key).as_deref() != expected {
            return false;
        }
        match new {
            Some(new) => table.insert(key.to_vec(), entry(new, now, ttl)),
            None => table.remove(key),
        };
        true
    })
}

pub(crate) fn take(table: u32, key: &[u8], tokens: u32, rate: f64, burst: u32) -> bool {
    with(table, |table, now| {
        let full = f64::from(burst);
        let there = match table.get(key).map(|entry| &entry.value) {
            Some(Value::Bucket(tokens, then)) => {
                let elapsed = now.saturating_sub(*then) as f64 / 1000.0;
                (tokens + elapsed * rate.max(0.0)).min(full)
            }
            _ => full,
        };
        let granted = there >= f64::from(tokens);
        let left = if granted { there - f64::from(tokens) } else { there };
        let bucket = Entry {
            value: Value::Bucket(left, now),
            expires: u64::MAX,
        };
        table.insert(key.to_vec(), bucket);
        granted
    })
}
