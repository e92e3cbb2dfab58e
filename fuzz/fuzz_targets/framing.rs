//! See `dnsweir::fuzzing::framing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::framing(octets));
