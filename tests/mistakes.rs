//! Makes each mistake of `docs/reference/mistakes.md`, and compares the message with the one in the document.

use std::fs;
use std::path::Path;

use crate::harness::guests::{example, root};
use crate::harness::proxy;

/// A module whose `configure` succeeds and that exports nothing else: `manifest` is the part of its result
/// that starts with the phases, `more` are further fields.
fn module(manifest: &str, more: &str) -> Vec<u8> {
    let text = format!(
        r#"(module {more}
  (memory (export "memory") 1)
  (data (i32.const 36) "{manifest}")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 16)))"#
    );
    wat::parse_str(text).expect("a module")
}

/// A configuration with this filter block.
fn filter(inside: &str) -> String {
    format!(
        "listen \"127.0.0.1\"\nfilter \"f\" {{ {inside} }}\nzone \".\" {{ use \"f\"; forward \"192.0.2.1\" }}\n"
    )
}

/// A configuration for each mistake, in the document's order, and its module `f.wasm`, if any.
fn mistakes(folder: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let parse = |text: &str| Some(wat::parse_str(text).expect("a module"));
    let named = || filter("module \"f.wasm\"");
    let zone = |inside: &str| format!("listen \"127.0.0.1\"\nzone \".\" {{ {inside} }}\n");
    let block_list = fs::read(example("block-list")).expect("a module");
    let target = folder.join("target/wasm32-unknown-unknown/debug/f.wasm");
    vec![
        (named(), parse("(module)")),
        (named(), parse("(module (func (export \"_start\")))")),
        (filter(&format!("module {target:?}")), None),
        (
            named(),
            parse("(module (func (export \"dnsweir:filter/configure@0.2.0#configure\")))"),
        ),
        (named(), Some(b"fn main() {}".to_vec())),
        (filter("module \"https://example.com/f.wasm\""), None),
        (filter("module \".\""), None),
        (filter("module \"log\""), None),
        (
            filter(&format!("module \"f.wasm\"; sha256 \"{}\"", "0".repeat(64))),
            Some(b"abc".to_vec()),
        ),
        (
            filter("module \"f.wasm\"; limits memory=\"1MiB\""),
            Some(block_list),
        ),
        (named(), Some(module("", ""))),
        (named(), Some(module("\\01", ""))),
        (
            named(),
            Some(module("\\01", "(import \"env\" \"socket\" (func (param i32)))")),
        ),
        (
            filter(
                "module \"builtin:hosts\"; config { host \"b.example\" \"192.0.2.1\"; hots \"a.example\" \"192.0.2.1\" }",
            ),
            None,
        ),
        (
            filter("module \"builtin:hosts\"; config { host \"a.example\" \"192.0.2\" }"),
            None,
        ),
        (filter("module \"builtin:log\"; limits time=\"5\""), None),
        (filter("module \"builtin:log\"; on-eror \"bypass\""), None),
        (zone("use \"f\"; forward \"192.0.2.1\""), None),
        (
            format!(
                "filter \"f\" {{ module \"builtin:log\" }}\n{}",
                zone("forward \"192.0.2.1\"; use \"f\"")
            ),
            None,
        ),
        (zone("cache"), None),
    ]
}

/// The second column of the document's table.
fn told() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/reference/mistakes.md")).expect("the document");
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.filter_map(|row| Some(row.split(" | ").nth(1)?.trim_end_matches(" |").to_owned()))
        .collect()
}

/// The text of a report without its frame, in one line.
fn words(report: &str) -> String {
    let lines = report
        .lines()
        .map(|line| line.trim_start_matches([' ', '│', '×']));
    lines
        .collect::<Vec<_>>()
        .join(" ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn every_mistake_is_told_as_documented() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mistakes, told) = (mistakes(folder.path()), told());
    let mut wrong = Vec::new();
    for (index, (config, module)) in mistakes.iter().enumerate() {
        let file = folder.path().join("dnsweir.kdl");
        fs::write(&file, config).expect("a configuration");
        if let Some(module) = module {
            fs::write(folder.path().join("f.wasm"), module).expect("a module");
        }
        let output = proxy::check(&file);
        let report = words(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
        let expected = told.get(index).map_or("nothing", String::as_str);
        let refused = output.status.code() == Some(64);
        if refused == expected.starts_with("note: ") || !report.contains(expected) {
            wrong.push(format!("{}: not {expected:?} but: {report}", index + 1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(mistakes.len(), told.len(), "rows and mistakes");
}
