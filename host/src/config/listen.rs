//! `listen`: where clients ask.

use std::net::SocketAddr;

use kdl::KdlNode;

use super::decode::{Mistakes, Shape, arguments, block, child, head};
use super::error::{Diagnostic, Span};
use super::units::{duration, ms, s, size};
use super::{Encryption, Identity, Listen, clients, decode, encrypted};

pub(super) const LISTEN: Shape = Shape {
    example: r#"listen "169.254.20.10" "10.96.0.10""#,
    arguments: 1..=64,
    properties: &[],
    children: &[
        "udp-size",
        "tcp-connections",
        "tcp-connections-per-client",
        "tcp-memory",
        "tcp-idle",
        "tcp-read",
        "tcp-write",
        "by-processor",
        "certificate",
        "clients",
    ],
    repeated: &["clients"],
};

/// The listen addresses with their places, for everything that must not clash with them.
#[derive(Default)]
pub(super) struct Listeners(pub(super) Vec<(SocketAddr, Span)>);

impl Listeners {
    /// The listener that gets what is sent to `to`, and its place. A wildcard listener gets what is
    /// sent to loopback; which other addresses it has is the node's affair and not known here.
    pub fn reached_by(&self, to: SocketAddr) -> Option<(SocketAddr, Span)> {
        let ip = to.ip().to_canonical();
        let takes = |listener: &SocketAddr| {
            let own = listener.ip().to_canonical();
            let wildcard = own.is_unspecified() && ip.is_loopback() && own.is_ipv4() == ip.is_ipv4();
            listener.port() == to.port() && (own == ip || wildcard)
        };
        self.0.iter().find(|(listener, _)| takes(listener)).copied()
    }

    /// Whether this is one of them.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.0.iter().any(|(listener, _)| *listener == address)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The listener that cannot have its port beside a server on this address, and its place. A wildcard takes the port on
    /// every address.
    pub fn sharing_port_with(&self, admin: SocketAddr) -> Option<(SocketAddr, Span)> {
        let same = |listener: &SocketAddr| {
            let own = listener.ip().to_canonical();
            let wildcard = own.is_unspecified() || admin.ip().is_unspecified();
            listener.port() == admin.port()
                && (own == admin.ip() || wildcard && own.is_ipv4() == admin.is_ipv4())
        };
        self.0.iter().find(|(listener, _)| same(listener)).copied()
    }

    /// The listener that is not bound to one address, and its place.
    pub fn wildcard(&self) -> Option<(SocketAddr, Span)> {
        self.0
            .iter()
            .find(|(listener, _)| listener.ip().is_unspecified())
            .copied()
    }
}

/// Decodes `listen`. The addresses come back even where something else is wrong, for later checks.
pub(super) fn decode(
    mistakes: &mut Mistakes,
    files: &mut encrypted::Files<'_>,
    node: &KdlNode,
) -> (Listen, Listeners) {
    mistakes.check(node, &LISTEN);
    let mut listeners = Listeners::default();
    let mut encrypted = Vec::new();
    for entry in arguments(node) {
        let Some((address, encryption)) = mistakes.value("listen", entry, encrypted::listener) else {
            continue;
        };
        let span = Span::from(entry.span());
        let earlier = listeners.0.iter().find(|(earlier, _)| *earlier == address);
        let shares = earlier.is_some() && shares(&encrypted, address, encryption);
        encrypted.extend(encryption.map(|encryption| (address, encryption)));
        match earlier {
            Some(_) if shares => {}
            Some((_, first)) => mistakes.push(
                Diagnostic::new(span, format!("{address} is listed twice"))
                    .label("again")
                    .other(*first, "first here")
                    .help("keep one of them"),
            ),
            None => listeners.0.push((address, span)),
        }
    }
    let nodes = block(node);
    let addresses: Vec<SocketAddr> = listeners.0.iter().map(|(address, _)| *address).collect();
    let number = decode::whole(1..=1_000_000);
    let listen = Listen {
        clients: clients::decode_of_listener(mistakes, nodes, &addresses),
        addresses,
        identity: identity(mistakes, files, node, &encrypted),
        encrypted,
        udp_size: mistakes
            .scalar(nodes, "udp-size 1232", decode::whole(512..=4096))
            .unwrap_or(1232),
        tcp_connections: mistakes.scalar(nodes, "tcp-connections 1024", &number),
        tcp_connections_per_client: mistakes
            .scalar(nodes, "tcp-connections-per-client 128", &number)
            .unwrap_or(128),
        tcp_memory: mistakes
            .scalar(nodes, r#"tcp-memory "16MiB""#, size(1 << 20..=64 << 30))
            .unwrap_or(16 << 20),
        tcp_idle: mistakes
            .scalar(nodes, r#"tcp-idle "10s""#, duration(ms(100)..=s(3600)))
            .unwrap_or(s(10)),
        tcp_read: mistakes
            .scalar(nodes, r#"tcp-read "5s""#, duration(ms(100)..=s(60)))
            .unwrap_or(s(5)),
        tcp_write: mistakes
            .scalar(nodes, r#"tcp-write "5s""#, duration(ms(100)..=s(60)))
            .unwrap_or(s(5)),
        by_processor: mistakes.switch(nodes, "by-processor"),
    };
    (listen, listeners)
}

/// Whether something can be spoken on an address on which something else is: what lies upon UDP, and what lies upon TCP.
fn shares(
    encrypted: &[(SocketAddr, Encryption)],
    address: SocketAddr,
    encryption: Option<Encryption>,
) -> bool {
    let mut spoken: Vec<Encryption> = encrypted
        .iter()
        .filter(|(known, _)| *known == address)
        .map(|(_, encryption)| *encryption)
        .collect();
    spoken.extend(encryption);
    let quic = spoken
        .iter()
        .filter(|encryption| **encryption == Encryption::Quic);
    encryption.is_some() && spoken.len() == 2 && quic.count() == 1
}

/// Decodes `certificate`, which encrypted listeners need and others do not.
fn identity(
    mistakes: &mut Mistakes,
    files: &mut encrypted::Files<'_>,
    node: &KdlNode,
    encrypted: &[(SocketAddr, Encryption)],
) -> Option<Identity> {
    match (child(block(node), "certificate"), encrypted.first()) {
        (Some(certificate), Some(_)) => encrypted::identity(mistakes, files, certificate),
        (Some(certificate), None) => {
            let problem = "`certificate` is for addresses with a scheme, and there is none";
            mistakes.push(
                Diagnostic::new(head(certificate), problem).help("write one: listen \"tls://192.0.2.1\""),
            );
            None
        }
        (None, Some((address, encryption))) => {
            let problem = format!("{}://{address} needs a certificate", encryption.word());
            mistakes.push(Diagnostic::new(head(node), problem).help(format!(
                "write in the block of `listen`: {}",
                encrypted::CERTIFICATE.example
            )));
            None
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, problems};
    use super::*;

    const REST: &str = "zone \".\" { forward \"192.0.2.1\" }\n";

    fn listen(text: &str) -> Listen {
        config(&format!("{text}\n{REST}")).listen
    }

    #[test]
    fn everything_but_the_addresses_has_a_default() {
        let listen = listen("listen \"127.0.0.1\" \"[::1]:8053\"");
        assert_eq!(
            listen.addresses,
            ["127.0.0.1:53".parse().unwrap(), "[::1]:8053".parse().unwrap()]
        );
        assert_eq!(
            (
                listen.tcp_connections,
                listen.tcp_connections_per_client,
                listen.tcp_memory
            ),
            (None, 128, 16 << 20)
        );
        assert_eq!(
            (listen.tcp_idle, listen.tcp_read, listen.tcp_write),
            (s(10), s(5), s(5))
        );
        assert!(!listen.by_processor);
    }

    #[test]
    fn every_word_is_read() {
        let listen = listen(
            "listen \"::1\" { tcp-connections 7; tcp-connections-per-client 3; tcp-memory \"2MiB\"
                tcp-idle \"3s\"; tcp-read \"1s\"; tcp-write \"200ms\"; by-processor }",
        );
        assert_eq!(
            (
                listen.tcp_connections,
                listen.tcp_connections_per_client,
                listen.tcp_memory
            ),
            (Some(7), 3, 2 << 20)
        );
        assert_eq!(
            (listen.tcp_idle, listen.tcp_read, listen.tcp_write),
            (s(3), s(1), ms(200))
        );
        assert!(listen.by_processor);
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("listen", "`listen` needs a value"),
            (
                "listen \"localhost\"",
                "`listen`: \"localhost\" is not an IP address",
            ),
            (
                "listen \"127.0.0.1:0\"",
                "`listen`: \"127.0.0.1:0\" has port 0, which cannot be used",
            ),
            ("listen 53", "`listen`: 53 is not an address"),
            (
                "listen \"tls://127.0.0.1\"",
                "tls://127.0.0.1:853 needs a certificate",
            ),
            (
                "listen \"127.0.0.1\" { certificate \"a.pem\" key=\"a.key\" }",
                "`certificate` is for addresses with a scheme, and there is none",
            ),
            (
                "listen \"dot://127.0.0.1\"",
                "`listen`: \"dot://127.0.0.1\" is of a scheme that is not known",
            ),
            ("listen \"::1\" \"[::1]:53\"", "[::1]:53 is listed twice"),
            (
                "listen \"::1\"\nlisten \"127.0.0.1\"",
                "`listen` is written twice",
            ),
            (
                "listen \"::1\" { tcp-connections 0 }",
                "`tcp-connections`: 0 is out of range",
            ),
            (
                "listen \"::1\" { tcp-idle \"2h\" }",
                "`tcp-idle`: \"2h\" is out of range",
            ),
            (
                "listen \"::1\" { tcp-idel \"2s\" }",
                "`tcp-idel` is not allowed in `listen`",
            ),
        ] {
            assert_eq!(problems(&format!("{text}\n{REST}")), [expected], "{text}");
        }
    }
}
