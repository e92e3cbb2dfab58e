//! DNS in wire format and as text.
//!
//! [`dns`] reads and writes messages in the caller's buffers. [`zonefile`] reads zone files and reports
//! mistakes in them. Nothing here opens a socket, reads the time, or knows anything else of the proxy.

#![forbid(unsafe_code)]

pub mod dns;
pub mod zonefile;
