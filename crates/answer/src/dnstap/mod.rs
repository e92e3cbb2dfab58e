//! Logging of messages to a dnstap reader (<https://dnstap.info>): Protocol Buffers in Frame Streams, over a
//! socket or to a file.
//!
//! Workers hand over whole frames and never wait: frames that the reader does not take in time are dropped
//! and counted, like lines of output ([`output`](crate::output)).

mod file;
mod frames;
mod message;
mod reader;
mod stream;
mod tap;

pub use message::{Exchange, Heard};
pub use reader::Reader;
pub use tap::Tap;
