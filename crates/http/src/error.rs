//! Why a request has no answer.

use std::io;

use hyper::StatusCode;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection to the server.
    #[error("cannot connect to {server}")]
    Connect {
        /// The server, as in its URL.
        server: String,
        /// The last attempt's problem.
        source: io::Error,
    },
    /// The proxy refuses to lead to the server.
    #[error("the proxy answered {status} when asked for a connection to {server}")]
    Proxy {
        /// The server, with its port.
        server: String,
        /// The proxy's answer.
        status: StatusCode,
    },
    /// The connection broke, or what came is not HTTP.
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    /// A body, or one of its lines, is larger than this many bytes.
    #[error("it sent more than {0} bytes at once")]
    TooLarge(usize),
}
