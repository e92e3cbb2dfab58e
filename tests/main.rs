//! What the proxy does, tested from outside: the built program, real servers and clients.
//!
//! This file is the table of contents. Run everything with `cargo xtask test`; one part with
//! `cargo xtask test --test main cache::`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it found"
)]

// What the tests stand on: the proxy, servers for it to ask, clients to ask it.
use ::harness;

// The first minute: the embedded configuration.
mod demonstration;

// The configuration as an operator meets it.
mod checking;
mod documents;
mod mistakes;
mod reloading;
mod stopping;
mod twice;

// The wire, by RFC.
mod conformance;

// The stages of a pipeline.
mod asking;
mod builtin;
mod cache;
mod compiled;
mod control;
mod coredns;
mod corefiles;
mod declining;
mod delaying;
mod dnstap;
mod encrypted;
mod examples;
mod failover;
mod following;
mod forwarding;
mod hostile;
mod imported;
mod instructions;
mod kubernetes;
mod lists;
mod passing_on;
mod pods;
mod service_entries;
mod sharing;
mod stale;
mod verdicts;
mod waiting;
mod zone_files;

// Those who write filters.
mod authors;

// Filters that are not built in, how they come, and what they are trusted with.
mod delivery;
mod languages;
mod laptop;
mod loading;
mod recording;
mod released;
mod trust;

// What is shipped.
mod monitoring;
mod packaging;
mod problems;
mod watching;

// The outside.
mod admin;
mod admission;
mod clients;
mod command_line;
mod listening;
mod logs;
mod metrics;
mod node_cache;
mod soak;
mod tcp;
mod webhook;
