//! Zone files that change, and those with mistakes.

use std::fs;
use std::path::Path;

use harness::{Proxy, flags, proxy, until};

const ZONE: &str = "$TTL 60\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\nwww A 192.0.2.1\n$INCLUDE more\n";

fn write(folder: &Path, zone: &str, more: &str) {
    fs::write(folder.join("more"), more).unwrap();
    fs::write(folder.join("zone"), zone).unwrap();
}

fn address(proxy: &Proxy, name: &str) -> Vec<String> {
    proxy.query(name, "A").answers()
}

/// The old data is served until there is something better.
#[test]
fn a_changed_file_is_served_and_a_bad_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), ZONE, "a A 192.0.2.2\n");
    let file = folder.path().join("zone");
    let proxy = Proxy::start(&format!("zone \"example.org\" {{ file {file:?} }}"));
    let answer = proxy.query("WWW.example.org.", "A");
    assert_eq!(answer.answers(), ["WWW.example.org. A 192.0.2.1"]);
    assert!(answer.has(flags::AA));
    let (_, page) = proxy.get("/status");
    assert!(
        page.contains("example.org. with serial 1 and 4 records"),
        "{page}"
    );
    // Included files are watched, too.
    write(folder.path(), ZONE, "a A 192.0.2.3\n");
    until("the changed file", || {
        address(&proxy, "a.example.org.") == ["a.example.org. A 192.0.2.3"]
    });
    let failed = |proxy: &Proxy| {
        proxy
            .metrics()
            .sum("dnsweir_reloads_total", &[("result", "failed")])
    };
    let before = failed(&proxy);
    write(folder.path(), ZONE, "\na A 192.0.2.4\nb A 192.0.2\n");
    until("the mistake to be found", || failed(&proxy) > before);
    assert_eq!(address(&proxy, "a.example.org."), ["a.example.org. A 192.0.2.3"]);
    let (_, page) = proxy.get("/status");
    assert!(
        page.contains("more:3: the data of this A record cannot be read"),
        "{page}"
    );
    write(
        folder.path(),
        &ZONE.replace("admin 1", "admin 2"),
        "a A 192.0.2.5\n",
    );
    until("the mended file", || {
        address(&proxy, "a.example.org.") == ["a.example.org. A 192.0.2.5"]
    });
    assert_eq!(
        proxy
            .metrics()
            .sum("dnsweir_file_serial", &[("origin", "example.org.")]),
        2.0
    );
}

#[test]
fn mistakes_are_reported_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &format!("{ZONE}c NS\n"), "a A 192.0.2\nb B\n");
    let configuration = folder.path().join("dnsweir.kdl");
    fs::write(
        &configuration,
        "listen \"127.0.0.1\"\nzone \"example.org\" { file \"zone\" }\n",
    )
    .unwrap();
    let checked = proxy::check(&configuration);
    let said =
        String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success());
    for part in [
        "more:1: the data of this A record",
        "more:2: \"B\" is not a record type",
        "zone:6: the data of this NS record",
        "write it as: A 192.0.2.1",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Each zone uses the shared file, unless it names its own.
#[test]
fn one_file_serves_several_names() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), ZONE, "");
    let file = folder.path().join("zone");
    let proxy = Proxy::start(&format!(
        "zone \"a.example\" \"b.example\" {{ file {file:?} }}\n\
         zone \"example\" {{ file {file:?} {{ origin \"c.example\"; fallthrough }}; file {file:?} }}"
    ));
    for name in [
        "www.a.example.",
        "www.b.example.",
        "www.c.example.",
        "www.example.",
    ] {
        assert_eq!(address(&proxy, name), [format!("{name} A 192.0.2.1")]);
    }
    assert_eq!(proxy.query("none.c.example.", "A").rcode(), "NXDOMAIN");
}

/// RFC 4035 section 3.1.4.1, with both sides of the cut served here.
#[test]
fn ds_is_answered_above_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (parent, child) = (folder.path().join("parent"), folder.path().join("child"));
    let digest = "0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF";
    let cut = format!("sub NS ns\nsub DS 1 13 2 {digest}\nbare NS ns\n");
    fs::write(
        &parent,
        format!("$TTL 60\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\n{cut}"),
    )
    .unwrap();
    fs::write(
        &child,
        "$TTL 60\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\nwww A 192.0.2.1\n",
    )
    .unwrap();
    for cache in ["", "cache;"] {
        let proxy = Proxy::start(&format!(
            "zone \"example\" {{ {cache} file {parent:?} }}\nzone \"sub.example\" \"bare.example\" {{ {cache} file {child:?} }}\n\
             zone \"alone.test\" {{ {cache} file {child:?} }}"
        ));
        let above = proxy.query("sub.example.", "DS");
        let kinds: Vec<(&str, u16)> = above
            .answers
            .iter()
            .map(|record| (record.name.as_str(), record.rtype))
            .collect();
        assert_eq!(kinds, [("sub.example.", 43)]);
        assert!(above.has(flags::AA));
        for (name, owner) in [
            ("bare.example.", "example."),
            // The zone above is not served here.
            ("alone.test.", "alone.test."),
            ("www.sub.example.", "sub.example."),
        ] {
            let nothing = proxy.query(name, "DS");
            assert_eq!(
                (nothing.rcode(), nothing.answers().len()),
                ("NOERROR".into(), 0),
                "{name}"
            );
            assert_eq!(nothing.authority[0].name, owner, "{name}");
        }
        assert_eq!(
            proxy.query("www.sub.example.", "A").answers(),
            ["www.sub.example. A 192.0.2.1"]
        );
    }
}
