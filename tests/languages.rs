//! The same filter in every language of `examples/languages`: built with its `build.sh`, and queried like a
//! client.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::guests::root;
use crate::harness::{Proxy, Upstream, needs, proxy, tools};
use crate::released;

#[test]
fn rust() {
    try_out("rust", &["cargo"], "memory=\"16MiB\"");
}

/// A filter that relies on the standard library, built for `wasm32-wasip2`, with and without grants.
#[test]
fn rust_with_its_standard_library() {
    if !needs(&["cargo", "wasm32-wasip2"]) {
        return;
    }
    let into = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("languages/standard");
    let mut cargo = cargo();
    cargo
        .args([
            "build",
            "--quiet",
            "--release",
            "--package=standard",
            "--target=wasm32-wasip2",
        ])
        .arg("--target-dir")
        .arg(&into);
    tools::output(&mut cargo);
    let module = into.join("wasm32-wasip2/release/standard.wasm");
    let lists = tempfile::tempdir().expect("a folder");
    std::fs::write(lists.path().join("blocked"), "ads.example.\n").expect("a list");
    let config = |wasi: &str| {
        format!(
            "filter \"standard\" {{\n    module {module:?}; on-error \"servfail\"; limits time=\"1s\"\n    {wasi}\n    \
             config {{ list {:?} }}\n}}\nworkers 1\nzone \".\" {{ use \"standard\" }}\n",
            lists.path().join("blocked"),
        )
    };
    let nothing = Proxy::start(&config(""));
    nothing.process.logged("the list has 0 names");
    for asked in 1..=2 {
        let answer = nothing.query("ads.example", "A");
        assert_eq!(answer.answers(), [format!("ads.example. A {asked}.0.0.0")]);
    }
    let granted = Proxy::start(&config(&format!(
        "wasi {{ clock; random; env \"PATH\"; folder {:?} }}",
        lists.path()
    )));
    granted.process.logged("the list has 1 names");
    assert_eq!(granted.query("ads.example", "A").rcode(), "NXDOMAIN");
    // The file cannot be read.
    assert_eq!(
        granted.query("other.example", "A").answers(),
        ["other.example. A 1.1.1.0"]
    );
}

#[test]
fn c() {
    try_out("c", &["clang", "wasm-ld"], "memory=\"16MiB\"");
}

#[test]
fn go() {
    try_out("go", &["go"], "memory=\"16MiB\"");
}

#[test]
fn javascript() {
    try_out("javascript", &["node", "npm"], "memory=\"16MiB\"");
}

#[test]
fn python() {
    let limits = "memory=\"64MiB\" load-memory=\"512MiB\" load-time=\"2m\"";
    try_out("python", &["python3", "pip3"], limits);
}

/// C and Go support the whole interface: a filter with all features of the one in Rust works.
#[test]
fn everything_in_c() {
    does_everything("c", &["clang", "wasm-ld"]);
}

#[test]
fn everything_in_go() {
    does_everything("go", &["go"]);
}

fn does_everything(language: &str, tools: &[&str]) {
    if !needs(tools) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join(language);
    let example = root().join("examples/languages").join(language);
    tools::output(Command::new("cp").arg("-r").arg(example).arg(&folder));
    let source = root().join(format!("tests/languages/everything.{language}"));
    std::fs::copy(source, folder.join(format!("names.{language}"))).expect("a source file");
    let module = build(&folder, &format!("{language}-everything"));
    released::uses_everything(&module, "");
}

/// Builds the filter of a folder into a folder within the target folder.
fn build(folder: &Path, into: &str) -> PathBuf {
    let into = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("languages")
        .join(into);
    let mut command = Command::new("sh");
    command.arg(folder.join("build.sh")).arg(&into);
    tools::output(unconfused(&mut command));
    into.join("names.wasm")
}

/// Cargo for this workspace.
fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    unconfused(cargo.current_dir(root()));
    cargo
}

/// Removes the variables that cargo sets for this test from the environment of the cargo that it calls.
fn unconfused(command: &mut Command) -> &mut Command {
    for name in ["CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// Tests a language's filter, which needs these tools to build, for what all of them do: find mistakes in its
/// configuration, answer, refuse, pass, count and log.
fn try_out(language: &str, tools: &[&str], limits: &str) {
    if !needs(tools) {
        return;
    }
    let module = build(&root().join("examples/languages").join(language), language);
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let filter = |config: &str| {
        format!(
            "filter \"names\" {{\n    module \"{module}\"; on-error \"servfail\"\n    \
             limits {limits} time=\"1s\"\n    config {{\n{config}\n    }}\n}}\n\
             zone \".\" {{ use \"names\"; forward \"{upstream}\" }}\n",
            module = module.display(),
            upstream = upstream.address,
        )
    };

    // All mistakes in one run, each at its place. This compiles the module, too, however long that takes.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("mistakes.kdl");
    let mistakes = "host \"hello.example\" \"192.0.2\"\nblok \"ads.example\"\nblock \"a..b\"";
    let text = format!("listen \"127.0.0.1\"\n{}", filter(mistakes));
    std::fs::write(&file, text).expect("a configuration file");
    let output = proxy::check(&file);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(64), "{said}");
    for place in ["mistakes.kdl:6:", "mistakes.kdl:7:", "mistakes.kdl:8:"] {
        assert!(said.contains(place), "no {place} in {said}");
    }
    assert!(said.contains("valid here: `"), "{said}");

    let proxy = Proxy::start(&filter(
        "host \"Hello.example\" \"192.0.2.7\"\nblock \"ads.example\"",
    ));
    proxy.process.logged("filter is ready");
    for _ in 0..3 {
        let answer = proxy.query("hello.EXAMPLE", "A");
        assert_eq!(answer.answers(), ["hello.EXAMPLE. A 192.0.2.7"]);
        assert_eq!(answer.answers[0].ttl, 300);
    }
    for name in ["ads.example", "banner.Ads.example"] {
        assert_eq!(proxy.query(name, "AAAA").rcode(), "NXDOMAIN", "{name}");
    }
    for name in ["other.test", "badads.example", "x.hello.example"] {
        assert_eq!(proxy.query(name, "A").answers(), [format!("{name}. A 192.0.2.1")]);
    }
    proxy.await_metric(
        "dnsweir_filter_counter_total",
        &[("filter", "names"), ("name", "blocked")],
        2.0,
    );
    let traps = proxy
        .metrics()
        .sum("dnsweir_filter_traps_total", &[("filter", "names")]);
    assert_eq!(traps, 0.0);
}

/// The filter on the page about CoreDNS is the one that was built above.
#[test]
fn the_page_on_coredns_shows_the_filter() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).expect("a file");
    let page = read("docs/languages.md");
    let source = read("examples/languages/go/names.go");
    let filter = page
        .split("\n## ")
        .find(|section| section.starts_with("The filter"));
    let shown: Vec<&str> = filter
        .expect("its section")
        .split("```go\n")
        .skip(1)
        .filter_map(|fence| fence.split("```").next())
        .collect();
    assert_eq!(shown.len(), 2);
    for fence in shown {
        assert!(source.contains(fence), "not in names.go:\n{fence}");
    }
}
