//! Files that the configuration names by `https://`, fetched by the one HTTPS client that there is.
//!
//! [`Client`] asks with what it knows of the copy that it has ([`copies`]), so that what did not change is not sent again, and
//! takes no more octets and no more time than a [`Location`](crate::config::Location) allows. Names of servers are asked of the
//! configuration's upstreams ([`upstreams`]), never of dnsweir itself. What fails is tried again as [`Attempts`](dnsweir_counts::attempts::Attempts) says, which tells a failure
//! once. All of it reads and writes files, which may wait for the disk: it belongs on a thread that answers nobody.

mod client;
mod copies;
mod fetch_error;
#[cfg(test)]
mod tests;
mod upstreams;

pub use client::Client;
pub use copies::Copies;
pub(crate) use upstreams::NOT_WRITTEN;
pub use upstreams::{Found, Upstreams, addresses_of, is_inside};
