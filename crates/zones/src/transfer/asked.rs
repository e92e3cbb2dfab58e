//! Transfer requests.

use std::net::IpAddr;

/// A request for a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The zone's name, lowercased, in wire format.
    pub name: &'a [u8],
    /// AXFR or IXFR.
    pub qtype: u16,
    /// The question as received: name, type, class.
    pub question: &'a [u8],
    /// The whole message.
    pub message: &'a [u8],
    /// The client's address.
    pub client: IpAddr,
    /// Whether the client is on a stream, which can carry a response of several messages.
    pub stream: bool,
}
