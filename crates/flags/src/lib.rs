//! The flags of commands that are programs of their own. `dnsweir` parses them, too: it has all help texts.

#![forbid(unsafe_code)]

mod top;

pub use top::TopFlags;
