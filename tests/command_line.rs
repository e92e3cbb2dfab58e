//! The products of the command line's definition.

use std::fs;
use std::process::Command;

use crate::harness::proxy::command;
use crate::harness::tools::{needs, output};

#[test]
fn bash_completes_commands_and_options() {
    if !needs(&["bash"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("completions");
    fs::write(&script, output(command().args(["completions", "bash"]))).expect("a script");
    let complete = |words: &str, count: usize| {
        let text = format!(
            "set -e; . {}; COMP_WORDS=({words}); COMP_CWORD={count}; _dnsweir dnsweir \"${{COMP_WORDS[{count}]}}\" x; \
             echo \"${{COMPREPLY[*]}}\"",
            script.display()
        );
        output(Command::new("bash").args(["-c", &text])).trim().to_owned()
    };
    assert_eq!(complete("dnsweir expl", 1), "explain");
    assert_eq!(complete("dnsweir run --compiled", 2), "--compiled-cache");
    assert_eq!(complete("dnsweir filter in", 2), "info");
    assert_eq!(complete("dnsweir words serve", 2), "serve-stale");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(
            output(command().args(["completions", shell])).contains("explain"),
            "{shell}"
        );
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    output(command().arg("man").arg(&pages));
    let read = |name: &str| fs::read_to_string(pages.join(name)).expect("a page");
    assert!(read("dnsweir.1").contains("dnsweir\\-check(1)"));
    assert!(read("dnsweir-filter-test.1").contains("test\\-cases"));
    let hidden = pages.join("dnsweir-compile-filter.1");
    assert!(!hidden.exists());

    fs::write(folder.path().join("file"), "").expect("a file");
    let refused = command()
        .arg("man")
        .arg(folder.path().join("file"))
        .output()
        .expect("dnsweir");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("cannot write manual pages into"),
        "{told}"
    );
}

#[test]
fn words_of_the_configuration_are_explained() {
    let shown = output(command().args(["words", "max-age"]));
    assert!(
        shown.starts_with("max-age in zone > forward: age at which") && shown.contains("\"1s\" to \"1d\""),
        "{shown}"
    );
    let all = output(command().arg("words"));
    assert!(
        all.contains("\nzone ") && all.contains("\n        max-age "),
        "{all}"
    );
    let refused = command().args(["words", "max-agee"]).output().expect("dnsweir");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("did you mean `max-age`?"),
        "{told}"
    );
}

/// Like `dnsweir words | head`.
#[test]
fn what_is_printed_need_not_be_read_to_its_end() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = command().arg("words").stdout(writer).output().expect("dnsweir");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && told.is_empty(), "{told}");
}

/// For editors; a test next to it compares it with the configuration's definition.
#[test]
fn the_schema_is_printed() {
    let schema = output(command().arg("schema"));
    for part in [
        "document {\n",
        "node \"listen\"",
        "node \"serve-stale\"",
        "prop \"memory\"",
    ] {
        assert!(schema.contains(part), "no {part} in {schema}");
    }
}
