//! See `dnsweir::fuzzing::slice`.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| dnsweir::fuzzing::slice(octets));
