//! `whoami`: a client as the proxy sees it.

use super::{anything, documented};
use crate::harness::client::ask_from;
use crate::harness::{Message, Proxy};

#[test]
fn clients_are_told_who_they_are() {
    let upstream = anything();
    let proxy = Proxy::start(&documented("whoami", upstream.address));
    let query = Message::query("a.whoami.test", "TXT");
    for from in ["127.0.0.7", "127.0.0.8"] {
        let answer = ask_from(from.parse().expect("an address"), proxy.address, &query);
        assert_eq!((answer.rcode().as_str(), answer.answers.len()), ("NOERROR", 0));
        let [address, port] = &answer.additional[..] else {
            panic!("{answer}")
        };
        assert_eq!(address.without_ttl(), format!("a.whoami.test. A {from}"));
        assert!(
            port.without_ttl().starts_with("_udp.a.whoami.test. SRV 0 0 "),
            "{answer}"
        );
        assert_eq!((address.ttl, port.ttl), (0, 0));
    }
    let mut stream = proxy.connect();
    let port = stream.socket().local_addr().expect("an address").port();
    let answer = stream.ask(&query);
    let service = answer.additional[1].without_ttl();
    assert_eq!(service, format!("_tcp.a.whoami.test. SRV 0 0 {port} ."));
    assert_eq!(upstream.count("a.whoami.test"), 0);
}
