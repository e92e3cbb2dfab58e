//! WASI 0.2, as far as it is granted.
//!
//! Programs built with standard tools import most of WASI whether they use it or not, so all of it can be
//! imported. What a filter block does not grant is empty, an error, or the same everywhere: no arguments and
//! no environment, [no folder](folders), a [clock](clocks) that counts its readings, random numbers that are
//! always the same, and [standard output](streams) that goes to the log. Sockets and everything else are
//! functions that trap.
//!
//! wasmtime-wasi provides the types and the folders. Its own synchronous functions block on a tokio runtime,
//! and panic on a worker's thread. So nothing here uses one or blocks, and what is not available immediately
//! is an error.

mod clock;
mod clocks;
mod folders;
mod granted;
mod lines;
mod parts;
mod streams;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasData, Linker, ResourceType};
use wasmtime_wasi::cli::WasiCli;
use wasmtime_wasi::p2::bindings::{cli, clocks as wasi_clocks, filesystem, random, sync};
use wasmtime_wasi::random::WasiRandom;

pub(super) use self::granted::{HANDLES, HasWasi, Wasi};
pub(super) use self::lines::Log;
pub use self::parts::Part;
use self::parts::is_there;
pub(super) use self::parts::not_granted;
use super::engine::Engine;

struct View;

impl HasData for View {
    type Data<'a> = &'a mut Wasi;
}

/// Defines traps for all functions that a component imports from WASI and that are not [there](is_there).
/// Their signatures do not matter then, but a resource must be the same wherever it is named.
///
/// # Errors
///
/// None in practice: each item is defined once.
pub(super) fn trap_the_rest<W>(
    linker: &mut Linker<W>,
    engine: &Engine,
    component: &Component,
) -> wasmtime::Result<()> {
    let mut known = Vec::new();
    for (interface, item) in component.component_type().imports(&engine.wasm) {
        let ComponentItem::ComponentInstance(instance) = item.ty else {
            continue;
        };
        let absent = interface.starts_with("wasi:") && !is_there(interface);
        for (name, item) in instance.exports(&engine.wasm) {
            match item.ty {
                ComponentItem::ComponentFunc(_) if absent => {
                    let function = format!("{interface}#{name}");
                    linker.instance(interface)?.func_new(name, move |_, _, _, _| {
                        wasmtime::bail!("{function} is not there for filters")
                    })?;
                }
                ComponentItem::Resource(resource) => {
                    // Only the first mention defines it; a second is another interface's `use`.
                    let first = !known.contains(&resource);
                    known.push(resource);
                    if absent && first {
                        let nothing = ResourceType::host::<()>();
                        linker
                            .instance(interface)?
                            .resource(name, nothing, |_, _| Ok(()))?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Adds all interfaces that exist here.
///
/// # Errors
///
/// None in practice: each interface is added once.
pub(super) fn add_to_linker<W: HasWasi>(linker: &mut Linker<W>) -> wasmtime::Result<()> {
    let l = linker;
    sync::io::error::add_to_linker::<W, View>(l, W::wasi)?;
    sync::io::poll::add_to_linker::<W, View>(l, W::wasi)?;
    sync::io::streams::add_to_linker::<W, View>(l, W::wasi)?;
    cli::stdin::add_to_linker::<W, View>(l, W::wasi)?;
    cli::stdout::add_to_linker::<W, View>(l, W::wasi)?;
    cli::stderr::add_to_linker::<W, View>(l, W::wasi)?;
    wasi_clocks::wall_clock::add_to_linker::<W, View>(l, W::wasi)?;
    wasi_clocks::monotonic_clock::add_to_linker::<W, View>(l, W::wasi)?;
    filesystem::preopens::add_to_linker::<W, View>(l, W::wasi)?;
    sync::filesystem::types::add_to_linker::<W, View>(l, W::wasi)?;

    cli::environment::add_to_linker::<W, WasiCli>(l, |world| world.wasi().cli())?;
    cli::exit::add_to_linker::<W, WasiCli>(l, |world| world.wasi().cli())?;
    cli::terminal_input::add_to_linker::<W, WasiCli>(l, |world| world.wasi().cli())?;
    cli::terminal_output::add_to_linker::<W, WasiCli>(l, |world| world.wasi().cli())?;
    cli::terminal_stdin::add_to_linker::<W, WasiCli>(l, |world| world.wasi().cli())?;
    cli::terminal_stdout::add_to_linker::<W, WasiCli>(l, |world| world.wasi().cli())?;
    cli::terminal_stderr::add_to_linker::<W, WasiCli>(l, |world| world.wasi().cli())?;
    random::random::add_to_linker::<W, WasiRandom>(l, |world| world.wasi().context.random())?;
    random::insecure::add_to_linker::<W, WasiRandom>(l, |world| world.wasi().context.random())?;
    random::insecure_seed::add_to_linker::<W, WasiRandom>(l, |world| world.wasi().context.random())
}
