//! What the standards ask of a forwarder, section by section.
//!
//! Each file has one subject; the RFC and its section stand at the test. Where the standards leave a
//! choice, the test holds the proxy to the one it made.

mod edns;
mod failures;
mod messages;
mod names;
mod negative;
mod probes;
mod records;
