//! Checks the guest bindings of `wit/` that the SDK keeps as generated files: CONTRIBUTING.md says why.

use std::fs;

use crate::source::{read, root};

/// What `build.rs` generated from `wit/`.
const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// Compares the bindings, or writes them if `DNSWEIR_WRITE_BINDINGS` is set, as `cargo xtask bindings` does.
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

/// Batches must be used where the host put them. A record with a field that is not a number would be unpacked
/// and rebuilt, field by field, before each call of the filter.
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
