//! What one instance has of WASI, as it is granted.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::cli::WasiCliCtxView;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder};

use super::clock::Clock;
use super::lines::{Lines, Log};
use crate::config;

/// Resources a guest may hold: open files and streams of WASI's, since the interface has none.
pub(in crate::filter) const HANDLES: usize = 64;

/// Random octets that one call gives at most.
const RANDOM_OCTETS: u64 = 64 << 10;

/// Seeds the random numbers that are the same in every instance.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// What one instance has of WASI.
pub(in crate::filter) struct Wasi {
    pub(super) context: WasiCtx,
    pub(super) clock: Clock,
    pub(super) output: Lines,
    /// Open folders and files, and what is read of them. Empty once [`folders_open`](Wasi::folders_open) is not.
    pub(super) table: ResourceTable,
    /// Whether folders can be reached: only while the instance is being configured, on a thread that may wait.
    pub(super) folders_open: bool,
    /// Entries of folders that were listed.
    pub(super) listed: usize,
}

/// A store's data that has WASI in it.
pub(in crate::filter) trait HasWasi: Send + 'static {
    /// What it has.
    fn wasi(&mut self) -> &mut Wasi;
}

impl Wasi {
    /// What `grants` say, for an instance that is being configured.
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
            // What is not UTF-8 cannot be handed on, and is as good as not there.
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

    /// Closes all folders and files: the instance is configured, and calls for queries must not wait for a disk.
    pub(in crate::filter) fn close_folders(&mut self) {
        self.folders_open = false;
        self.table = ResourceTable::new();
    }

    /// What `wasi:cli` works with.
    pub(super) fn cli(&mut self) -> WasiCliCtxView<'_> {
        WasiCliCtxView {
            ctx: self.context.cli(),
            table: &mut self.table,
        }
    }
}
