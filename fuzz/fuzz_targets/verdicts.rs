//! See `dnsweir::fuzzing::verdicts`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::verdicts(octets));
