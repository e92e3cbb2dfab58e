//! The functions of `wit/tables.wit`.
//!
//! They read keys and values in place in the guest's memory; the generated bindings would copy each one
//! first.

use wasmtime::component::{Linker, WasmList};
use wasmtime::{StoreContextMut, bail};

use super::Tables;
use super::shard::{Rate, Time};
use super::table::Table;

/// A store's data that provides tables.
pub(in crate::filter) trait WithTables {
    /// The guest's tables; none before it is configured.
    fn tables(&self) -> Option<&Tables>;

    /// Nanoseconds on a monotonic clock.
    fn clock(&self) -> Time;
}

/// Links the table functions into a component's imports.
///
/// # Errors
///
/// None in practice: the linker does not have the interface yet.
pub(in crate::filter) fn link<W: WithTables + 'static>(linker: &mut Linker<W>) -> wasmtime::Result<()> {
    let mut tables = linker.instance("dnsweir:filter/tables@0.1.0")?;
    tables.func_wrap(
        "get",
        |store: StoreContextMut<'_, W>, (table, key): (u32, WasmList<u8>)| {
            let world = store.data();
            Ok((find(world, table)?.get(world.clock(), key.as_le_slice(&store)),))
        },
    )?;
    tables.func_wrap(
        "put",
        |store: StoreContextMut<'_, W>, (table, key, value, ttl): (u32, WasmList<u8>, WasmList<u8>, u64)| {
            let world = store.data();
            let (key, value) = (key.as_le_slice(&store), value.as_le_slice(&store));
            Ok((find(world, table)?.put(world.clock(), key, value, ttl),))
        },
    )?;
    tables.func_wrap(
        "remove",
        |store: StoreContextMut<'_, W>, (table, key): (u32, WasmList<u8>)| {
            let world = store.data();
            Ok((find(world, table)?.remove(world.clock(), key.as_le_slice(&store)),))
        },
    )?;
    tables.func_wrap(
        "add",
        |store: StoreContextMut<'_, W>, (table, key, by, ttl): (u32, WasmList<u8>, i64, u64)| {
            let world = store.data();
            let key = key.as_le_slice(&store);
            Ok((find(world, table)?.add(world.clock(), key, by, ttl),))
        },
    )?;
    tables.func_wrap(
        "compare-and-swap",
        |store: StoreContextMut<'_, W>, (table, key, expected, new, ttl): Swap| {
            let world = store.data();
            let key = key.as_le_slice(&store);
            let expected = expected.as_ref().map(|list| list.as_le_slice(&store));
            let new = new.as_ref().map(|list| list.as_le_slice(&store));
            let swapped = find(world, table)?.compare_and_swap(world.clock(), key, expected, new, ttl);
            Ok((swapped,))
        },
    )?;
    tables.func_wrap(
        "take",
        |store: StoreContextMut<'_, W>,
         (table, key, tokens, per_second, burst): (u32, WasmList<u8>, u32, f64, u32)| {
            let world = store.data();
            let key = key.as_le_slice(&store);
            let rate = Rate { per_second, burst };
            Ok((find(world, table)?.take(world.clock(), key, tokens, rate),))
        },
    )
}

/// Arguments of `compare-and-swap`.
type Swap = (u32, WasmList<u8>, Option<WasmList<u8>>, Option<WasmList<u8>>, u64);

fn find<W: WithTables>(world: &W, index: u32) -> wasmtime::Result<&Table> {
    let Some(tables) = world.tables() else {
        bail!("there are no tables before `configure` has returned");
    };
    match tables.get(index) {
        Some(table) => Ok(table),
        None => bail!("the filter's manifest declares no table {index}"),
    }
}
