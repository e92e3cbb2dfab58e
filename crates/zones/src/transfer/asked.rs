//! What is asked for.

use std::net::IpAddr;

/// A request for a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The zone, lowercased, in wire format.
    pub name: &'a [u8],
    /// AXFR or IXFR.
    pub qtype: u16,
    /// The question as it came: name, type, class.
    pub question: &'a [u8],
    /// The whole message.
    pub message: &'a [u8],
    /// Who asks.
    pub client: IpAddr,
    /// Whether there is a stream that a response of several messages can be sent on.
    pub stream: bool,
}
