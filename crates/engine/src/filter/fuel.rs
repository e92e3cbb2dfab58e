//! Makes calls take the time that their fuel stands for: 1 ns per unit, which is about one instruction. In
//! the box (tests/box/README.md) computing takes no time, and the epoch stands still while a guest computes.

use std::thread;
use std::time::Duration;

use wasmtime::Store;

use super::host_state::HostState;

/// Makes a call with fuel for its time limit, then sleeps for the fuel it has burnt.
pub(super) fn spend<T>(store: &mut Store<HostState>, call: impl FnOnce(&mut Store<HostState>) -> T) -> T {
    let full = u64::try_from(store.data().time.whole().as_nanos()).unwrap_or(u64::MAX);
    // Cannot fail: with this feature the engine meters fuel.
    let _ = store.set_fuel(full);
    let result = call(store);
    thread::sleep(Duration::from_nanos(full - store.get_fuel().unwrap_or(full)));
    result
}
