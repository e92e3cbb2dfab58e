//! `dnstap "unix:/run/dnstap.sock" { … }`: where DNS messages are logged.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Wrong, block, child, fitting, text, word};
use super::units::size;
use super::words::words;

words! {
    /// `dnstap "PLACE" { … }`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Dnstap in DNSTAP(1..=1): r#"dnstap "unix:/run/dnstap.sock" { messages "clients" }"#, then finish;

    /// `"unix:PATH"` or `"tcp:ADDRESS:PORT"`, where a program listens, or the path of a file.
    value "PLACE" to: TapReader = ("required": "/var/log/dnstap", else TapReader::File(PathBuf::new(), 0))
        in reader, "a place";
    /// Which messages are logged.
    list "messages"(1..=2) messages: Vec<TapMessages> = ("both": "clients" "upstreams") in messages;
    /// This server's name in each message.
    one "identity" identity: Option<String> = ("the host's name": "node-1") in identity, "a name";
    /// Maximum size of a file.
    one "size" size: usize = "64MiB" in size(1 << 20..=1 << 40);
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

/// Messages that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapMessages {
    /// From and to clients.
    Clients,
    /// To and from upstreams.
    Upstreams,
}

impl Dnstap {
    /// Whether these messages are logged.
    pub fn logs(&self, messages: TapMessages) -> bool {
        self.messages.is_empty() || self.messages.contains(&messages)
    }
}

fn finish(decoder: &mut Decoder, node: &KdlNode, dnstap: &mut Dnstap) {
    if let TapReader::Unix(path) | TapReader::File(path, _) = &mut dnstap.to {
        *path = decoder.files.at(&*path);
    }
    match (&mut dnstap.to, child(block(node), "size")) {
        (TapReader::File(_, most), _) => *most = dnstap.size as u64,
        (_, Some(size)) => decoder.report(size, "`size` is for a file, and this is a socket", "remove it"),
        (_, None) => {}
    }
}

fn messages(value: &KdlValue) -> Result<TapMessages, Wrong> {
    let words = [
        ("clients", TapMessages::Clients),
        ("upstreams", TapMessages::Upstreams),
    ];
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
