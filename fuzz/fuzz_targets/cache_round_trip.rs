//! See `dnsweir::fuzzing::cache_round_trip`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::cache_round_trip(octets));
