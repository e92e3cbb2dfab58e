//! Fetches `https://` files of the configuration.
//!
//! [`Client`] makes requests conditional on the copy it has ([`copies`]), so that unchanged contents are not
//! sent again, and enforces the size and time limits of a [`Location`](crate::config::Location). Hosts are
//! resolved through the configuration's [`Upstreams`], never through dnsweir itself. Failures are
//! retried as [`Attempts`](dnsweir_counts::attempts::Attempts) decides, which logs a failure once. All of it
//! does blocking file I/O: it belongs on a thread that answers no queries.

mod client;
mod copies;
mod fetch_error;
#[cfg(test)]
mod tests;

pub use crate::agent::{Found, Upstreams, addresses_of};
pub use client::Client;
pub use copies::Copies;
