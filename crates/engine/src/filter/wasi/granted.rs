//! The WASI state of one instance, according to its grants.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::cli::WasiCliCtxView;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder};

use super::clock::Clock;
use super::lines::{Lines, Log};
use crate::config;

/// Maximum resources a guest may hold: WASI's open files and streams, since the interface has none.
pub(in crate::filter) const HANDLES: usize = 64;

/// Maximum random bytes per call.
const RANDOM_OCTETS: u64 = 64 << 10;

/// Seed of the random numbers that are the same in every instance.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The WASI state of one instance.
pub(in crate::filter) struct Wasi {
    pub(super) context: WasiCtx,
    pub(super) clock: Clock,
    pub(super) output: Lines,
    /// Open folders, files and listings. Empty once [`folders_open`](Wasi::folders_open) is false.
    pub(super) table: ResourceTable,
    /// Whether folders can be accessed: only during configuration and refreshes, on a thread that may block.
    pub(super) folders_open: bool,
    /// Entries of all listed folders.
    pub(super) listed: usize,
}

/// A store's data that contains WASI.
pub(in crate::filter) trait HasWasi: Send + 'static {
    /// The WASI state.
    fn wasi(&mut self) -> &mut Wasi;
}

impl Wasi {
    /// The state for an instance about to be configured, with these grants.
    ///
    /// # Errors
    ///
    /// When a folder cannot be opened.
    pub(in crate::filter) fn new(grants: &config::Wasi, log: Arc<dyn Log>) -> wasmtime::Result<Wasi> {
        let mut builder = WasiCtxBuilder::new();
        builder
            .allow_blocking_current_thread(true)
            .max_random_size(RANDOM_OCTETS);
        if !grants.random {
            builder
                .secure_random(StdRng::seed_from_u64(SEED))
                .insecure_random(StdRng::seed_from_u64(SEED))
                .insecure_random_seed(SEED.into());
        }
        for name in &grants.env {
            // A value that is not UTF-8 cannot be passed on, and is treated as absent.
            if let Ok(value) = std::env::var(name) {
                builder.env(name, value);
            }
        }
        for folder in &grants.folders {
            let opened = builder.preopened_dir(&folder.path, &folder.name, FsPerms::ReadOnly);
            opened.map_err(|error| {
                let path = folder.path.display();
                wasmtime::format_err!("the folder {path}, which `wasi` grants it, cannot be opened: {error}")
            })?;
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(2 * HANDLES);
        Ok(Wasi {
            context: builder.build(),
            clock: Clock::new(grants.clock),
            output: Lines::new(log),
            table,
            folders_open: !grants.folders.is_empty(),
            listed: 0,
        })
    }

    /// Closes all folders and files: the instance is configured, and calls for queries must not wait for a
    /// disk.
    pub(in crate::filter) fn close_folders(&mut self) {
        self.folders_open = false;
        self.table = ResourceTable::new();
    }

    /// The state that `wasi:cli` uses.
    pub(super) fn cli(&mut self) -> WasiCliCtxView<'_> {
        WasiCliCtxView {
            ctx: self.context.cli(),
            table: &mut self.table,
        }
    }
}
