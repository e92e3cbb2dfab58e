//! The program that pulls and verifies, which has to be beside the proxy, in the same version.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::proxy::{self, program};
use crate::harness::{Proxy, Upstream, until};

/// A module in a registry that is never asked.
const REFERENCE: &str = "oci://127.0.0.1:9/team/chain:1";

/// Copies the proxy into a folder that has no other program.
fn alone(folder: &Path) -> PathBuf {
    let copy = folder.join("dnsweir");
    fs::copy(program(), &copy).expect("a copy of the program");
    copy
}

/// Returns the exit code and the errors of a command, [`packed`].
fn run(program: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    let output = proxy::with_own_cache(&mut command).args(words).output();
    let output = output.expect("dnsweir");
    (
        output.status.code(),
        packed(&String::from_utf8_lossy(&output.stderr)),
    )
}

/// Returns a text without blanks, however it was wrapped.
fn packed(text: &str) -> String {
    text.replace(['│', '×'], " ").split_whitespace().collect()
}

/// Replaces a file by a program that learns that another version started it. Returns what that program is.
fn replace_by_another_version(file: &Path) -> PathBuf {
    let real = program().with_file_name("dnsweir-artifacts");
    let script = format!(
        "#!/bin/sh\nshift 2\nexec '{}' --for 0.0.9 \"$@\"\n",
        real.display()
    );
    let new = file.with_extension("new");
    fs::write(&new, script).expect("a script");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("permissions");
    fs::rename(&new, file).expect("another file");
    real
}

/// Writes a configuration with a filter from the registry.
fn configuration(folder: &Path) -> String {
    let file = folder.join("dnsweir.kdl");
    let text = format!(
        "listen \"127.0.0.1\"\nfilter \"f\" {{ module \"{REFERENCE}\" }}\n\
         zone \".\" {{ use \"f\"; forward \"192.0.2.1\" }}\n"
    );
    fs::write(&file, text).expect("a file");
    file.display().to_string()
}

#[test]
fn a_delivery_without_its_program_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = alone(folder.path());
    let missing = folder.path().join("dnsweir-artifacts");
    let missing = packed(&format!("{} is missing: install", missing.display()));
    let (code, said) = run(&own, &["check", &configuration(folder.path())]);
    assert!(said.contains(&format!("itcannotbepulled:{missing}")), "{said}");
    assert_eq!(code, Some(64), "{said}");
    for words in [&["filter", "pull", REFERENCE][..], &["filter", "info", REFERENCE]] {
        let (code, said) = run(&own, words);
        assert!(said.starts_with(&format!("dnsweir:{missing}")), "{said}");
        assert_eq!(code, Some(71), "{said}");
    }

    // A reload that needs it changes nothing.
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let zone = |stage: &str| format!("zone \".\" {{ {stage} forward \"{}\" }}", upstream.address);
    let proxy = Proxy::start_after(&format!("exec '{}' \"$@\"", own.display()), &zone(""));
    proxy.rewrite(&format!(
        "filter \"f\" {{ module \"{REFERENCE}\" }}\n{}",
        zone("use \"f\";")
    ));
    proxy.process.signal("HUP");
    until("the reload to fail", || {
        let status: serde_json::Value = serde_json::from_str(&proxy.get("/status").1).expect("JSON");
        let error = status["reloads"]["error"].as_str().unwrap_or_default();
        packed(error).contains(&missing)
    });
    assert_eq!(proxy.generation(), 1.0);
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
}

/// As while an upgrade replaces the files.
#[test]
fn a_delivery_by_another_version_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, other) = (alone(folder.path()), folder.path().join("dnsweir-artifacts"));
    let real = replace_by_another_version(&other);
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "{} is of version {version}, but dnsweir 0.0.9 runs:",
        real.display()
    );
    let expected = packed(&expected);
    let (code, said) = run(&own, &["check", &configuration(folder.path())]);
    assert!(said.contains(&format!("itcannotbepulled:{expected}")), "{said}");
    assert_eq!(code, Some(64), "{said}");
    let (code, said) = run(&own, &["filter", "pull", REFERENCE]);
    assert!(said.starts_with(&format!("dnsweir:{expected}")), "{said}");
    assert_eq!(code, Some(71), "{said}");
}

/// An upgrade without a restart. The program asks a registry, which is not there.
#[test]
fn a_running_proxy_keeps_its_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, artifacts) = (alone(folder.path()), folder.path().join("dnsweir-artifacts"));
    fs::copy(program().with_file_name("dnsweir-artifacts"), &artifacts).expect("a copy of the program");
    let zone = |stage: &str| format!("zone \".\" {{ {stage} forward \"192.0.2.1\" }}");
    let proxy = Proxy::start_after(&format!("exec '{}' \"$@\"", own.display()), &zone(""));
    replace_by_another_version(&artifacts);
    proxy.rewrite(&format!(
        "filter \"f\" {{ module \"{REFERENCE}\" }}\n{}",
        zone("use \"f\";")
    ));
    proxy.process.signal("HUP");
    let expected = packed("it cannot be pulled: 127.0.0.1:9: ");
    until("the registry to be asked", || {
        let status: serde_json::Value = serde_json::from_str(&proxy.get("/status").1).expect("JSON");
        let error = status["reloads"]["error"].as_str().unwrap_or_default();
        packed(error).contains(&expected)
    });
}

/// A process works for its parent only, and within limits.
#[test]
fn nobody_else_is_served() {
    let artifacts = program().with_file_name("dnsweir-artifacts");
    let version = env!("CARGO_PKG_VERSION");
    for (words, expected) in [
        (&["verify"][..], Some(71)),
        (&["look", "1", "1048576", "1000"], Some(71)),
        // The parent of this process is another one.
        (&["verify", "1", "134217728", "1000"], Some(1)),
    ] {
        let (code, said) = run(&artifacts, &[&["--for", version], words].concat());
        assert_eq!(code, expected, "{words:?}: {said}");
    }
}
