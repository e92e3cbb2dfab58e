//! See `dnsweir::fuzzing::response_path`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::response_path(octets));
