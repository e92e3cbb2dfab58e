//! `block-list`: names on lists, exceptions, answers, and lists that change.

use std::fs;
use std::path::Path;

use super::{anything, configured, documented, example, start, upstream_says};
use crate::harness::{Proxy, forward_once, proxy, until};

/// Moves the list into place as a download would be.
fn write(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).expect("a list");
    fs::rename(new, file).expect("a list");
}

#[test]
fn the_documented_configuration_blocks_what_is_listed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("block-list.txt");
    write(&list, "# today's\n0.0.0.0 ads.example\n||track.example^\n");
    let upstream = anything();
    let path = list.display().to_string();
    let replaced = [("/etc/dnsweir/block-list.txt", &*path)];
    let proxy = Proxy::start(&documented("block-list", upstream.address, &replaced));
    for name in ["ads.example", "x.track.example", "x.telemetry.example"] {
        let answer = proxy.query_edns(name, "A");
        assert_eq!(answer.rcode(), "NXDOMAIN", "{name}: {answer}");
        // Blocked (RFC 8914 section 4.16).
        assert_eq!(answer.extended_errors(), [15], "{name}: {answer}");
    }
    for name in ["good.track.example", "www.example"] {
        assert_eq!(proxy.query(name, "A").answers(), upstream_says(name));
    }
    assert_eq!(upstream.count("ads.example"), 0);

    // Only the list changes.
    write(&list, "||new.example^\n");
    until("the changed list to be in force", || {
        proxy.query("new.example", "A").rcode() == "NXDOMAIN"
    });
    assert_eq!(
        proxy.query("ads.example", "A").answers(),
        upstream_says("ads.example")
    );

    // A list with a mistake changes nothing. The log says what is wrong and where.
    let generation = proxy.generation();
    write(&list, "||new.example^\n<html>502 Bad Gateway</html>\n");
    let line = proxy.process.logged("line 2: ");
    assert!(line.contains("<html>502"), "{line}");
    proxy.await_metric_within("dnsweir_reloads_total", &[("result", "failed")], 1.0..);
    assert_eq!(proxy.generation(), generation);
    assert_eq!(proxy.query("new.example", "A").rcode(), "NXDOMAIN");

    // A valid list is accepted again.
    write(&list, "||newer.example^\n");
    until("the mended list to be in force", || {
        proxy.query("newer.example", "A").rcode() == "NXDOMAIN"
    });
}

/// Next to the configuration, without a folder.
#[test]
fn a_list_that_cannot_be_taken_is_underlined() {
    let upstream = anything();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let text = configured("block-list", "list (file)\"list.txt\"", &upstream);
    fs::write(&file, format!("listen \"127.0.0.1\"\n{text}")).expect("a configuration");
    let check = || {
        let output = proxy::check(&file);
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (good, said) = check();
    assert!(!good && said.contains("list.txt cannot be read"), "{said}");
    write(&folder.path().join("list.txt"), "ads.example\nads example\n");
    let (good, said) = check();
    assert!(!good && said.contains("line 2: the text before a name"), "{said}");
    assert!(said.contains("list (file)\"list.txt\""), "{said}");
    write(&folder.path().join("list.txt"), "ads.example\n");
    let (good, said) = check();
    assert!(good, "{said}");
}

#[test]
fn blocked_names_get_the_answer_that_is_written() {
    let upstream = anything();
    let block = "block \"ads.example\" \"bad.test\"\nallow \"fine.ads.example\"";
    for (answer, qtype, expected) in [
        ("answer \"null\"\nttl \"5m\"", "A", "A 0.0.0.0"),
        ("answer \"null\"\nttl \"5m\"", "AAAA", "AAAA ::"),
        (
            "answer \"192.0.2.9\" \"2001:db8::9\"\nttl \"5m\"",
            "A",
            "A 192.0.2.9",
        ),
        (
            "answer \"192.0.2.9\" \"2001:db8::9\"\nttl \"5m\"",
            "AAAA",
            "AAAA 2001:db8::9",
        ),
    ] {
        let proxy = start("block-list", &format!("{block}\n{answer}"), &upstream);
        let answer = proxy.query("x.ads.example", qtype);
        assert_eq!(answer.answers(), [format!("x.ads.example. {expected}")]);
        assert_eq!(answer.ttl(), 300);
        let nothing = proxy.query("bad.test", "TXT");
        assert_eq!(
            (nothing.rcode().as_str(), nothing.answers.len()),
            ("NOERROR", 0),
            "{nothing}"
        );
        assert_eq!(nothing.authority.len(), 1, "{nothing}");
        assert_eq!(
            proxy.query("fine.ads.example", "A").answers(),
            upstream_says("fine.ads.example")
        );
    }
}

#[test]
fn unknown_lines_may_be_skipped() {
    let upstream = anything();
    let lists = "list \"ads.example\\n/banner/\\n\" unknown=\"skip\"";
    let proxy = start("block-list", lists, &upstream);
    proxy
        .process
        .logged("1 lines of a list skipped; the first is line 2: ");
    assert_eq!(proxy.query("ads.example", "A").rcode(), "NXDOMAIN");
}

/// The README's statement about memory: 100 000 names fit into the default limit, and a larger list is
/// refused with the limit's name.
#[test]
fn a_large_list_needs_memory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("list.txt");
    let list: String = (0..100_000)
        .map(|number| format!("||host-{number}.ads-{}.example^\n", number % 1000))
        .collect();
    write(&file, &list);
    let upstream = anything();
    let text = |limits: &str| {
        format!(
            "filter \"f\" {{ module \"{}\"; limits time=\"1s\" {limits}; config {{ list (file)\"{}\" }} }}\n\
             zone \".\" {{ use \"f\"; {} }}\n",
            example("block-list").display(),
            file.display(),
            forward_once(upstream.address)
        )
    };
    let mut small = Proxy::launch(&text("memory=\"4MiB\""), &[]);
    small.process.logged("`limits memory=`");
    assert!(!small.process.ended().success());

    let proxy = Proxy::start(&text(""));
    assert_eq!(
        proxy.query("a.host-4711.ads-711.example", "A").rcode(),
        "NXDOMAIN"
    );
    assert_eq!(
        proxy.query("ads-711.example", "A").answers(),
        upstream_says("ads-711.example")
    );
    let memory = proxy
        .metrics()
        .sum("dnsweir_filter_memory_bytes", &[("filter", "f")]);
    eprintln!("100 000 names, {} octets: {memory} octets of memory", list.len());
    assert!((1e6..16.0 * 1_048_576.0).contains(&memory), "{memory}");
}
