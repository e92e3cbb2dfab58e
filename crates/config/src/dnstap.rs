//! `dnstap "unix:/run/dnstap.sock" { … }`: where DNS messages are logged.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Wrong, block, child, fitting, text, word};
use super::units::size;
use super::words::words;

words! {
    /// A `dnstap` as written.
    pub(super) struct Written in DNSTAP(1..=1): r#"dnstap "unix:/run/dnstap.sock" { messages "clients" }"#;

    /// `"unix:PATH"` or `"tcp:ADDRESS:PORT"`, where a program listens, or the path of a file.
    value "PLACE" to: Option<TapReader> = ("required") in reader, "a place";
    /// Which messages are logged.
    list "messages"(1..=2) messages: Vec<Whose> = ("both": "clients" "upstreams") in whose;
    /// This server's name in each message.
    one "identity" identity: Option<String> = ("the host's name": "node-1") in identity, "a name";
    /// Maximum size of a file.
    one "size" size: usize = "64MiB" in size(1 << 20..=1 << 40);
}

/// `dnstap "PLACE" { … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dnstap {
    /// Where the messages go.
    pub to: TapReader,
    /// Whether messages from and to clients are logged.
    pub clients: bool,
    /// Whether messages to and from upstreams are logged.
    pub upstreams: bool,
    /// This server's name in messages; `None`: the host's name.
    pub identity: Option<String>,
}

/// A destination or source of dnstap messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TapReader {
    /// `unix:PATH`: a program that listens on a unix socket.
    Unix(PathBuf),
    /// `tcp:ADDRESS:PORT`: a program that listens there.
    Tcp(SocketAddr),
    /// A file and its maximum size in bytes; when full, it is renamed with `.1` appended.
    File(PathBuf, u64),
}

/// Decodes the section, if there is one.
pub(super) fn decode(decoder: &mut Decoder, nodes: &[KdlNode]) -> Option<Dnstap> {
    let node = child(nodes, "dnstap")?;
    let written = DNSTAP.read(decoder, node);
    let nodes = block(node);
    let limit = child(nodes, "size");
    let tells = |whose| child(nodes, "messages").is_none() || written.messages.contains(&whose);
    let (clients, upstreams) = (tells(Whose::Clients), tells(Whose::Upstreams));
    let to = match written.to? {
        TapReader::Unix(path) => TapReader::Unix(decoder.files.at(path)),
        TapReader::File(path, _) => TapReader::File(decoder.files.at(path), written.size as u64),
        tcp => tcp,
    };
    if let (Some(limit), TapReader::Unix(_) | TapReader::Tcp(_)) = (limit, &to) {
        decoder.report(limit, "`size` is for a file, and this is a socket", "remove it");
    }
    Some(Dnstap {
        to,
        clients,
        upstreams,
        identity: written.identity,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Clients,
    Upstreams,
}

fn whose(value: &KdlValue) -> Result<Whose, Wrong> {
    let words = [("clients", Whose::Clients), ("upstreams", Whose::Upstreams)];
    word(&words)(value).map_err(|wrong| Wrong {
        problem: "is not whose messages they are".to_owned(),
        help: "write \"clients\", \"upstreams\" or both".to_owned(),
        ..wrong
    })
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
    /// Parses `unix:PATH`, `tcp:ADDRESS:PORT` or the path of a file, relative to the current folder.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
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
        None => Ok(TapReader::File(written.into(), (DNSTAP.default)().size as u64)),
    }
}

/// RFC 5001 sets no limit for a server's name, but readers show it on one line.
fn identity(value: &KdlValue) -> Result<String, Wrong> {
    let fits = |name: &str| (1..=255).contains(&name.len());
    let help = "write a name, such as the node's";
    fitting(value, fits, "does not have 1 to 255 bytes", help)
}
