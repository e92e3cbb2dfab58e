//! Questions to a source, and its answers.
//!
//! A [`Question`] borrows everything that a source may base its answer on; a [`Resolution`] is the result,
//! and does not name the client. [`Upkeep`] is all else that a source does. [`identity`] says which pod a
//! client is, if known. [`dnstap`] logs the messages on the wire. Nothing here sends a query.

#![forbid(unsafe_code)]

pub mod dnstap;
mod fallthrough;
pub mod identity;
mod question;
mod resolution;
mod status;
mod upkeep;

use dnsweir_config as config;
use dnsweir_counts::metrics;
use dnsweir_os::{background, output};
use dnsweir_wire::dns;

pub use fallthrough::Fallthrough;
pub use question::Question;
pub use resolution::{Alias, Refused, Resolution, Resolved};
pub use status::{Status, UpstreamStatus};
pub use upkeep::{Awaited, Names, Part, Upkeep};
