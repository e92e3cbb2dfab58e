//! `dnstap "unix:/run/dnstap.sock" { … }`: who is told of messages.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kdl::{KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Wrong, arguments, block, child, head, text};
use super::error::Diagnostic;
use super::units::size;

pub(super) const DNSTAP: Shape = Shape {
    example: r#"dnstap "unix:/run/dnstap.sock" { messages "clients" }"#,
    arguments: 1..=1,
    properties: &[],
    children: &["messages", "identity", "size"],
    repeated: &[],
};

pub(super) const MESSAGES: Shape = Shape::plain(1..=2, r#"messages "clients" "upstreams""#);

/// Octets of a file, unless written otherwise.
const SIZE: u64 = 64 << 20;

/// `dnstap "PLACE" { … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dnstap {
    /// Who or what gets the messages.
    pub to: TapReader,
    /// Those from and to clients are told.
    pub clients: bool,
    /// Those to and from upstreams are.
    pub upstreams: bool,
    /// What this server is called; none: the host's name.
    pub identity: Option<String>,
}

/// Who or what gets dnstap's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TapReader {
    /// `unix:PATH`: whoever listens on a socket.
    Unix(PathBuf),
    /// `tcp:ADDRESS:PORT`: whoever listens there.
    Tcp(SocketAddr),
    /// A file, of so many octets at most; one that was full is kept with `.1` behind its name.
    File(PathBuf, u64),
}

/// The section, if there is one.
pub(super) fn decode(mistakes: &mut Mistakes, folder: &Path, nodes: &[KdlNode]) -> Option<Dnstap> {
    let node = child(nodes, "dnstap")?;
    mistakes.check(node, &DNSTAP);
    let to = arguments(node)
        .next()
        .and_then(|entry| mistakes.value("dnstap", entry, reader));
    let nodes = block(node);
    let limit = child(nodes, "size");
    let size = mistakes.scalar(nodes, "size \"64MiB\"", size(1 << 20..=1 << 40));
    let identity = mistakes.scalar(nodes, "identity \"node-1\"", identity);
    let (mut clients, mut upstreams) = (true, true);
    if let Some(node) = child(nodes, "messages") {
        mistakes.check(node, &MESSAGES);
        (clients, upstreams) = (false, false);
        for entry in arguments(node) {
            match mistakes.value("messages", entry, whose) {
                Some(Whose::Clients) => clients = true,
                Some(Whose::Upstreams) => upstreams = true,
                None => {}
            }
        }
    }
    let to = match to? {
        TapReader::Unix(path) => TapReader::Unix(folder.join(path)),
        TapReader::File(path, _) => TapReader::File(folder.join(path), size.map_or(SIZE, |size| size as u64)),
        tcp => tcp,
    };
    if let (Some(limit), TapReader::Unix(_) | TapReader::Tcp(_)) = (limit, &to) {
        let problem = "`size` is for a file, and this is a socket";
        mistakes.push(Diagnostic::new(head(limit), problem).help("remove it"));
    }
    Some(Dnstap {
        to,
        clients,
        upstreams,
        identity,
    })
}

enum Whose {
    Clients,
    Upstreams,
}

fn whose(value: &KdlValue) -> Result<Whose, Wrong> {
    match text(value)?.as_str() {
        "clients" => Ok(Whose::Clients),
        "upstreams" => Ok(Whose::Upstreams),
        _ => Err(Wrong::new(
            "is not whose messages they are",
            "write \"clients\", \"upstreams\" or both",
        )),
    }
}

impl fmt::Display for TapReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TapReader::Unix(path) => write!(f, "unix:{}", path.display()),
            TapReader::Tcp(address) => write!(f, "tcp:{address}"),
            TapReader::File(path, _) => write!(f, "{}", path.display()),
        }
    }
}

impl TapReader {
    /// Reads `unix:PATH`, `tcp:ADDRESS:PORT` or the path of a file, relative to the folder that a program is in.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(written: &str) -> Result<TapReader, String> {
        parse(written).map_err(|wrong| format!("{written:?} {}: {}", wrong.problem, wrong.help))
    }
}

fn reader(value: &KdlValue) -> Result<TapReader, Wrong> {
    parse(&text(value)?)
}

fn parse(written: &str) -> Result<TapReader, Wrong> {
    if let Some(path) = written.strip_prefix("unix:") {
        return match path {
            "" => Err(Wrong::new(
                "names no socket",
                "write its path: \"unix:/run/dnstap.sock\"",
            )),
            path => Ok(TapReader::Unix(path.into())),
        };
    }
    match written.strip_prefix("tcp:") {
        Some(address) => address.parse().map(TapReader::Tcp).map_err(|_| {
            Wrong::new(
                "is not an address with a port",
                "write it as in \"tcp:192.0.2.1:6000\"",
            )
        }),
        None if written.is_empty() || written.contains("://") => Err(Wrong::new(
            "is not where dnstap can be written",
            "write \"unix:/PATH\", \"tcp:ADDRESS:PORT\" or a file's path",
        )),
        None => Ok(TapReader::File(written.into(), SIZE)),
    }
}

/// RFC 5001 says nothing of how long a server's name may be; readers show it in a line.
fn identity(value: &KdlValue) -> Result<String, Wrong> {
    let name = text(value)?;
    match name.len() {
        1..=255 => Ok(name),
        _ => Err(Wrong::new(
            "has not 1 to 255 octets",
            "write a name, such as the node's",
        )),
    }
}
