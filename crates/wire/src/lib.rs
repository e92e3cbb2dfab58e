//! DNS in wire format and as text.
//!
//! [`dns`] reads and writes messages in the caller's buffers. [`zonefile`] reads zone files and reports
//! mistakes in them, and [`hex`] is hexadecimal text. Nothing here opens a socket, reads the time, or knows
//! anything else of the proxy.

#![forbid(unsafe_code)]

pub mod dns;
pub mod hex;
pub mod zonefile;
