//! `hosts`: answers from a table.

use super::{anything, start};
use crate::harness::{Message, Proxy, Stream, Upstream, flags};

#[test]
fn names_have_their_addresses_and_no_other_data() {
    let upstream = anything();
    let config =
        "host \"db.test\" \"192.0.2.7\" \"2001:db8::7\"\nhost \"DB.test\" \"192.0.2.8\"\nttl \"90s\"";
    let proxy = start("hosts", config, "use \"f\"", &upstream);
    let v4 = proxy.query("db.test", "A");
    assert_eq!(v4.answers(), ["db.test. A 192.0.2.7", "db.test. A 192.0.2.8"]);
    assert_eq!(v4.ttls(), [90, 90]);
    assert_eq!(proxy.query("Db.Test", "AAAA").answers().len(), 1);
    // A known name with another type gets NODATA, and is not forwarded.
    let other = proxy.query("db.test", "MX");
    assert_eq!((other.rcode().as_str(), other.answers.len()), ("NOERROR", 0));
    assert_eq!(upstream.count("db.test"), 0);
    // Names that are not in the table pass.
    assert_eq!(
        proxy.query("other.test", "A").answers(),
        ["other.test. A 192.0.2.1"]
    );
    assert_eq!(
        proxy.query("below.db.test", "A").answers(),
        ["below.db.test. A 192.0.2.1"]
    );
}

#[test]
fn an_hour_is_the_ttl_unless_written() {
    let upstream = anything();
    let proxy = start("hosts", "host \"db.test\" \"192.0.2.7\"", "use \"f\"", &upstream);
    assert_eq!(proxy.query("db.test", "A").ttl(), 3600);
}

#[test]
fn wildcards_cover_what_is_not_listed() {
    let upstream = anything();
    let config = "host \"*.apps.test\" \"192.0.2.7\"\nhost \"own.apps.test\" \"192.0.2.8\"";
    let proxy = start("hosts", config, "use \"f\"", &upstream);
    assert_eq!(
        proxy.query("any.apps.test", "A").answers(),
        ["any.apps.test. A 192.0.2.7"]
    );
    assert_eq!(
        proxy.query("a.b.apps.test", "A").answers(),
        ["a.b.apps.test. A 192.0.2.7"]
    );
    assert_eq!(
        proxy.query("own.apps.test", "A").answers(),
        ["own.apps.test. A 192.0.2.8"]
    );
    assert_eq!(
        proxy.query("apps.test", "A").answers(),
        ["apps.test. A 192.0.2.1"]
    );
}

#[test]
fn addresses_have_their_names() {
    let upstream = anything();
    let config = "host \"db.test\" \"192.0.2.7\" \"2001:db8::7\"";
    let with = start("hosts", config, "use \"f\"", &upstream);
    assert_eq!(
        with.query("7.2.0.192.in-addr.arpa", "PTR").answers(),
        ["7.2.0.192.in-addr.arpa. PTR db.test."]
    );
    let v6 = "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
    assert_eq!(with.query(v6, "PTR").answers(), [format!("{v6}. PTR db.test.")]);
    let without = start(
        "hosts",
        &format!("{config}\nreverse #false"),
        "use \"f\"",
        &upstream,
    );
    without.query("7.2.0.192.in-addr.arpa", "PTR");
    assert_eq!(upstream.count("7.2.0.192.in-addr.arpa"), 1);
}

/// The table is complete for its zones: other names in them do not exist, with an SOA record for caches.
#[test]
fn a_zone_of_the_table_is_complete() {
    let upstream = anything();
    let config = "zone \"demo.test\"\nhost \"hello.demo.test\" \"127.0.0.53\"\nttl \"60s\"";
    let proxy = start("hosts", config, "use \"f\"", &upstream);
    let denied = proxy.query("none.demo.test", "A");
    assert_eq!((denied.rcode().as_str(), denied.authority.len()), ("NXDOMAIN", 1));
    assert_eq!(
        (denied.authority[0].name.as_str(), denied.authority[0].ttl),
        ("demo.test.", 60)
    );
    let no_data = proxy.query("hello.demo.test", "MX");
    assert_eq!(
        (no_data.rcode().as_str(), no_data.authority.len()),
        ("NOERROR", 1)
    );
    assert_eq!(proxy.query("demo.test", "SOA").answers.len(), 1);
    assert!(
        upstream
            .everything()
            .iter()
            .all(|asked| !asked.name().ends_with("demo.test."))
    );
}

/// A pipeline may end in a table: nothing is forwarded, and unlisted names are refused.
#[test]
fn a_pipeline_may_end_in_a_table() {
    let proxy = Proxy::start(
        "filter \"f\" { module \"builtin:hosts\"; limits time=\"1s\"; config { host \"a.test\" \"192.0.2.7\" } }\nzone \"test\" { use \"f\" }",
    );
    assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.7"]);
    assert_eq!(proxy.query("b.test", "A").rcode(), "REFUSED");
}

/// The format is that of /etc/hosts; names that are not in the file fail.
#[test]
fn a_hosts_file_can_be_all_there_is() {
    let upstream = anything();
    let file = upstream.address.ip().to_string().replace('.', "-");
    let path = std::env::temp_dir().join(format!("dnsweir-hosts-{file}"));
    std::fs::write(&path, "# by hand\n192.0.2.7 db.test www.test\n").expect("a hosts file");
    let config = format!("file (file){path:?}\nunlisted \"servfail\"");
    let proxy = start("hosts", &config, "use \"f\"", &upstream);
    std::fs::remove_file(&path).expect("the hosts file");
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.7"]);
    assert_eq!(proxy.query("other.test", "A").rcode(), "SERVFAIL");
    assert_eq!(upstream.count("other.test"), 0);
}

/// A proxy with a hosts file like a block list: one address for so many names.
fn with_a_block_list(lines: usize, upstream: &Upstream) -> Proxy {
    let file = upstream.address.ip().to_string().replace('.', "-");
    let path = std::env::temp_dir().join(format!("dnsweir-many-hosts-{file}"));
    let lines: String = (0..lines)
        .map(|at| format!("0.0.0.0 host-{at:05}.advertisements.test\n"))
        .collect();
    std::fs::write(&path, lines).expect("a hosts file");
    let config = format!("file (file){path:?}");
    let proxy = start("hosts", &config, "use \"f\"", upstream);
    std::fs::remove_file(&path).expect("the hosts file");
    proxy
}

/// The manifest has nearly as many names as it may have. If there are more, names that are not listed reach
/// the filter, which passes them.
#[test]
fn a_hosts_file_may_have_many_lines() {
    let upstream = anything();
    for lines in [16_600, 20_000] {
        let proxy = with_a_block_list(lines, &upstream);
        let last = format!("host-{}.advertisements.test", lines - 1);
        assert_eq!(proxy.query(&last, "A").answers(), [format!("{last}. A 0.0.0.0")]);
        assert_eq!(
            proxy.query("other.test", "A").answers(),
            ["other.test. A 192.0.2.1"]
        );
    }
}

/// They are more than a call may hand over.
#[test]
fn an_address_with_too_many_names_is_cut() {
    let upstream = anything();
    let proxy = with_a_block_list(20_000, &upstream);
    for _ in 0..3 {
        let query = Message::query("0.0.0.0.in-addr.arpa", "PTR");
        let names = Stream::connect(proxy.address).ask(&query);
        assert_eq!((names.rcode().as_str(), names.answers.len()), ("NOERROR", 2048));
        let listed = proxy.query("host-19999.advertisements.test", "A").answers();
        assert_eq!(listed, ["host-19999.advertisements.test. A 0.0.0.0"]);
    }
}

/// A name has more addresses than fit into a message: the answer is truncated, and TC is set.
#[test]
fn a_name_with_too_many_addresses_is_cut() {
    let upstream = anything();
    let addresses: String = (0..6000)
        .map(|at| format!(" \"10.0.{}.{}\"", at >> 8, at & 255))
        .collect();
    let proxy = start(
        "hosts",
        &format!("host \"wide.test\"{addresses}\nreverse #false"),
        "use \"f\"",
        &upstream,
    );
    for _ in 0..3 {
        let wide = Stream::connect(proxy.address).ask(&Message::query("wide.test", "A"));
        assert_eq!((wide.rcode().as_str(), wide.answers.len()), ("NOERROR", 4094));
        assert_eq!(wide.header & flags::TC, flags::TC);
    }
    assert_eq!(
        proxy.query("other.test", "A").answers(),
        ["other.test. A 192.0.2.1"]
    );
}
