//! `dnsweir check`: reports all mistakes of a file in one run, each with its line.

use std::fs;
use std::process::Output;

use crate::harness::proxy;

/// The output of `dnsweir check` for this text, and its exit code. Adds the required `listen` at the end.
fn check(text: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("mistaken.kdl");
    let listen = if text.contains("listen ") {
        ""
    } else {
        "listen \"127.0.0.1\"\n"
    };
    std::fs::write(&file, [text, listen].concat()).expect("a configuration file");
    let Output {
        status,
        stdout,
        stderr,
    } = proxy::check(&file);
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    (status.code(), said)
}

/// The lines that `dnsweir check` points at, sorted: it writes them as `mistaken.kdl:LINE:COLUMN`.
fn lines(said: &str) -> Vec<usize> {
    let places = said.split("mistaken.kdl:").skip(1);
    let mut lines: Vec<usize> = places
        .filter_map(|place| place.split(':').next()?.parse().ok())
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

#[test]
fn a_valid_file_is_accepted_silently_enough() {
    let (code, said) = check("zone \".\" {\n    cache\n    forward \"192.0.2.1\"\n}\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(lines(&said).is_empty(), "{said}");
}

/// Five mistakes of five kinds are five reports, each with its line.
#[test]
fn five_mistakes_are_five_reports() {
    let text = r#"listen "127.0.0.1:15353"
lissen "127.0.0.1:5354"
workers "two"
zone "example" {
    use "nobody"
    forward "192.0.2.1"
}
zone "example" {
    forward "192.0.2.2"
}
zone "." {
    forward "192.0.2.3"
    cache
}
"#;
    let (code, said) = check(text);
    assert_eq!(code, Some(64), "{said}");
    let found = lines(&said);
    for (line, mistake) in [
        (2, "unknown node"),
        (3, "wrong type"),
        (5, "undefined filter"),
        (8, "duplicate zone"),
        (13, "unreachable stage"),
    ] {
        assert!(
            found.contains(&line),
            "{mistake} in line {line} is not among {found:?}:\n{said}"
        );
    }
    assert_eq!(found.len(), 5, "{said}");
}

/// Every kind of mistake that the issue lists, alone in its file, is found in the right line.
#[test]
fn every_kind_of_mistake_is_found_in_its_line() {
    let zone = "zone \".\" {\n    forward \"192.0.2.1\"\n}\n";
    let filter = |inside: &str| {
        format!(
            "filter \"f\" {{\n    {inside}\n}}\nzone \".\" {{\n    use \"f\"\n    forward \"192.0.2.1\"\n}}\n"
        )
    };
    let stages = |inside: &str| format!("zone \".\" {{\n{inside}\n    forward \"192.0.2.1\"\n}}\n");
    let cases = [
        ("syntax", format!("{zone}zone \"a\" {{\n"), 4),
        ("an unknown node", format!("listn \"127.0.0.1\"\n{zone}"), 1),
        ("an unknown node in a zone", stages("    cash"), 2),
        (
            "an unknown node in a cache",
            stages("    cache {\n        succes max=\"1s\"\n    }"),
            3,
        ),
        (
            "an unknown property",
            stages("    cache {\n        success maximum=\"1s\"\n    }"),
            3,
        ),
        ("a wrong type", format!("workers \"many\"\n{zone}"), 1),
        (
            "a duration without a unit",
            stages("    cache {\n        success max=\"30\"\n    }"),
            3,
        ),
        (
            "a size that is none",
            format!("cache-memory \"plenty\"\n{zone}"),
            1,
        ),
        (
            "an address that is none",
            format!("listen \"localhost\"\n{zone}"),
            1,
        ),
        (
            "a port out of range",
            format!("listen \"127.0.0.1:70000\"\n{zone}"),
            1,
        ),
        ("a duplicate zone", format!("{zone}{zone}"), 4),
        (
            "a zone that is no name",
            format!("zone \"a..b\" {{\n    forward \"192.0.2.1\"\n}}\n{zone}"),
            1,
        ),
        (
            "a forwarder to itself",
            "listen \"127.0.0.1:5399\"\nzone \".\" {\n    forward \"127.0.0.1:5399\"\n}\n".to_owned(),
            3,
        ),
        ("an undefined filter", stages("    use \"nobody\""), 2),
        ("two caches", stages("    cache\n    cache"), 3),
        (
            "an unreachable stage",
            "zone \".\" {\n    forward \"192.0.2.1\"\n    cache\n}\n".to_owned(),
            3,
        ),
        ("a missing module", filter("module \"/nowhere/at/all.wasm\""), 2),
        ("an unknown builtin", filter("module \"builtin:nothing\""), 2),
        (
            "an unknown policy",
            "zone \".\" {\n    forward \"192.0.2.1\" {\n        policy \"best\"\n    }\n}\n".to_owned(),
            3,
        ),
        (
            "a failure policy that is none",
            filter("module \"builtin:hosts\"; on-error \"panic\""),
            2,
        ),
        (
            "an unknown node mode",
            format!("node {{\n    interface \"d\"; mode \"magic\"\n}}\n{zone}"),
            2,
        ),
    ];
    for (mistake, text, line) in cases {
        let (code, said) = check(&text);
        assert_eq!(code, Some(64), "{mistake}:\n{text}\n{said}");
        assert_eq!(lines(&said), [line], "{mistake}:\n{text}\n{said}");
    }
}

/// A module must match its digest, or the configuration is wrong.
#[test]
fn a_bad_digest_is_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("f.wasm"), b"\0asm\x01\0\0\0").expect("a module");
    let file = folder.path().join("mistaken.kdl");
    let digest = "0".repeat(64);
    let text = format!(
        "listen \"127.0.0.1\"; filter \"f\" {{\n    module \"f.wasm\"\n    sha256 \"{digest}\"\n}}\nzone \".\" {{\n    use \"f\"\n    \
         forward \"192.0.2.1\"\n}}\n"
    );
    std::fs::write(&file, text).expect("a configuration file");
    let output = proxy::check(&file);
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert_eq!(lines(&said), [3], "{said}");
}

/// A mistake found by a filter is underlined in the user's file, like any other.
#[test]
fn a_mistake_that_the_filter_finds_has_its_line() {
    let text = "filter \"table\" {\n    module \"builtin:hosts\"\n    config {\n        host \"a.test\" \"192.0.2.1\"\n        nonsense \"at all\"\n    }\n}\n\
                zone \".\" {\n    use \"table\"\n    forward \"192.0.2.1\"\n}\n";
    let (code, said) = check(text);
    assert_eq!(code, Some(64), "{said}");
    assert_eq!(lines(&said), [5], "{said}");
}

/// Both commands that read a file report a missing one.
#[test]
fn a_missing_file_is_reported() {
    let missing = std::path::Path::new("/nowhere/dnsweir.kdl");
    let output = proxy::check(missing);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/dnsweir.kdl"));

    let run = proxy::command().args(["run", "--config"]).arg(missing).output();
    let run = run.expect("dnsweir run");
    assert!(!run.status.success());
    assert!(String::from_utf8_lossy(&run.stderr).contains("/nowhere/dnsweir.kdl"));
}

/// `run` refuses what `check` refuses, with the same report.
#[test]
fn run_refuses_a_file_with_mistakes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("mistaken.kdl");
    std::fs::write(&file, "listen \"127.0.0.1\"; zone \".\" {\n    cash\n}\n").expect("a configuration file");
    let output = proxy::command().args(["run", "--config"]).arg(&file).output();
    let output = output.expect("dnsweir run");
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(lines(&String::from_utf8_lossy(&output.stderr)), [2]);
}

/// What an operator should know about a file written by someone else.
#[test]
fn what_is_granted_of_wasi_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dnsweir.kdl");
    let text = |grants: &str| {
        format!(
            "listen \"127.0.0.1\"\nfilter \"f\" {{ module \"builtin:log\"; {grants} }}\n\
             zone \".\" {{ use \"f\"; forward \"192.0.2.1\" }}\n"
        )
    };
    let told = |grants: &str| {
        fs::write(&file, text(grants)).expect("a file");
        let output = proxy::check(&file);
        assert!(output.status.success());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let said = told("wasi { clock; env \"TZ\"; folder \".\" }");
    let granted = "note: filter \"f\" may use these parts of WASI: clock, env \"TZ\", folder \".\"";
    assert!(said.contains(granted), "{said}");
    assert!(!told("").contains("WASI"));
}
