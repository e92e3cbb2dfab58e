//! What a source is asked, by whom, and what it answers.
//!
//! A [`Question`] borrows all that a source may go by; a [`Resolution`] is what comes of it, without a name of whoever it is for.
//! [`identity`] is who asks, as far as that is known. [`dnstap`] has what went over the wire, for those who look. Nothing here
//! asks anybody anything.

#![forbid(unsafe_code)]

pub mod dnstap;
mod fallthrough;
pub mod identity;
mod question;
mod resolution;
mod status;

use dnsweir_config as config;
use dnsweir_os::output;
use dnsweir_wire::dns;

pub use fallthrough::Fallthrough;
pub use question::Question;
pub use resolution::{Alias, Refused, Resolution, Resolved};
pub use status::{Status, UpstreamStatus};
