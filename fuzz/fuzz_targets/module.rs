//! See `dnsweir::fuzzing::module`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::module(octets));
