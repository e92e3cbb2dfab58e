//! The guest's side of `wit/`, which the SDK has as it was generated: CONTRIBUTING.md says why.

use std::fs;

use crate::source::{read, root};

/// What `build.rs` made of `wit/`.
const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// With `DNSWEIR_WRITE_BINDINGS`, as `cargo xtask bindings` sets it, they are written, and otherwise compared.
#[test]
fn bindings_are_those_of_the_interface() {
    let file = root().join("guest-sdk/src/bindings.rs");
    if std::env::var_os("DNSWEIR_WRITE_BINDINGS").is_some() {
        fs::write(&file, GENERATED).expect("a file that can be written");
    } else {
        assert!(
            read(&file) == GENERATED,
            "guest-sdk/src/bindings.rs is not what wit/ says now: run `cargo xtask bindings`"
        );
    }
}

/// A batch is used where the host has put it. A record with anything but numbers in it would be taken apart and put
/// together again, field by field, before the filter is asked.
#[test]
fn bindings_use_batches_in_place() {
    let text = read(&root().join("guest-sdk/src/bindings.rs"));
    for phase in [
        "queries",
        "responses",
        "query_answers",
        "response_answers",
        "events",
    ] {
        let (_, function) = text
            .split_once(&format!("unsafe fn _export_on_{phase}_cabi<"))
            .expect("what the host calls");
        let (before, arguments) = function
            .split_once(&format!("T_::on_{phase}("))
            .expect("what it calls");
        assert!(!before.contains("for i in"), "on-{phase}: {before}");
        let batch = arguments.split_once("_rt::Vec::from_raw_parts(");
        assert!(
            batch.is_some_and(|(_, rest)| rest.starts_with("arg")),
            "on-{phase}"
        );
    }
}
