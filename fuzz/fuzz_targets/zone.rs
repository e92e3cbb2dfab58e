//! See `dnsweir::fuzzing::zone`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::zone(octets));
