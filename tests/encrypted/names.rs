//! The TLS server name, as filters see it.

use super::{NAME, authority_in, folder, named};
use crate::harness::certificates::Authority;
use crate::harness::guests::verdicts;
use crate::harness::{Message, Proxy, Upstream, address};

#[test]
fn filters_know_the_name_that_a_client_asked_for() {
    let (folder, authority) = (folder(), Authority::new());
    let ca = authority_in(folder.path(), &authority);
    let (certificate, key) = authority.issue(&[NAME]).write(folder.path(), "server");
    let (address, https) = (address::fresh_socket(), address::fresh_socket());
    let module = verdicts();
    let upstream = Upstream::zone(&["example. 300 SOA . . 1 1 1 1 1"]);
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" \"tls://{address}\" \"quic://{address}\" \"https://{https}\" {{ certificate \"{}\" key=\"{}\" }}\n\
         workers 1\nfilter \"verdicts\" {{ module {module:?} }}\nfilter \"log\" {{ module \"builtin:log\" }}\n\
         zone \".\" {{ use \"log\"; use \"verdicts\"; forward \"{}\" }}",
        certificate.display(),
        key.display(),
        upstream.address
    ));
    for (scheme, at) in [("tls", address), ("quic", address), ("https", https)] {
        let (to, path) = (named(at, NAME), if scheme == "https" { "/dns-query" } else { "" });
        let asking = Proxy::start(&format!(
            "workers 1\nzone \"example\" {{ forward \"{scheme}://{to}{path}\" {{ tls {{ ca \"{ca}\" }} }} }}"
        ));
        asking.query(&format!("shown-{scheme}.example"), "A");
        let start = format!("query shown-{scheme}.example. at {at}");
        let line = proxy.process.printed(scheme, |line| line.starts_with(&start));
        assert!(line.ends_with(&format!(" as {NAME}")), "{line}");
    }
    // All listeners for connections share the same code.
    let _ = proxy.connect().ask(&Message::query("shown-tcp.example", "A"));
    let line = proxy
        .process
        .printed("tcp", |line| line.starts_with("query shown-tcp.example. "));
    assert!(line.ends_with(" subnet none"), "{line}");
}
