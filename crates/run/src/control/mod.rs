//! Requests to a running process, over a unix socket that only its owner can use: dump and flush cached
//! answers, change the log level, and check its health.
//!
//! A request is a line of words. The reply is text to the end of the stream; its first line is `ok` or an
//! error.

mod client;
mod dump;
mod request;
mod server;

pub use client::send;
pub use request::Request;
pub use server::Server;

/// The largest request in bytes: the longest name as text, and words around it.
const LONGEST: usize = 2048;

/// Prefix of an error.
const ERROR: &str = "error: ";
