//! Filters: WebAssembly that decides what happens to queries.
//!
//! [`Filter::load`] compiles the module of a `filter` block and lets it check its configuration. Each worker
//! then makes one [`Instance`] and calls it with batches. Before a call, [`Interest`] decides whether the
//! filter covers a query at all, and [`Instance::recall`] whether its verdict is memoized.
//!
//! The guest is not trusted. It runs in its own store with bounded memory and time, and what it returns is
//! checked before it becomes a [`Verdict`]. If it fails, only the query concerned gets an
//! [`Outcome::Failed`]. What a failure means for the client (`on-error`) is not decided here, nor is anything
//! else about DNS: this module passes questions in and verdicts out.

mod ask;
mod batch;
mod bindings;
mod blame;
mod builtin;
mod cancel;
mod ceiling;
mod check;
mod compile;
mod compiled;
mod configure;
mod counters;
mod data;
mod details;
mod diagnostics;
mod engine;
mod evidence;
mod exports;
mod face;
mod failure;
mod footprint;
#[cfg(feature = "box-fuel")]
mod fuel;
mod fuzzing;
mod health;
mod host_state;
mod inspect;
mod instance;
mod interest;
mod layer;
mod load;
mod load_error;
mod memo;
mod metrics;
mod outcomes;
mod own_counters;
mod packed;
mod plain;
mod precompiled;
mod probation;
mod provenance;
mod question;
mod refresh;
mod repeated;
mod restart;
mod sandbox;
mod settings;
mod spares;
mod supervisor;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod ticker;
mod time_limit;
mod trial;
mod verdict;
mod wasi;

/// The filter interface that this proxy implements.
pub const INTERFACE: &str = "dnsweir:filter@0.1.0";

pub use ask::{Answers, Ask, Found, Lookup, LookupPath, LookupStatus, ROUNDS};
pub use batch::{Asked, Batch};
pub use bindings::dnsweir::filter::types::{Event, Query, Response};
pub use builtin::BUILTINS;
pub use ceiling::{filter_memory, loading_memory};
pub use compile::compile_for_parent;
pub use compiled::CompiledCache;
pub use data::SourceFile;
pub use details::Known;
pub use engine::Engine;
pub use failure::{Failure, Reason};
#[doc(hidden)]
pub use fuzzing::{check_octets, look_at_module};
pub use inspect::{Anatomy, Interface, Standing, inspect};
pub use instance::Instance;
pub use interest::Interest;
pub use load::{Filter, beside};
pub use load_error::LoadError;
pub use memo::{Key, salt as memo_salt};
pub use outcomes::Outcomes;
pub use precompiled::{Precompiled, precompile_builtins};
pub use probation::Charges;
pub use provenance::{client_halves, source_number, transport_number};
pub use text::one_line;
pub use trial::{Cost, Declared, Execution, Trial};
pub use verdict::{
    Answer, Decision, Ede, Order, Outcome, QueryOutcome, RecordEdit, Refusal, ResourceRecord,
    ResponseDecision, ResponseEdit, ResponseOutcome, ResponseVerdict, Rewrite, Selector, Verdict,
};
