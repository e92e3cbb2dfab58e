//! DNS as octets and as text.
//!
//! [`dns`] reads and writes messages in the caller's buffers. [`zonefile`] reads zones as people write them, and says what is
//! wrong with them. Nothing here opens a socket, knows the time, or knows anything else of the proxy.

#![forbid(unsafe_code)]

pub mod dns;
pub mod zonefile;
