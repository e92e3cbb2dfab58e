//! `admin`: the HTTP addresses for operators, and what they show.

use std::net::SocketAddr;

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::address::address;
use super::decode::{Decoder, Wrong, boolean, fitting, property};
use super::error::Diagnostic;
use super::surroundings::Listeners;
use super::words::words;

words! {
    /// `admin "ADDRESS"…`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Admin in ADMIN(1..=8): r#"admin "127.0.0.1:9253""#, then finish;

    /// The addresses for HTTP; the default port is 9253.
    values "ADDRESS" addresses: Vec<SocketAddr> = ("required"), "addresses";
    /// `#false` serves only `/health`, `/ready` and `/metrics`: for addresses that others can reach.
    property "status" status: bool = true in boolean;
    /// Show names and clients in `/status`, on the page and in `dnsweir top`.
    property "queries" queries: Option<bool> = ("on loopback addresses") in boolean;
    /// The name under which browsers may open `/` and `/status`, besides `localhost` and addresses.
    property "host" host: Option<String> = ("none") in host, "a name without scheme and port";
}

/// The default port: that of node-cache's metrics.
const PORT: u16 = 9253;

fn finish(decoder: &mut Decoder, node: &KdlNode, admin: &mut Admin) {
    admin.addresses = addresses(decoder, node);
    let shown = [
        ("host", admin.host.is_some()),
        ("queries", admin.queries == Some(true)),
    ];
    for (name, _) in shown.into_iter().filter(|(_, shown)| *shown && !admin.status) {
        if let Some(entry) = property(node, name) {
            let problem = format!("`{name}` is about /status, which status=#false turns off");
            decoder.report(entry, problem, "leave out one of the two");
        }
    }
}

/// The address in an argument of `admin`.
pub(super) fn address_of(entry: &KdlEntry) -> Option<SocketAddr> {
    address(PORT)(entry.value()).ok()
}

/// Reads the addresses, whose ports must not clash with those of listeners for TCP.
fn addresses(decoder: &mut Decoder, node: &KdlNode) -> Vec<SocketAddr> {
    let mut own = Listeners::default();
    for (admin, span) in decoder.values_at(node, address(PORT)) {
        if let Some((listener, place)) = decoder.around.listeners.sharing_port_with(admin) {
            let problem = format!("{admin} is taken: {listener} already accepts TCP connections");
            let taken = Diagnostic::new(span, problem).other(place, "a listener serves UDP and TCP");
            decoder.push(taken.help("give `admin` another port: admin \"127.0.0.1:9253\""));
        }
        match own.sharing_port_with(admin) {
            Some((other, first)) => {
                let problem = format!("{admin} is served already: {other} includes it, or is the same");
                decoder.report_again(span, first, problem, "keep one of them");
            }
            None => own.0.push((admin, span)),
        }
    }
    own.0.into_iter().map(|(admin, _)| admin).collect()
}

/// Reads a host name as browsers send it in `Host`, without a port.
fn host(value: &KdlValue) -> Result<String, Wrong> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let fits = |name: &str| (1..=253).contains(&name.len()) && name.chars().all(is_name);
    let help =
        "write the name in the browser's address bar, without scheme and port: host=\"dns.example.org\"";
    fitting(value, fits, "is not the name of a host", help)
}
