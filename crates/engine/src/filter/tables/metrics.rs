//! What `/metrics` shows of tables.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

use super::Tables;
use super::shard::Time;
use super::table::Table;
use crate::filter::text;
use crate::metrics::Metrics;

/// Maximum keys shown per table.
const KEYS: usize = 1000;

/// Maximum bytes shown per key.
const KEY: usize = 128;

/// Entries read under one lock.
const STEP: usize = 256;

impl Tables {
    /// Adds the sizes, evictions and refusals of a filter's tables, and the numbers of those it shows.
    pub(in crate::filter) fn show(&self, now: Time, filter: &str, metrics: &mut Metrics) {
        let tables = || {
            self.0
                .iter()
                .map(|table| (table, [("filter", filter), ("table", &*table.shape.name)]))
        };
        let metric = metrics.gauge("filter_table_bytes", "Size of a filter's table in bytes");
        for (table, labels) in tables() {
            metric.add(&labels, table.size().octets as u64);
        }
        let metric = metrics.gauge(
            "filter_table_limit_bytes",
            "Maximum size of a filter's table in bytes",
        );
        for (table, labels) in tables() {
            metric.add(&labels, table.octets() as u64);
        }
        let help = "Entries of a filter's table, including expired ones";
        let metric = metrics.gauge("filter_table_entries", help);
        for (table, labels) in tables() {
            metric.add(&labels, table.size().entries as u64);
        }
        let help = "Entries of a filter's table evicted before they expired";
        let metric = metrics.counter("filter_table_evictions", help);
        for (table, labels) in tables() {
            metric.add(&labels, table.size().evicted);
        }
        let help = "Entries that a filter's table refused because they were too large";
        let metric = metrics.counter("filter_table_refused", help);
        for (table, labels) in tables() {
            metric.add(&labels, table.refused.load(Ordering::Relaxed));
        }
        let help = "The largest numbers in a filter's table, by key";
        let metric = metrics.gauge("filter_table_value", help);
        for (table, labels) in tables().filter(|(table, _)| table.shape.shown) {
            for (number, key) in largest(table, now) {
                let key = shown(&key);
                metric.add_signed(&[&labels[..], &[("key", &*key)]].concat(), number);
            }
        }
    }
}

/// Returns the largest numbers with their keys.
fn largest(table: &Table, now: Time) -> Vec<(i64, Box<[u8]>)> {
    let mut found: BinaryHeap<Reverse<(i64, Box<[u8]>)>> = BinaryHeap::new();
    for part in &table.parts {
        let mut index = 0;
        loop {
            // The lock is free between steps. Entries that move meanwhile may be missed or seen twice.
            let more = part.lock().numbers(now, index, STEP, |key, number| {
                let full = found.len() == KEYS;
                let smallest = found.peek().map(|Reverse((smallest, _))| *smallest);
                if full && smallest >= Some(number) {
                    return;
                }
                if full {
                    found.pop();
                }
                found.push(Reverse((number, key.into())));
            });
            if !more {
                break;
            }
            index += STEP;
        }
    }
    let mut found: Vec<_> = found.into_iter().map(|Reverse(found)| found).collect();
    found.sort_by(|a, b| a.1.cmp(&b.1));
    found.dedup_by(|a, b| a.1 == b.1);
    found
}

/// A key as text; invalid UTF-8 and unprintable characters are escaped.
fn shown(key: &[u8]) -> String {
    match str::from_utf8(key) {
        Ok(text) => text::one_line(text, KEY),
        Err(_) => text::one_line(&key.escape_ascii().to_string(), KEY),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shape;
    use super::*;

    #[test]
    fn keys_are_shown_as_text() {
        assert_eq!(shown(b"www.example.org"), "www.example.org");
        assert_eq!(shown("ü".as_bytes()), "ü");
        assert_eq!(shown(b"a\nb\x1b"), r"a\nb\u{1b}");
        assert_eq!(shown(b"\xff\x00"), r"\xff\x00");
        assert!(shown(&[b'a'; 1000]).len() < 2 * KEY);
    }

    #[test]
    fn the_largest_numbers_are_shown_and_no_more() {
        let table = Table::new(&shape("t", 1 << 20));
        for number in 0..3000_i64 {
            table.add(0, &number.to_be_bytes(), number, 0);
        }
        table.put(0, b"text", b"no number", 0);
        table.add(0, b"over", 5000, 1);
        let shown = largest(&table, 2_000_000);
        assert_eq!(shown.len(), KEYS);
        assert!(shown.iter().all(|(number, _)| (2000..3000).contains(number)));
    }
}
