//! See `dnsweir::fuzzing::config`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::config(octets));
