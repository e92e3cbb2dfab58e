//! Why a filter cannot be loaded, in words for the operator.

use std::time::Duration;

use super::configure::ConfigError;
use super::failure::Failure;
use crate::config;

/// Octets of a module. What is larger is hardly a filter, and compiling it would take long.
pub(crate) const MODULE_MAXIMUM: usize = 64 << 20;

/// Octets of machine code that a module with so many octets may become, with what belongs to it: ordinary modules become
/// four times as large, and small ones are padded to whole pages.
pub(super) const fn code_maximum(module: usize) -> usize {
    (1 << 20) + 16 * module
}

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It has this many octets.
    #[error("the module has {0} bytes; the maximum is {MODULE_MAXIMUM}")]
    TooLarge(usize),
    /// Neither a module nor a component.
    #[error("this is neither a WebAssembly module nor a component; name the .wasm file that cargo built")]
    NotWasm,
    /// A function's name is longer than any compiler's.
    #[error(
        "a function of this module has a name of {0} bytes; the maximum is {1}: strip its names, `wasm-tools strip --all`"
    )]
    Name(usize, usize),
    /// A module without the exports of a filter, or with imports that none has.
    #[error("this file is not a dnsweir filter: {0}")]
    Encode(String),
    /// Invalid, or with features that filters do not get.
    #[error("the module does not compile: {0}")]
    Compile(String),
    /// It takes more than this of the processor.
    #[error(
        "compiling the module takes more than {} of processor time; \
         if the module is meant to be that large, allow more with `limits load-time=`", config::spell_duration(*.0)
    )]
    CompilingTime(Duration),
    /// It did not get to run for long enough in this time.
    #[error(
        "compiling the module was aborted after {}, since the machine left it too little processor time; \
         allow more with `limits load-time=`", config::spell_duration(*.0)
    )]
    CompilingWaits(Duration),
    /// It takes more than so many octets.
    #[error(
        "compiling the module takes more than {} of memory; if the module is meant to be that large, \
         allow more with `limits load-memory=`, and the container as much more", config::spell_size(*.0)
    )]
    CompilingMemory(usize),
    /// It was killed with SIGKILL.
    #[error(
        "the process that compiled the module was killed, as the kernel does when memory runs out; \
         leave it more memory, or lower `limits load-memory=`"
    )]
    CompilerKilled,
    /// Each instance takes more than all it may have, before it has any memory of its own.
    #[error(
        "each instance of the filter takes {octets} bytes for {globals} globals and {others} imports, exports, segments \
         and entries of tables in {instances} instances of its modules, which is more than `limits memory=` allows it \
         in all ({})", config::spell_size(*.limit)
    )]
    Footprint {
        /// That it takes.
        octets: usize,
        /// That it may take.
        limit: usize,
        /// Of core modules.
        instances: u64,
        /// In all of them.
        globals: u64,
        /// Items of all other kinds.
        others: u64,
    },
    /// The code is out of all proportion.
    #[error("the machine code of this module of {module} bytes has {code} bytes; the maximum is {}", code_maximum(*.module))]
    CodeTooLarge {
        /// Octets.
        module: usize,
        /// Octets.
        code: usize,
    },
    /// It is not wanted any more.
    #[error("loading was cancelled")]
    Cancelled,
    /// The machine did not let us.
    #[error("the module cannot be compiled on this machine: {0}")]
    Machine(std::io::Error),
    /// It wants more of the world than there is.
    #[error("the module imports {0}; a filter may only import the interfaces of dnsweir:filter@0.1.0")]
    Imports(String),
    /// An interface that is not the one in `wit/`.
    #[error("the module does not have the interface of a filter: {0}; build it against dnsweir:filter@0.1.0")]
    Interface(String),
    /// It was built for another version of the interface.
    #[error(
        "the module was built for version {0} of the filter interface, and this dnsweir speaks 0.1: build it with an SDK for 0.1"
    )]
    OtherVersion(String),
    /// It was built for a later version of WASI than there is here.
    #[error(
        "the module was built for WASI {0}, and filters get WASI 0.2 or preview 1: build it for 0.2, in Rust with \
         `--target wasm32-wasip2`"
    )]
    LaterWasi(String),
    /// It failed while starting.
    #[error("the filter failed while it was being configured: {}", .0.message)]
    Failed(Failure),
    /// It does not want to run with this configuration.
    #[error("the filter rejects its configuration")]
    Rejected(Vec<ConfigError>),
    /// Phases that it wants to take part in without having them.
    #[error("the filter's manifest asks for phases that its module does not export: {0}")]
    MissingPhases(String),
    /// Something else in the manifest.
    #[error("the filter's manifest is invalid: {0}")]
    Manifest(String),
}
