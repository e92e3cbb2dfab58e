//! Black-box tests of the proxy: the built program, with real servers and clients.
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

// The foundation: the proxy, upstreams, and clients.
use ::harness;

// The first run: the embedded configuration.
mod demonstration;

// The configuration from the operator's point of view.
mod checking;
mod documents;
mod mistakes;
mod rejected;
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

// For authors of filters.
mod authors;

// External filters: where they come from, and what they may do.
mod delivery;
mod languages;
mod laptop;
mod loading;
mod recording;
mod released;
mod trust;

// What is released.
mod monitoring;
mod packaging;
mod problems;
mod programs;
mod watching;

// The external interfaces.
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
