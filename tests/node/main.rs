//! Tests of the node's network on this machine's kernel: namespaces for the node, a client pod and the
//! cluster's DNS, with kube-proxy's translation between them.
//!
//! Without root, or a program that it needs, a test is skipped by name. Those in `cluster` need Kubernetes
//! nodes, which `cargo xtask test cluster` builds and starts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it found"
)]

mod load;
mod world;

mod by_hand;
mod cluster;
mod conntrack;
mod dummy;
mod falling;
mod interleaving;
mod neighbours;
mod preflight;
mod privileges;
mod readiness;
mod repairing;
mod rolling;
mod self_test;
mod standing_aside;
mod standing_still;
mod taking_over;
