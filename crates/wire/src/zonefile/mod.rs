//! Zone files (RFC 1035 section 5): from text to what a zone has at each name.
//!
//! [`entries`] finds entries and their words, [`reader`] does what directives say and makes records of the rest, and
//! [`builder`] sees that they make a zone: a [`Zone`], which never changes again.

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
pub use reader::{Bounds, read};
pub use transferred::from_records;
pub use zone::{Chain, Hashed, Node, Redirect, Set, Zone};
