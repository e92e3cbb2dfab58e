//! Upstreams that reply without an answer: another one is tried.

use crate::harness::message::Record;
use crate::harness::upstream::{Asked, Reply};
use crate::harness::{Message, Proxy, Upstream, flags, forward_once};

/// A reply that is no answer, by its name in the metrics.
fn declined(how: &str, asked: &Asked) -> Reply {
    let mut message = asked.message_with(&[]);
    // Health probes are answered normally.
    if !asked.name().ends_with("test.") {
        return Reply::Message(message);
    }
    match how {
        "referral" => message.authority = vec![Record::parse("test. 300 NS ns.test.")],
        how => message = message.rcode_set(&how.to_uppercase()),
    }
    Reply::Message(message)
}

#[test]
fn one_that_cannot_answer_is_not_the_last_to_be_asked() {
    for how in ["formerr", "notimp", "notauth", "referral", "servfail", "refused"] {
        let first = Upstream::start(move |asked| declined(how, asked));
        let second = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
        let proxy = Proxy::start(&format!(
            "zone \".\" {{ forward \"{}\" \"{}\" {{ policy \"sequential\" }} }}",
            first.address, second.address
        ));
        assert_eq!(
            proxy.query("a.test", "A").answers(),
            ["a.test. A 192.0.2.1"],
            "{how}"
        );
        let to = first.address.to_string();
        let labels = [("to", &*to), ("reason", how)];
        proxy.await_metric("dnsweir_forward_failures_total", &labels, 1.0);
    }
}

/// If all upstreams reply the same, or there is only one, that reply is passed on.
#[test]
fn what_all_say_is_passed_on() {
    for how in ["formerr", "notimp", "notauth", "refused"] {
        let only = Upstream::start(move |asked| declined(how, asked));
        let proxy = Proxy::start(&format!("zone \".\" {{ {} }}", forward_once(only.address)));
        assert_eq!(proxy.query("a.test", "A").rcode(), how.to_uppercase());
    }
    let only = Upstream::start(|asked| declined("referral", asked));
    let proxy = Proxy::start(&format!("zone \".\" {{ {} }}", forward_once(only.address)));
    let referral = proxy.query("a.test", "A");
    assert_eq!(
        (referral.rcode(), referral.authority.len()),
        ("NOERROR".into(), 1)
    );
    // Without RD, a referral is the answer (RFC 1034 section 4.3.1).
    let query = Message::query("b.test", "A").clear(flags::RD);
    assert_eq!(proxy.ask(&query).authority.len(), 1);
    assert_eq!(only.count("b.test"), 1);
}

/// RFC 1034 section 5.3.3, step 4c: an upstream without recursion leaves the target of an alias to the
/// client.
#[test]
fn a_bare_alias_of_a_server_without_recursion_is_followed() {
    let whole = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let authority = Upstream::start(|asked| {
        let message = asked.message_with(&[&format!("{} 300 CNAME www.elsewhere.", asked.name())]);
        Reply::Message(message.clear(flags::RA).set(flags::AA))
    });
    let proxy = Proxy::start(&format!(
        "zone \"test\" {{ cache; {} }}\nzone \"elsewhere\" {{ cache; {} }}",
        forward_once(authority.address),
        forward_once(whole.address)
    ));
    for _ in 0..2 {
        assert_eq!(
            proxy.query("a.test", "A").answers(),
            ["a.test. CNAME www.elsewhere.", "www.elsewhere. A 192.0.2.1"]
        );
    }
    assert_eq!((authority.count("a.test"), whole.count("www.elsewhere")), (1, 1));
    assert_eq!(
        proxy.query("b.test", "CNAME").answers(),
        ["b.test. CNAME www.elsewhere."]
    );
}

/// Over TCP, some servers do not compress; such an answer fits more records into a datagram if it is
/// compressed before it is truncated (RFC 2181 section 9).
#[test]
fn an_answer_that_is_spelled_out_is_compressed_before_it_is_cut() {
    const NAME: &str = "a-rather-long-name-of-a-service.of-somebody.example.org";
    let upstream = Upstream::start(|asked| {
        let addresses: Vec<String> = (0..20).map(|n| format!("{NAME}. 300 A 192.0.2.{n}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(|line| &**line).collect();
        asked.answer(&addresses)
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; forward \"{}\" {{ protocol \"tcp\" }} }}",
        upstream.address
    ));
    for _ in 0..2 {
        let answer = proxy.query(NAME, "A");
        assert_eq!((answer.answers().len(), answer.has(flags::TC)), (20, false));
    }
}

/// Types that no record has, or that no server answers (RFC 9824 section 3.5, RFC 6895 section 3.1).
#[test]
fn types_of_no_records_are_not_forwarded() {
    let upstream = Upstream::start(|asked| asked.answer(&[]));
    let proxy = Proxy::start(&format!("zone \".\" {{ {} }}", forward_once(upstream.address)));
    for (qtype, rcode) in [
        ("TYPE0", "FORMERR"),
        ("TYPE128", "FORMERR"),
        ("TYPE250", "FORMERR"),
        ("TYPE253", "NOTIMP"),
        ("TYPE254", "NOTIMP"),
    ] {
        let answer = proxy.query_edns("meta.test", qtype);
        assert_eq!(
            (answer.rcode(), answer.extended_errors()),
            (rcode.into(), vec![30]),
            "{qtype}"
        );
    }
    assert_eq!(upstream.count("meta.test"), 0);
    proxy.query("meta.test", "TYPE129");
    assert_eq!(
        upstream.count("meta.test"),
        1,
        "RFC 3597 section 3: others may be anything"
    );
}

/// Address queries for single-label names are for hosts of the local network.
#[test]
fn plain_names_are_kept_at_home() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ forward \"{}\" {{ plain-names \"nxdomain\" }} }}",
        upstream.address
    ));
    let answer = proxy.query("printer", "A");
    assert_eq!((answer.rcode(), answer.authority.len()), ("NXDOMAIN".into(), 1));
    assert_eq!(proxy.query("printer", "AAAA").rcode(), "NXDOMAIN");
    assert_eq!(upstream.count("printer"), 0);
    proxy.query("test", "DS");
    proxy.query("printer.test", "A");
    assert_eq!((upstream.count("test"), upstream.count("printer.test")), (1, 1));
}
