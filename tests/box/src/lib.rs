//! A world for the proxy as it is built: one seed, one history.
//!
//! This library is loaded before the C library (LD_PRELOAD), and its symbols stand in for those by which a program learns of
//! time and chance, waits, has threads, speaks to others and keeps files. Threads run one at a time, in an order that a seed
//! draws; time is virtual, and jumps when nobody can run; the network is the box's own, and so is everybody at its other end.
//! What it does not see are system calls without a symbol: rustix makes some for `private_folder` and sealed memory.
//!
//! Started by `histories/main.rs`, which names a scenario's file in the environment. tests/box/README.md describes it.

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

/// Where a scenario is.
const SCENARIO: &std::ffi::CStr = c"DNSWEIR_BOX";

/// Runs before the program does.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: the process has one thread yet; the value is copied before the environment changes.
    let path = unsafe {
        let value = libc::getenv(SCENARIO.as_ptr());
        if value.is_null() {
            return;
        }
        let path = std::ffi::CStr::from_ptr(value).to_string_lossy().into_owned();
        // Children live outside of the box.
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
