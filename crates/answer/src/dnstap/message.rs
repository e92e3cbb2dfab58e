//! The part of `dnstap.proto` that a forwarder uses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::frames;
use crate::dns::Transport;

/// A query and its response.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The client, if it is not us.
    pub client: Option<SocketAddr>,
    /// The server, if it is not us.
    pub server: Option<SocketAddr>,
    /// The client's pod in readable form, if known.
    pub pod: Option<String>,
    /// The transport of both messages.
    pub transport: Transport,
    /// The whole query.
    pub query: &'a [u8],
    /// Time since the query was received or sent.
    pub took: Duration,
    /// The whole response, which was sent or received just now.
    pub response: Option<&'a [u8]>,
}

/// A client's query, or the response to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The client's address, if the frame has it.
    pub client: Option<IpAddr>,
    /// The client's transport; UDP if the frame does not say.
    pub transport: Transport,
    /// Whether this is the response.
    pub is_response: bool,
    /// The whole message.
    pub message: Vec<u8>,
}

/// The top-level message.
#[derive(Clone, PartialEq, prost::Message)]
struct Dnstap {
    #[prost(bytes = "vec", optional, tag = "1")]
    identity: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    version: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    extra: Option<String>,
    #[prost(message, required, tag = "14")]
    message: Message,
    /// Always 1, the type for messages.
    #[prost(int32, required, tag = "15")]
    kind: i32,
}

/// A message that was sent or received.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Message {
    #[prost(enumeration = "Kind", required, tag = "1")]
    kind: i32,
    #[prost(enumeration = "Family", optional, tag = "2")]
    family: Option<i32>,
    #[prost(enumeration = "Carrier", optional, tag = "3")]
    transport: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "4")]
    query_address: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    response_address: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "6")]
    query_port: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    response_port: Option<u32>,
    #[prost(uint64, optional, tag = "8")]
    query_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "9")]
    query_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "10")]
    query_message: Option<Vec<u8>>,
    #[prost(uint64, optional, tag = "12")]
    response_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "13")]
    response_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "14")]
    response_message: Option<Vec<u8>>,
}

/// The side of the proxy that the message was on, and its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Kind {
    ClientQuery = 5,
    ClientResponse = 6,
    ForwarderQuery = 7,
    ForwarderResponse = 8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Family {
    Inet = 1,
    Inet6 = 2,
}

/// The protocol that carried a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Carrier {
    Udp = 1,
    Tcp = 2,
    Tls = 3,
    Https = 4,
    /// Readers that predate this value show a number.
    Quic = 7,
}

impl From<Carrier> for Transport {
    fn from(carrier: Carrier) -> Transport {
        match carrier {
            Carrier::Udp => Transport::Udp,
            Carrier::Tcp => Transport::Tcp,
            Carrier::Tls => Transport::Tls,
            Carrier::Https => Transport::Https,
            Carrier::Quic => Transport::Quic,
        }
    }
}

impl Carrier {
    /// `None` if no network protocol carried it.
    fn of(transport: Transport) -> Option<Carrier> {
        match transport {
            Transport::Udp => Some(Carrier::Udp),
            Transport::Tcp => Some(Carrier::Tcp),
            Transport::Tls => Some(Carrier::Tls),
            Transport::Https => Some(Carrier::Https),
            Transport::Quic => Some(Carrier::Quic),
            Transport::Internal => None,
        }
    }
}

impl Message {
    /// Builds the message for a query; `now` is the time since 1970.
    pub fn query(kind: Kind, exchange: &Exchange<'_>, now: Duration) -> Message {
        Message {
            query_message: Some(exchange.query.to_vec()),
            ..Message::either(kind, exchange, now)
        }
    }

    /// Builds the message for the response, if there is one.
    pub fn response(kind: Kind, exchange: &Exchange<'_>, now: Duration) -> Option<Message> {
        let response = exchange.response?;
        let (seconds, nanoseconds) = parts(now);
        Some(Message {
            response_time_sec: seconds,
            response_time_nsec: nanoseconds,
            response_message: Some(response.to_vec()),
            ..Message::either(kind, exchange, now)
        })
    }

    fn either(kind: Kind, exchange: &Exchange<'_>, now: Duration) -> Message {
        let [client, server] = [exchange.client, exchange.server]
            .map(|side| side.map(|side| (side.ip().to_canonical(), u32::from(side.port()))));
        let family = client.or(server).map(|(address, _)| match address {
            IpAddr::V4(_) => Family::Inet.into(),
            IpAddr::V6(_) => Family::Inet6.into(),
        });
        let (seconds, nanoseconds) = parts(now.saturating_sub(exchange.took));
        Message {
            kind: kind.into(),
            family,
            transport: Carrier::of(exchange.transport).map(Into::into),
            query_address: client.map(|(address, _)| octets(address)),
            query_port: client.map(|(_, port)| port),
            response_address: server.map(|(address, _)| octets(address)),
            response_port: server.map(|(_, port)| port),
            query_time_sec: seconds,
            query_time_nsec: nanoseconds,
            ..Message::default()
        }
    }

    /// Wraps the message in a frame.
    pub fn frame(self, identity: &[u8], extra: Option<&str>) -> Vec<u8> {
        let dnstap = Dnstap {
            identity: Some(identity.to_vec()).filter(|identity| !identity.is_empty()),
            version: Some(concat!("dnsweir ", env!("CARGO_PKG_VERSION")).into()),
            extra: extra.map(str::to_owned),
            message: self,
            kind: 1,
        };
        frames::data(&dnstap)
    }
}

/// Parses a frame; `None` unless it holds a client's message. The input is not trusted: other programs write
/// frames, too.
pub(super) fn heard(frame: &[u8]) -> Option<Heard> {
    use prost::Message as _;
    let message = Dnstap::decode(frame).ok()?.message;
    let (is_response, octets) = match Kind::try_from(message.kind).ok()? {
        Kind::ClientQuery => (false, message.query_message),
        Kind::ClientResponse => (true, message.response_message),
        Kind::ForwarderQuery | Kind::ForwarderResponse => return None,
    };
    let transport = message
        .transport
        .and_then(|number| Carrier::try_from(number).ok());
    Some(Heard {
        client: message.query_address.as_deref().and_then(address),
        transport: transport.unwrap_or(Carrier::Udp).into(),
        is_response,
        message: octets?,
    })
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from).ok();
    four.or_else(|| <[u8; 16]>::try_from(octets).map(IpAddr::from).ok())
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn parts(since_1970: Duration) -> (Option<u64>, Option<u32>) {
    (Some(since_1970.as_secs()), Some(since_1970.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_frame_says_who_asked_whom_and_when() {
        let exchange = Exchange {
            client: Some("[::ffff:10.244.0.7]:40000".parse().unwrap()),
            server: None,
            pod: None,
            transport: Transport::Quic,
            query: b"query",
            took: Duration::from_secs(2),
            response: Some(b"response"),
        };
        let now = Duration::new(7, 8);
        let response = Message::response(Kind::ClientResponse, &exchange, now).unwrap();
        let frame = response.frame(b"node-1", Some("shop/cart-0"));
        let read = Dnstap::decode(&frame[4..]).unwrap();
        assert_eq!(
            usize::try_from(u32::from_be_bytes(*frame.first_chunk().unwrap())).unwrap(),
            frame.len() - 4
        );
        assert_eq!(read.extra.as_deref(), Some("shop/cart-0"));
        assert_eq!(read.message.query_address.as_deref(), Some(&[10, 244, 0, 7][..]));
        assert_eq!(read.message.family(), Family::Inet);
        assert_eq!(
            (read.message.query_time_sec, read.message.query_time_nsec),
            (Some(5), Some(8))
        );
        assert_eq!(
            (read.message.response_time_sec, read.message.response_time_nsec),
            (Some(7), Some(8))
        );
        assert_eq!(read.message.response_message.as_deref(), Some(&b"response"[..]));
        assert_eq!(read.message.query_message, None);
    }
}
