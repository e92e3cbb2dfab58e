//! What the process can be told while it runs, over a unix socket that only its owner can use: to show and forget cached
//! answers, to log more or less, and to say whether it is well.
//!
//! A request is a line of words, and the reply is text to the end of the stream: first a line that says `ok` or what is wrong.

mod client;
mod dump;
mod request;
mod server;

pub use client::send;
pub use request::Request;
pub use server::Server;

/// Octets of a request, at most: the longest name as text, and words around it.
const LONGEST: usize = 2048;

/// What stands in front of an error.
const ERROR: &str = "error: ";
