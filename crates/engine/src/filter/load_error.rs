//! Why a filter cannot be loaded, with messages for the operator.

use std::time::Duration;

use super::configure::ConfigError;
use super::failure::Failure;
use crate::config;

/// Maximum bytes of a module. Anything larger is hardly a filter, and would take long to compile.
pub(crate) const MODULE_MAXIMUM: usize = 64 << 20;

/// Maximum bytes of machine code, with its metadata, for a module of this size: ordinary modules grow
/// fourfold, and small ones are padded to whole pages.
pub(super) const fn code_maximum(module: usize) -> usize {
    (1 << 20) + 16 * module
}

/// Why a filter could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The module is too large; its size in bytes.
    #[error("the module has {0} bytes; the maximum is {MODULE_MAXIMUM}")]
    TooLarge(usize),
    /// Neither a module nor a component.
    #[error("this is neither a WebAssembly module nor a component; name the .wasm file that cargo built")]
    NotWasm,
    /// A function's name is longer than any compiler writes.
    #[error(
        "a function of this module has a name of {0} bytes; the maximum is {1}: strip its names, `wasm-tools strip --all`"
    )]
    Name(usize, usize),
    /// A module without a filter's exports, or with imports that filters do not get.
    #[error("this file is not a dnsweir filter: {0}")]
    Encode(String),
    /// Invalid, or with features that filters may not use.
    #[error("the module does not compile: {0}")]
    Compile(String),
    /// Compiling takes more CPU time than this.
    #[error(
        "compiling the module takes more than {} of processor time; \
         if the module is meant to be that large, allow more with `limits load-time=`", config::spell_duration(*.0)
    )]
    CompilingTime(Duration),
    /// The compiler did not get enough CPU time within this time.
    #[error(
        "compiling the module was aborted after {}, since the machine left it too little processor time; \
         allow more with `limits load-time=`", config::spell_duration(*.0)
    )]
    CompilingWaits(Duration),
    /// Compiling takes more bytes of memory than this.
    #[error(
        "compiling the module takes more than {} of memory; if the module is meant to be that large, \
         allow more with `limits load-memory=`, and the container as much more", config::spell_size(*.0)
    )]
    CompilingMemory(usize),
    /// The compiler was killed with SIGKILL.
    #[error(
        "the process that compiled the module was killed, as the kernel does when memory runs out; \
         leave it more memory, or lower `limits load-memory=`"
    )]
    CompilerKilled,
    /// Each instance takes more than its whole limit before it has any memory of its own.
    #[error(
        "each instance of the filter takes {octets} bytes for {globals} globals and {others} imports, exports, segments \
         and entries of tables in {instances} instances of its modules, which is more than `limits memory=` allows it \
         in all ({})", config::spell_size(*.limit)
    )]
    Footprint {
        /// Bytes that it takes.
        octets: usize,
        /// Bytes that it may take.
        limit: usize,
        /// Instances of core modules.
        instances: u64,
        /// Globals in all instances.
        globals: u64,
        /// Items of all other kinds in all instances.
        others: u64,
    },
    /// The machine code is far larger than the module warrants.
    #[error("the machine code of this module of {module} bytes has {code} bytes; the maximum is {}", code_maximum(*.module))]
    CodeTooLarge {
        /// Bytes of the module.
        module: usize,
        /// Bytes of machine code.
        code: usize,
    },
    /// The load was cancelled.
    #[error("loading was cancelled")]
    Cancelled,
    /// The operating system returned an error.
    #[error("the module cannot be compiled on this machine: {0}")]
    Machine(std::io::Error),
    /// It imports other interfaces than those of filters.
    #[error("the module imports {0}; a filter may only import the interfaces of dnsweir:filter@0.1.0")]
    Imports(String),
    /// An interface differs from the one in `wit/`.
    #[error("the module does not have the interface of a filter: {0}; build it against dnsweir:filter@0.1.0")]
    Interface(String),
    /// It was built for another version of the filter interface.
    #[error(
        "the module was built for version {0} of the filter interface, and this dnsweir speaks 0.1: build it with an SDK for 0.1"
    )]
    OtherVersion(String),
    /// It was built for a later version of WASI than filters get.
    #[error(
        "the module was built for WASI {0}, and filters get WASI 0.2 or preview 1: build it for 0.2, in Rust with \
         `--target wasm32-wasip2`"
    )]
    LaterWasi(String),
    /// It failed while starting.
    #[error("the filter failed while it was being configured: {}", .0.message)]
    Failed(Failure),
    /// It rejects this configuration.
    #[error("the filter rejects its configuration")]
    Rejected(Vec<ConfigError>),
    /// Its manifest requests phases that it does not export.
    #[error("the filter's manifest asks for phases that its module does not export: {0}")]
    MissingPhases(String),
    /// Another part of the manifest is invalid.
    #[error("the filter's manifest is invalid: {0}")]
    Manifest(String),
}
