//! See `dnsweir::fuzzing::query`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::query(octets));
