//! What the standards require of a forwarder, section by section.
//!
//! Each file covers one subject; the RFC and its section are given at the test. Where the standards leave a
//! choice, the test checks the one that the proxy made.

mod edns;
mod failures;
mod messages;
mod names;
mod negative;
mod probes;
mod records;
