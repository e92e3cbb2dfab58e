//! Zone files (RFC 1035 section 5): from text to the records at each name.
//!
//! [`entries`] splits text into entries and words, [`reader`] executes directives and parses the rest into
//! records, and [`builder`] checks that they form a zone: an immutable [`Zone`].

mod builder;
mod canonical;
mod entries;
mod generate;
mod mistake;
mod reader;
mod record;
mod transferred;
mod zone;

#[cfg(test)]
mod tests;

pub use canonical::compare;
pub use reader::{Bounds, Invalid, read};
pub use transferred::from_records;
pub use zone::{Chain, Hashed, Node, Redirect, Set, Zone};
