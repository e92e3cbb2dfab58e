//! A client of HTTP/1.1 servers: one connection, one request at a time, bounded bodies.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )
)]

mod body;
mod endpoint;
mod error;
mod session;

pub use body::{Chunks, Lines, collect};
pub use endpoint::{Endpoint, Way};
pub use error::Error;
pub use session::Session;

#[cfg(test)]
mod tests;
