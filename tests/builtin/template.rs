//! `template`: answers built from the question.

use super::{anything, documented, start};
use crate::harness::client::ask_from;
use crate::harness::{Message, Proxy};

#[test]
fn the_documented_configuration_finds_addresses_in_names() {
    let upstream = anything();
    let proxy = Proxy::start(&documented("template", upstream.address));
    for _ in 0..2 {
        let answer = proxy.query("a.ip-192-0-2-7.ip.example", "A");
        assert_eq!(answer.answers(), ["a.ip-192-0-2-7.ip.example. A 192.0.2.7"]);
        assert_eq!(answer.ttl(), 60);
        assert!(answer.has(crate::harness::message::flags::AA), "{answer}");
        // It looks like an address, but is none.
        assert_eq!(proxy.query("ip-1-2-3-999.ip.example", "A").rcode(), "SERVFAIL");
        let denied = proxy.query("www.ip.example", "A");
        assert_eq!(denied.rcode(), "NXDOMAIN");
        let soa = "ip.example. SOA ns.ip.example. hostmaster.ip.example. 1 3600 600 86400 60";
        assert_eq!(denied.authority[0].without_ttl(), soa);
    }
    let labels = [("filter", "addresses"), ("name", "unreadable_records")];
    // Each worker remembers for itself.
    assert!(proxy.metrics().sum("dnsweir_filter_counter_total", &labels) >= 1.0);
    assert_eq!(upstream.count("www.ip.example"), 0);
}

#[test]
fn every_place_and_section_is_filled() {
    let config = r##"
        template "TXT" "MX" {
            zone "other.test" "test"
            match #"^(?<host>[a-z]+)\.x\."# "^([a-z]+)[.]y[.]" {BRACES}
            answer "{name} TXT \"{{0}}={0} {1} {type} {client}\"" "more.{zone} 30 IN A 192.0.2.1"
            authority "{zone} 40 NS ns.{zone}"
            additional "ns.{zone} 50 AAAA 2001:db8::1"
            rcode "NXDOMAIN"
            error 17 "no more"
            otherwise "servfail"
        }
        template "SRV" { match "^([a-z]+)[.]y[.]"; otherwise "pass" }
    "##;
    let upstream = anything();
    let proxy = start(
        "template",
        &config.replace(" {BRACES}", ""),
        "use \"f\"; cache",
        &upstream,
    );
    let from = |client: &str, name: &str| {
        let query = Message::query(name, "TXT").edns(1232);
        ask_from(client.parse().expect("an address"), proxy.address, &query)
    };
    for client in ["127.0.0.3", "127.0.0.4"] {
        let answer = from(client, "abc.x.test");
        assert_eq!(
            (answer.rcode().as_str(), answer.extended_errors()),
            ("NXDOMAIN", vec![17])
        );
        let text = format!("abc.x.test. TXT \"{{0}}=abc.x. abc TXT {client}\"");
        assert_eq!(answer.answers(), [text, "more.test. A 192.0.2.1".to_owned()]);
        assert_eq!(answer.ttls(), [3600, 30]);
        assert_eq!(answer.authority[0].without_ttl(), "test. NS ns.test.");
        assert_eq!(answer.additional[0].without_ttl(), "ns.test. AAAA 2001:db8::1");
    }
    assert_eq!(from("127.0.0.1", "b.y.other.test").answers.len(), 2);
    assert_eq!(from("127.0.0.1", "none.test").rcode(), "SERVFAIL");
    // Another zone, another type, and a template that passes what it does not match.
    assert_eq!(from("127.0.0.1", "abc.x.elsewhere").rcode(), "NOERROR");
    assert_eq!(
        proxy.query("abc.x.test", "A").answers(),
        ["abc.x.test. A 192.0.2.1"]
    );
    assert_eq!(proxy.query("none.test", "SRV").answers.len(), 1);
}

/// The answer is the same as if the client resolved the alias itself.
#[test]
fn what_an_alias_leads_to_follows_it() {
    let config = r#"template { match "^www[.]"; answer "{name} 30 CNAME web.test." }"#;
    let upstream = anything();
    let proxy = start("template", config, "use \"f\"; cache", &upstream);
    for _ in 0..2 {
        let answer = proxy.query("www.test", "A");
        assert_eq!(
            answer.answers(),
            ["www.test. CNAME web.test.", "web.test. A 192.0.2.1"]
        );
        assert_eq!(answer.ttls()[0], 30);
    }
    assert_eq!(
        proxy.query("www.test", "CNAME").answers(),
        ["www.test. CNAME web.test."]
    );
    assert_eq!(upstream.count("web.test"), 1);
}

/// Expressions that expect the final dot of a name, as those for CoreDNS do.
#[test]
fn expressions_may_see_the_last_dot() {
    let upstream = anything();
    let config = r##"
        template "TXT" { match "^a[.]test.$" #"^b\.test(\.)$"# #"^c\x2etest\x2e\z"# final-dot=#true; answer "{name} TXT \"{0}\"" }
    "##;
    let proxy = start("template", config, "use \"f\"", &upstream);
    for name in ["a.test", "b.test", "c.test"] {
        assert_eq!(
            proxy.query(name, "TXT").answers(),
            [format!("{name}. TXT \"{name}.\"")]
        );
    }
}
