//! Simulates a world around the unmodified proxy: one seed, one history.
//!
//! This library is loaded before the C library (LD_PRELOAD). Its symbols replace those through which a
//! program gets time and randomness, waits, runs threads, uses the network and keeps files. Threads run one
//! at a time, in an order drawn from a seed; time is virtual, and jumps when no thread can run; the network
//! and its peers are simulated. System calls that are made without a symbol are not seen: rustix makes some
//! for `private_folder` and sealed memory.
//!
//! `histories/main.rs` starts it, and names the scenario's file in the environment. See tests/box/README.md.

#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    reason = "nobody calls this library by its Rust names; what its fields are is said where they are not plain"
)]

mod actors;
mod faults;
mod kernel;
mod net;
mod outside;
mod polls;
mod pulse;
mod report;
mod scenario;
mod schedule;
mod seed;
mod symbols;
mod world;

/// The environment variable with the scenario's path.
const SCENARIO: &std::ffi::CStr = c"DNSWEIR_BOX";

/// Runs before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: the process still has one thread; the value is copied before the environment changes.
    let path = unsafe {
        let value = libc::getenv(SCENARIO.as_ptr());
        if value.is_null() {
            return;
        }
        let path = std::ffi::CStr::from_ptr(value).to_string_lossy().into_owned();
        // Child processes run outside the box.
        libc::unsetenv(c"LD_PRELOAD".as_ptr());
        libc::unsetenv(SCENARIO.as_ptr());
        path
    };
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let scenario = scenario::Scenario::read(&text);
    if scenario.outside {
        outside::begin(&scenario);
        return tell_the_end();
    }
    pulse::begin(&scenario.report);
    pulse::runs();
    schedule::begin(world::World::new(&scenario));
    tell_the_end();
}

fn tell_the_end() {
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    if let Some(world) = schedule::world() {
        world.write_report("exit");
    }
    outside::write_report();
}
