//! How one attempt fails, and how a whole resolution does.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::message::NotAQuery;
use crate::dns::edns::ExtendedError;
use dnsweir_config::tls::{self, Problem};

/// Why one attempt at one upstream ended without a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No reply within the attempt's time.
    #[error("did not answer in time")]
    Timeout,
    /// Nothing listens there: ICMP port unreachable, or a TCP reset while connecting.
    #[error("refused the connection")]
    Refused,
    /// A network error on the way to it.
    #[error("could not be reached ({0})")]
    Network(io::ErrorKind),
    /// It closed the TCP connection with the query on it.
    #[error("closed the connection before it answered")]
    Closed,
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(Problem),
    /// Over HTTPS, a status other than 200.
    #[error("answered with the HTTP status {0}")]
    Http(u16),
    /// Its reply has the right ID and question, but is not a valid DNS message otherwise.
    #[error("sent a malformed reply")]
    Malformed,
    /// Its socket was given up after too many datagrams that match no query.
    #[error("was given up after too many replies that match no query")]
    Forged,
    /// All its connections carry as many queries as allowed, or no further socket may be opened.
    #[error("was not asked, since all its sockets and connections are in use")]
    Busy,
    /// The query did not leave this node.
    #[error(
        "was not asked, since this node dropped the query: its connection tracking table is full, or a rule forbids it"
    )]
    Denied,
    /// This process could not create a socket. Says nothing about the upstream.
    #[error("was not asked, since no socket could be created ({0})")]
    Local(io::ErrorKind),
}

impl Fault {
    /// The fault that an error of a connected socket means.
    pub(super) fn of_network(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::PermissionDenied => Self::Denied,
            // No free port or no memory: our fault, not the upstream's.
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
                Self::Local(error.kind())
            }
            kind => Self::Network(kind),
        }
    }

    /// The fault that an error on an established connection means: it was closed, or why TLS failed.
    pub(super) fn of_stream(error: &io::Error) -> Self {
        tls::error_in(error).map_or(Self::Closed, |error| Self::Tls(Problem::of(error)))
    }

    /// Whether the same upstream is worth another attempt for this query. What was lost may arrive the second
    /// time; what was refused stays refused for now.
    pub(super) fn may_pass(self) -> bool {
        matches!(self, Self::Timeout | Self::Closed | Self::Forged)
    }

    /// Whether it means that a server is absent, whatever the query: one address may have several servers,
    /// and a route may appear a moment later.
    pub(super) fn is_of_one_server(self) -> bool {
        matches!(
            self,
            Self::Refused | Self::Network(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable)
        )
    }

    /// Whether it says nothing about the next attempt: a descriptor for a socket may be free by then.
    pub(super) fn is_of_one_attempt(self) -> bool {
        self.is_of_one_server() || matches!(self, Self::Local(_))
    }

    /// Whether this node caused it, so that it says nothing about the name asked for.
    pub(super) fn is_local(self) -> bool {
        matches!(
            self,
            // There is no route: the node has no network, or not yet.
            Self::Local(_) | Self::Denied | Self::Busy | Self::Network(io::ErrorKind::NetworkUnreachable)
        )
    }

    /// Whether the upstream may be down, which a probe then finds out.
    pub(super) fn blames_upstream(self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::Refused
                | Self::Network(_)
                | Self::Closed
                | Self::Malformed
                | Self::Tls(_)
                | Self::Http(_)
        )
    }
}

/// Why [`Forward::race`](super::Forward::race) has no answer. Its text names the upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// As many queries are under way as `concurrent` allows.
    Overloaded {
        /// The value of `concurrent`.
        concurrent: usize,
    },
    /// It was under way, and another query displaced it.
    Displaced,
    /// The message cannot be sent as a query.
    NotAQuery(NotAQuery),
    /// Every upstream loops back to this proxy.
    AllLoop,
    /// No upstream is known yet.
    NoUpstreams,
    /// Every attempt failed.
    NoReply(Vec<(SocketAddr, Fault)>),
    /// The deadline passed before the first attempt could begin.
    NoTime,
}

impl Failure {
    /// Whether one of this process's own limits played a part. Then it says nothing about the name asked for,
    /// and is no resolution failure to cache (RFC 9520 section 2).
    pub fn is_local(&self) -> bool {
        match self {
            Self::Overloaded { .. }
            | Self::Displaced
            | Self::NotAQuery(_)
            | Self::NoTime
            | Self::NoUpstreams => true,
            Self::NoReply(tried) => tried.iter().any(|(_, fault)| fault.is_local()),
            Self::AllLoop => false,
        }
    }

    /// The extended error for the client (RFC 8914 section 4).
    pub fn extended_error(&self) -> ExtendedError {
        match self {
            Self::NoReply(tried) if tried.iter().all(|(_, fault)| *fault == Fault::Timeout) => {
                ExtendedError::NoReachableAuthority
            }
            Self::NoReply(_) => ExtendedError::NetworkError,
            Self::AllLoop | Self::NoUpstreams => ExtendedError::NoReachableAuthority,
            Self::Overloaded { .. } | Self::Displaced | Self::NotAQuery(_) | Self::NoTime => {
                ExtendedError::Other
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overloaded { concurrent } => {
                write!(
                    f,
                    "{concurrent} queries are already being forwarded, as many as `concurrent` allows"
                )
            }
            Self::Displaced => f.write_str(
                "it gave way to another query: as many are being forwarded as `concurrent` allows",
            ),
            Self::NotAQuery(why) => write!(f, "the message cannot be forwarded: {why}"),
            Self::AllLoop => f.write_str("every upstream forwards back to this proxy"),
            Self::NoUpstreams => f.write_str("no upstream is known yet"),
            Self::NoTime => f.write_str("the deadline passed before an upstream could be asked"),
            Self::NoReply(tried) => {
                f.write_str("no upstream answered: ")?;
                for (index, (address, fault)) in tried.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{address} {fault}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Failure {}

impl From<NotAQuery> for Failure {
    fn from(why: NotAQuery) -> Self {
        Self::NotAQuery(why)
    }
}
