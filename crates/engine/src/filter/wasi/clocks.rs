//! Clocks and timers; nothing here ever waits.
//!
//! Without the grant there is one clock, used both as nanoseconds since 1970 and since the start. It advances
//! by 1 µs per reading. Waiting for a time sets it forward to that time, so that programs that wait in a loop
//! make progress. With the grant both clocks are the machine's, and waiting still returns immediately: a
//! program that waits in a loop then runs into its time limit.

use std::time::SystemTime;

use wasmtime::component::Resource;
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
use wasmtime_wasi::p2::bindings::sync::io::poll;

use super::clock::{Clock, STEP};
use super::granted::Wasi;

const SECOND: u64 = 1_000_000_000;

impl wall_clock::Host for Wasi {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(match &mut self.clock {
            Clock::Counting(reading) => {
                let nanoseconds = Clock::count(reading);
                wall_clock::Datetime {
                    seconds: nanoseconds / SECOND,
                    nanoseconds: (nanoseconds % SECOND) as u32,
                }
            }
            Clock::Real(_) => {
                let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let since_1970 = since_1970.unwrap_or_default();
                wall_clock::Datetime {
                    seconds: since_1970.as_secs(),
                    nanoseconds: since_1970.subsec_nanos(),
                }
            }
        })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime {
            seconds: 0,
            nanoseconds: STEP as u32,
        })
    }
}

impl monotonic_clock::Host for Wasi {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(match &mut self.clock {
            Clock::Counting(reading) => Clock::count(reading),
            Clock::Real(begun) => u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
        })
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(STEP)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        if let Clock::Counting(reading) = &mut self.clock {
            *reading = when.max(*reading);
        }
        Ok(pollable())
    }

    fn subscribe_duration(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        if let Clock::Counting(reading) = &mut self.clock {
            *reading = reading.saturating_add(when);
        }
        Ok(pollable())
    }
}

/// A handle to wait for. There is only one, which is always ready and refers to nothing.
pub(super) fn pollable() -> Resource<DynPollable> {
    Resource::new_own(0)
}

impl poll::Host for Wasi {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        if pollables.is_empty() {
            wasmtime::bail!("it polls an empty list, which never ends");
        }
        Ok((0..).take(pollables.len()).collect())
    }
}

impl poll::HostPollable for Wasi {
    fn ready(&mut self, _: Resource<DynPollable>) -> wasmtime::Result<bool> {
        Ok(true)
    }

    fn block(&mut self, _: Resource<DynPollable>) -> wasmtime::Result<()> {
        Ok(())
    }

    fn drop(&mut self, _: Resource<DynPollable>) -> wasmtime::Result<()> {
        Ok(())
    }
}
