//! `dnsweir dev`: a saved source changes the answer; a broken one keeps the old answer.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{alone_with_cargo, cargo, said, target};
use crate::harness::process::Process;
use crate::harness::{Message, address, ask, eventually, needs, proxy, until};

/// Creates a filter in a folder, with a configuration for an address of the test.
fn author(folder: &Path, name: &str) -> std::net::SocketAddr {
    said(folder, &["filter", "new", name]);
    let folder = folder.join(name);
    assert!(cargo(&folder, &["build"]).status.success());
    serve_at_a_fresh_address(&folder)
}

fn serve_at_a_fresh_address(folder: &Path) -> std::net::SocketAddr {
    let listen = address::fresh_socket();
    let file = folder.join("dnsweir.kdl");
    // Cargo builds into the test's target folder, and `dev` moves the module to its configured place.
    let text = fs::read_to_string(&file)
        .expect("a configuration")
        .replace("127.0.0.1:15353", &listen.to_string())
        .replace("/etc/resolv.conf", "127.0.0.1:9");
    fs::write(&file, text).expect("a configuration");
    listen
}

fn dev(folder: &Path) -> Process {
    let mut command = Command::new(proxy::program());
    command
        .arg("dev")
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target())
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    Process::start(&mut command)
}

fn printed(process: &Process, text: &str) -> String {
    process.printed(text, |line| line.contains(text))
}

#[test]
fn a_saved_change_is_answered() {
    let _alone = alone_with_cargo();
    let folder = tempfile::tempdir().expect("a folder");
    let listen = author(folder.path(), "changing");
    let folder = folder.path().join("changing");
    let process = dev(&folder);
    printed(&process, "answering on ");
    // A second one reports that the address is in use before it builds anything.
    let mut second = dev(&folder);
    second.logged(&format!("cannot listen on {listen}"));
    assert_eq!(second.ended().code(), Some(71));
    assert!(second.stdout().is_empty(), "{:#?}", second.stdout());
    let blocked = || ask(listen, &Message::query("ads.example", "A")).rcode();
    assert_eq!(blocked(), "NXDOMAIN");
    // Queries are shown with the filter's verdict.
    printed(&process, "ads.example. A");
    printed(&process, "changing: refuse \"NXDOMAIN\"");

    let source = folder.join("src/lib.rs");
    let text = fs::read_to_string(&source).expect("the source");
    fs::write(&source, text.replace("Rcode::NXDOMAIN", "Rcode::REFUSED")).expect("the source");
    until("the change to be answered", || blocked() == "REFUSED");
    printed(&process, "Compiling changing v0.1.0");
    printed(&process, "built changing in ");
    printed(&process, "swapped: generation 2, ");
    // Different results of its test cases are reported, but do not stop it here.
    printed(&process, "- refuse \"NXDOMAIN\"");

    fs::write(&source, format!("{text}\nbroken")).expect("the source");
    printed(
        &process,
        "changing does not build: the previous module stays in use",
    );
    printed(&process, "error: ");
    assert_eq!(blocked(), "REFUSED");

    fs::write(&source, &text).expect("the source");
    until("the repaired source to be answered", || blocked() == "NXDOMAIN");
    let stdout = process.stdout().join("\n");
    assert!(!stdout.contains('\u{1b}'), "colours in a pipe: {stdout}");
}

/// It waits for a source that builds and a valid configuration, instead of giving up.
#[test]
fn it_can_begin_with_mistakes() {
    let _alone = alone_with_cargo();
    let folder = tempfile::tempdir().expect("a folder");
    let listen = author(folder.path(), "mistaken");
    let folder = folder.path().join("mistaken");
    let (source, file) = (folder.join("src/lib.rs"), folder.join("dnsweir.kdl"));
    let (text, config) = (
        fs::read_to_string(&source).expect("the source"),
        fs::read_to_string(&file).expect("a configuration"),
    );
    fs::write(&source, format!("{text}\nbroken")).expect("the source");
    fs::write(&file, config.replace("cache\n", "cachet\n")).expect("a configuration");
    let mut process = dev(&folder);
    printed(&process, "waiting for the source to change");
    fs::write(&source, &text).expect("the source");
    printed(&process, "the configuration is not valid");
    printed(&process, "cachet");
    printed(&process, "waiting for a change");
    fs::write(&file, config).expect("a configuration");
    eventually("the repaired configuration to be served", || {
        assert!(process.running(), "it gave up: {:#?}", process.stderr());
        process
            .stdout()
            .iter()
            .find(|line| line.contains("answering on "))
            .cloned()
    });
    assert_eq!(
        ask(listen, &Message::query("hello.example", "A")).answers(),
        ["hello.example. A 192.0.2.1"]
    );

    let built = |process: &Process| {
        process
            .stdout()
            .iter()
            .filter(|line| line.contains("building "))
            .count()
    };
    let before = built(&process);
    fs::write(&source, text.replace("Rcode::NXDOMAIN", "Rcode::REFUSED")).expect("the source");
    printed(&process, "swapped: generation 2, ");
    assert_eq!(built(&process), before + 1, "{:#?}", process.stdout());
    process.signal("TERM");
    assert!(process.ended().success());

    // Signals work while it waits.
    fs::write(&file, "mistaken").expect("a configuration");
    for signal in ["INT", "TERM"] {
        let mut process = dev(&folder);
        printed(&process, "waiting for a change");
        process.signal(signal);
        assert!(process.ended().success(), "{signal}");
    }
}

/// A filter with a `build.sh` is built with it.
#[test]
fn a_script_is_built_and_rebuilt() {
    if !needs(&["clang", "wasm-ld"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    said(folder.path(), &["filter", "new", "scripted", "--lang", "c"]);
    let folder = folder.path().join("scripted");
    let listen = serve_at_a_fresh_address(&folder);
    let process = dev(&folder);
    printed(&process, "answering on ");
    let blocked = || ask(listen, &Message::query("ads.example", "A")).rcode();
    assert_eq!(blocked(), "NXDOMAIN");
    let source = folder.join("names.c");
    let text = fs::read_to_string(&source).expect("the source");
    fs::write(&source, text.replace("#define NXDOMAIN 3", "#define NXDOMAIN 5")).expect("the source");
    until("the change to be answered", || blocked() == "REFUSED");
    fs::write(&source, "mistaken").expect("the source");
    printed(
        &process,
        "scripted does not build: the previous module stays in use",
    );
    printed(&process, "names.c:1:1: error: ");
}
