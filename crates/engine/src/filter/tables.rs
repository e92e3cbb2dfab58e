//! Tables shared by all instances of a filter: bounded maps that survive a reload.
//!
//! The manifest declares them, and a guest reaches them through the functions of [`imports`]. A lock is held
//! for one operation on one part of a table at most, and never while a guest runs. Each table has a size
//! limit in bytes, and `limits tables=` bounds their sum. Nothing is written to disk.

mod imports;
mod metrics;
mod shard;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::bindings::dnsweir::filter::types::TableShape;
use crate::config;

pub(super) use imports::{WithTables, link};
use table::Table;

/// Maximum tables per filter.
const TABLES: usize = 16;

/// Minimum size of a table, in bytes.
const SMALLEST: u32 = 4096;

/// Maximum length of a table's name, in bytes.
const NAME: usize = 63;

/// The tables of one filter, in the order of its manifest.
pub(super) struct Tables(Vec<Arc<Table>>);

impl Tables {
    /// The tables of a filter that declares none.
    pub(super) fn none() -> Tables {
        Tables(Vec::new())
    }

    /// Opens tables of these shapes, reusing those of `before` that have the same name and shape.
    ///
    /// # Errors
    ///
    /// Returns which shape is invalid, or that the tables exceed `limit` bytes.
    pub(super) fn open(
        shapes: &[TableShape],
        limit: usize,
        before: Option<&Tables>,
    ) -> Result<Tables, String> {
        if shapes.len() > TABLES {
            return Err(format!("it has {} tables; the maximum is {TABLES}", shapes.len()));
        }
        let mut octets = 0;
        for (index, shape) in shapes.iter().enumerate() {
            check(shape)?;
            if shapes[..index].iter().any(|other| other.name == shape.name) {
                return Err(format!("two tables are called {:?}", shape.name));
            }
            octets += shape.octets as usize;
        }
        if octets > limit {
            return Err(format!(
                "its tables take {octets} bytes, which is more than `limits tables=` allows ({})",
                config::spell_size(limit)
            ));
        }
        let open = shapes.iter().map(|shape| {
            let same = before.and_then(|before| before.0.iter().find(|known| known.is(shape)));
            same.map_or_else(|| Arc::new(Table::new(shape)), Arc::clone)
        });
        Ok(Tables(open.collect()))
    }

    /// Returns new, empty tables of the same shapes.
    pub(super) fn emptied(&self) -> Tables {
        Tables(
            self.0
                .iter()
                .map(|table| Arc::new(Table::new(&table.shape)))
                .collect(),
        )
    }

    /// The table with this index in the manifest.
    fn get(&self, index: u32) -> Option<&Table> {
        self.0.get(index as usize).map(|table| &**table)
    }

    /// Maximum size of all tables, in bytes.
    pub(super) fn octets(&self) -> usize {
        self.0.iter().map(|table| table.octets()).sum()
    }
}

/// # Errors
///
/// Returns what is invalid.
fn check(shape: &TableShape) -> Result<(), String> {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    if !(1..=NAME).contains(&shape.name.len()) || !shape.name.bytes().all(plain) {
        return Err(format!(
            "the table {:?} needs a name of 1 to {NAME} ASCII letters, digits, `-`, `_` or `.`",
            super::text::one_line(&shape.name, NAME)
        ));
    }
    if shape.octets < SMALLEST {
        return Err(format!(
            "the table {:?} has {} bytes; the minimum is {SMALLEST}",
            shape.name, shape.octets
        ));
    }
    Ok(())
}
