//! Resolves the hosts of servers to fetch from.
//!
//! The node's resolv.conf may name dnsweir, which may not answer yet, or not without what is to be fetched.
//! So hosts are resolved through the upstreams configured for their names, which are never dnsweir itself,
//! bypassing its filters and its cache. TLS, not DNS, verifies the server.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::config::{self, Config, Encryption, Forward, Protocol, SourceConfig, Stage};
use crate::dns::name::{Name, skip_plain};
use crate::dns::records::{Answer, Section, Walk, counts};
use crate::dns::suffix_map::SuffixMap;
use crate::dns::{
    CLASS_IN, HEADER, MESSAGE_MAXIMUM, QUESTION_TAIL, build, flag, rcode, rcode_text, rtype, u16_at,
};
use crate::tls;

/// How long one server may take to answer.
const TIME: Duration = Duration::from_secs(2);

/// How often each server is asked.
const ROUNDS: usize = 2;

/// Address types (RFC 1035 section 3.2.2, RFC 3596 section 2.1).
const TYPES: [u16; 2] = [rtype::A, rtype::AAAA];

/// The upstreams of the configuration's zones.
#[derive(Debug, Clone, Default)]
pub struct Upstreams(Arc<SuffixMap<Vec<Server>>>);

/// One upstream.
#[derive(Debug, Clone)]
struct Server {
    address: SocketAddr,
    /// TLS settings and the server's name, if it must be asked over TLS.
    secured: Option<(tls::Client, ServerName<'static>)>,
    /// Another encryption that it requires, which is not supported here.
    other: Option<Encryption>,
}

impl Upstreams {
    /// Collects the upstreams of all zones that forward.
    pub fn of(config: &Config) -> Upstreams {
        let mut zones = SuffixMap::default();
        for zone in &config.zones {
            let forwards = zone.stages.iter().filter_map(|stage| match stage {
                Stage::Source(SourceConfig::Forward(forward)) => Some(servers(forward)),
                _ => None,
            });
            let servers: Vec<Server> = forwards.flatten().collect();
            for name in zone.names.iter().filter_map(|name| Name::parse(name).ok()) {
                zones.insert(name.as_bytes(), servers.clone());
            }
        }
        Upstreams(Arc::new(zones))
    }

    /// Returns all addresses of a host.
    pub(super) async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if host == "localhost" {
            // RFC 6761 section 6.3.
            return Ok(vec![[127, 0, 0, 1].into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let name = Name::parse(host).map_err(|error| io::Error::other(error.to_string()))?;
        let servers = self.0.longest(name.as_bytes()).map_or(&[][..], Vec::as_slice);
        if servers.is_empty() {
            let problem = "no zone of the configuration forwards this name: write the server's address, as in address=\"192.0.2.1\"";
            return Err(io::Error::other(problem));
        }
        ask_each(servers, &name).await.map(|found| found.addresses)
    }
}

/// The addresses of a host.
#[derive(Debug)]
pub struct Found {
    /// All addresses, of both families.
    pub addresses: Vec<IpAddr>,
    /// How long they are valid: the lowest TTL of the records.
    pub ttl: Duration,
}

/// Resolves a host over UDP or TCP, with the first of these servers that answers.
///
/// # Errors
/// The last failure, if none has an address.
pub async fn addresses_of(servers: &[SocketAddr], host: &str) -> io::Result<Found> {
    let name = Name::parse(host).map_err(|error| io::Error::other(error.to_string()))?;
    let plain = |&address: &SocketAddr| Server {
        address,
        secured: None,
        other: None,
    };
    let servers: Vec<Server> = servers.iter().map(plain).collect();
    ask_each(&servers, &name).await
}

/// Asks servers in turn, more than once, until one has an address.
async fn ask_each(servers: &[Server], name: &Name) -> io::Result<Found> {
    let mut problem = None;
    for server in (0..ROUNDS).flat_map(|_| servers) {
        match ask(server, name).await {
            Ok(found) => return Ok(found),
            Err(error) => problem = Some(format!("{}: {error}", server.address)),
        }
    }
    Err(io::Error::other(problem.unwrap_or_default()))
}

/// Returns the upstreams of one `forward`.
fn servers(forward: &Forward) -> Vec<Server> {
    let client = forward.client();
    let server = |upstream: &config::Upstream| Server {
        address: upstream.address,
        other: match forward.protocol {
            Protocol::Encrypted(other @ (Encryption::Https | Encryption::Quic)) => Some(other),
            _ => None,
        },
        secured: client.clone().map(|client| {
            let name = tls::server_name_at(upstream.name.as_deref(), upstream.address.ip());
            (client, name)
        }),
    };
    forward.upstreams.iter().map(server).collect()
}

/// Resolves a host with one server. It may have no address of one type, or of both.
async fn ask(server: &Server, name: &Name) -> io::Result<Found> {
    let [v4, v6] = TYPES.map(|qtype| ask_for(server, name, qtype));
    let (v4, v6) = tokio::join!(v4, v6);
    let found = match (v4, v6) {
        (Ok(v4), Ok(v6)) => [v4, v6].concat(),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) if !one.is_empty() => one,
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let Some(ttl) = found.iter().map(|(_, ttl)| *ttl).min() else {
        return Err(io::Error::other("has no addresses of it"));
    };
    Ok(Found {
        addresses: found.into_iter().map(|(address, _)| address).collect(),
        ttl: Duration::from_secs(ttl.into()),
    })
}

/// Resolves addresses of one family, each with its TTL in seconds.
async fn ask_for(server: &Server, name: &Name, qtype: u16) -> io::Result<Vec<(IpAddr, u32)>> {
    let mut query = build::upstream_query(name.as_bytes(), qtype, CLASS_IN, flag::RD, false, None);
    let id: [u8; 2] = rand::random();
    query[..2].copy_from_slice(&id);
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let address = server.address;
    if let Some(other) = server.other {
        let problem = format!(
            "is asked over {}://, and servers of files are looked up over UDP, TCP or TLS only: write the server's \
             address, as in address=\"192.0.2.1\"",
            other.word()
        );
        return Err(io::Error::other(problem));
    }
    let answer = match &server.secured {
        Some(secured) => timeout(TIME, over_tls(address, secured, &query))
            .await
            .map_err(late)??,
        None => match timeout(TIME, over_udp(address, &query)).await.map_err(late)?? {
            answer if u16_at(&answer.message, 2) & flag::TC != 0 => {
                timeout(TIME, over_tcp(address, &query)).await.map_err(late)??
            }
            answer => answer,
        },
    };
    if answer.rcode != rcode::NOERROR && answer.rcode != rcode::NXDOMAIN {
        return Err(io::Error::other(format!("answers {}", rcode_text(answer.rcode))));
    }
    let message = &answer.message;
    let question_end = HEADER + name.as_bytes().len() + QUESTION_TAIL;
    // Addresses behind a CNAME have other owners.
    let records = Walk::new(message, question_end, counts(message)).map_while(Result::ok);
    let addresses = records.filter_map(|record| {
        let data = message.get(record.data)?;
        let address = match (record.section, record.rtype) {
            (Section::Answer, rtype::A) => IpAddr::from(<[u8; 4]>::try_from(data).ok()?),
            (Section::Answer, rtype::AAAA) => IpAddr::from(<[u8; 16]>::try_from(data).ok()?),
            _ => return None,
        };
        Some((address, record.ttl))
    });
    Ok(addresses.collect())
}

async fn over_udp(server: SocketAddr, query: &[u8]) -> io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; MESSAGE_MAXIMUM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Anything else may be an attempt at forgery.
        if let Some(answer) = answer_to(query, &buffer[..length]) {
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Answer> {
    over_stream(TcpStream::connect(server).await?, query).await
}

async fn over_tls(
    server: SocketAddr,
    (client, name): &(tls::Client, ServerName<'static>),
    query: &[u8],
) -> io::Result<Answer> {
    let connector = TlsConnector::from(client.config().map_err(io::Error::other)?);
    let stream = TcpStream::connect(server).await?;
    over_stream(connector.connect(name.clone(), stream).await?, query).await
}

async fn over_stream(mut stream: impl AsyncRead + AsyncWrite + Unpin, query: &[u8]) -> io::Result<Answer> {
    let length = query.len() as u16;
    stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
    stream.flush().await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    answer_to(query, &answer).ok_or_else(|| io::Error::other("answers something else"))
}

/// Reads the answer to this query, if it is one.
fn answer_to(query: &[u8], message: &[u8]) -> Option<Answer> {
    let end = skip_plain(query, HEADER).ok()? + QUESTION_TAIL;
    let (asked, answered) = (query.get(HEADER..end)?, message.get(HEADER..end)?);
    let is_answer = message[..2] == query[..2]
        && u16_at(message, 2) & flag::QR != 0
        && message[4..6] == query[4..6]
        // Only the name has letters: types and class are small numbers.
        && answered.eq_ignore_ascii_case(asked);
    is_answer.then(|| Answer::read(message.to_vec()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_id_and_the_question_of_its_query() {
        let name = Name::parse("lists.example").unwrap();
        let mut query = build::upstream_query(name.as_bytes(), rtype::A, CLASS_IN, flag::RD, false, None);
        query[..2].copy_from_slice(&[7, 8]);
        let question = &query[HEADER..HEADER + name.as_bytes().len() + QUESTION_TAIL];
        let answer = |question: &[u8]| {
            let mut answer = build::empty(question, rcode::REFUSED);
            answer[..2].copy_from_slice(&[7, 8]);
            answer
        };
        let right = answer(question);
        assert_eq!(answer_to(&query, &right).unwrap().rcode, rcode::REFUSED);
        assert!(answer_to(&query, &answer(&question.to_ascii_uppercase())).is_some());
        for length in 0..right.len() {
            assert!(answer_to(&query, &right[..length]).is_none(), "{length}");
        }
        let other = build::upstream_query(name.as_bytes(), rtype::AAAA, CLASS_IN, flag::RD, false, None);
        assert!(answer_to(&query, &answer(&other[HEADER..][..question.len()])).is_none());
        let mut wrong = right.clone();
        wrong[0] = 0;
        assert!(answer_to(&query, &wrong).is_none());
        // The query itself.
        assert!(answer_to(&query, &query).is_none());
    }
}
