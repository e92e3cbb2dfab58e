//! Messages for a reader of dnstap (<https://dnstap.info>): Protocol Buffers in Frame Streams, to a socket or a file.
//!
//! Workers hand over whole frames and never wait: what the reader does not take in time is dropped and counted, as lines
//! of output are ([`output`](crate::output)).

mod file;
mod frames;
mod message;
mod reader;
mod stream;
mod tap;

pub use message::{Exchange, Heard};
pub use reader::Reader;
pub use tap::Tap;
