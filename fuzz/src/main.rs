//! Passes libFuzzer's input to the target in `DNSWEIR_FUZZ`, a function of `dnsweir::fuzzing`.

#![no_main]
#![allow(clippy::panic, reason = "the fuzzer ends if its target is unknown")]

use std::sync::LazyLock;

use dnsweir::fuzzing;

type Target = fn(&[u8]);

/// All targets by name.
const TARGETS: [(&str, Target); 9] = [
    ("cache_round_trip", fuzzing::cache_round_trip),
    ("config", fuzzing::config),
    ("framing", fuzzing::framing),
    ("module", fuzzing::module),
    ("query", fuzzing::query),
    ("response_path", fuzzing::response_path),
    ("slice", fuzzing::slice),
    ("verdicts", fuzzing::verdicts),
    ("zone", fuzzing::zone),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("DNSWEIR_FUZZ").unwrap_or_default();
    let known = TARGETS.iter().find(|(name, _)| *name == wanted);
    known.map_or_else(
        || panic!("DNSWEIR_FUZZ={wanted}: unknown target; use cargo xtask fuzz"),
        |(_, target)| *target,
    )
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
