//! A library for writing filters for the dnsweir DNS proxy.
//!
//! A filter is an ordinary Rust type that sees queries, responses, or the outcome of queries. It runs in the
//! proxy's query path as sandboxed WebAssembly: it can be replaced while the proxy runs, and even its worst
//! bug leaves no client without an answer.
//!
//! # A filter
//!
//! ```toml
//! [package]
//! name = "blocklist"
//! edition = "2024"
//!
//! [lib]
//! crate-type = ["cdylib", "rlib"] # the module, and a library for the tests
//!
//! [dependencies]
//! dnsweir-filter = { path = "dnsweir/guest-sdk" }
//!
//! [profile.release] # a module of 60 KB instead of 2 MB
//! lto = true
//! codegen-units = 1
//! panic = "abort"
//! strip = "debuginfo" # the names of functions stay: they are told if it traps
//! ```
//!
//! ```
//! use std::time::Duration;
//! use dnsweir_filter::{Filter, Invalid, Manifest, NameBuf, NameMap, Query, Rcode, Setup, Verdict};
//!
//! /// Refuses names at or below those in a list.
//! struct Blocklist {
//!     blocked: NameMap<()>,
//!     rcode: Rcode,
//! }
//!
//! impl Filter for Blocklist {
//!     fn configure(setup: Setup<'_>) -> Result<(Blocklist, Manifest), Invalid> {
//!         let config = setup.config();
//!         let mut names: Vec<NameBuf> = Vec::new();
//!         for node in config.nodes(&["block"]) {
//!             names.extend(node.arguments(0).unwrap_or_default()); // what is no name is recorded
//!         }
//!         let rcode = config.setting_or("rcode", Rcode::NXDOMAIN);
//!         // The host calls the filter for these names only.
//!         let manifest = Manifest::new().queries().at_or_below(&names);
//!         let mut blocked = NameMap::new();
//!         for name in names {
//!             blocked.insert(name, ());
//!         }
//!         Ok((Blocklist { blocked, rcode }, manifest))
//!     }
//!
//!     fn query(&mut self, query: &Query<'_>) -> Verdict {
//!         if self.blocked.suffixes(query.name()).next().is_none() {
//!             return Verdict::pass();
//!         }
//!         dnsweir_filter::count("blocked", 1);
//!         // The same for everyone who asks: the host need not come back for an hour.
//!         Verdict::refuse(self.rcode).remember(Duration::from_secs(3600))
//!     }
//! }
//!
//! dnsweir_filter::export!(Blocklist);
//!
//! // In a unit test, no proxy needed:
//! use dnsweir_filter::{Type, test};
//!
//! let mut filter = test::start::<Blocklist>([test::node("block").arg("ads.example")]).unwrap();
//! let verdict = filter.query(&test::query("banner.ads.example", Type::A));
//! assert_eq!(verdict, Verdict::refuse(Rcode::NXDOMAIN).remember(Duration::from_secs(3600)));
//! assert_eq!(filter.counter("blocked"), 1);
//!
//! let mistakes = test::start::<Blocklist>([test::node("blok").arg("ads.example")]).unwrap_err();
//! assert_eq!(mistakes[0].message, "this filter knows no `blok`");
//! assert_eq!(mistakes[0].help, "valid here: `block`, `rcode`");
//! ```
//!
//! `cargo build --release --target wasm32-unknown-unknown` builds `blocklist.wasm`. Name it in the
//! configuration:
//!
//! ```kdl
//! filter "blocklist" {
//!     module "blocklist.wasm"
//!     config { block "ads.example" }
//! }
//! zone "." {
//!     use "blocklist"
//!     cache
//!     forward "/etc/resolv.conf"
//! }
//! ```
//!
//! # What costs what
//!
//! The host calls a filter only for the phases, types and names in its [`Manifest`], and not again for a
//! question whose [`Verdict`] it may [remember](Verdict::remember). The remaining queries arrive in batches,
//! which this crate unpacks. A [`Verdict::pass`] costs nothing on the way back.
//!
//! A response can often be [edited with the query's verdict](Verdict::edit), which saves the second call, for
//! the response phase. Counters and printed lines are passed to the host once per batch.
//!
//! # What a filter cannot do
//!
//! Read files, open sockets, start threads, wait, or read a clock other than [`Query::time`]. A value of its
//! configuration may be a file, though: as text with `(file)"PATH"`, or as [`Data`] with `(data)"PATH"`.
//!
//! State is per worker thread of the proxy: two instances of a filter share only its [`Table`]s. A filter
//! that panics is rebuilt from its configuration, and the panic message goes to the proxy's log.
//!
//! On `wasm32-unknown-unknown`, `println!` and `eprintln!` print nothing, because its standard library has no
//! output: [`print()`] a line, or [`log`] it. In a module built for `wasm32-wasip2`, they write to the log.

#![cfg_attr(
    target_family = "wasm",
    allow(
        dead_code,
        reason = "`test`, which is there only to be read about, has uses for more"
    )
)]

mod answer;
mod ask;
#[doc(hidden)]
#[rustfmt::skip]
pub mod bindings;
mod budget;
mod codes;
mod config;
mod data;
mod event;
mod extended_error;
mod form;
mod hash;
mod host;
mod line;
mod manifest;
mod master_file;
mod memory;
mod message;
mod mmdb;
mod name;
mod name_list;
mod name_map;
mod prefix;
mod prefix_map;
mod query;
mod reader;
mod record;
mod refresh;
mod response;
mod response_edit;
#[doc(hidden)]
pub mod runtime;
mod table;
// Docs are built for the filters' target, and authors of tests need this module in them.
#[cfg(any(doc, not(target_family = "wasm")))]
pub mod test;
mod value;
mod verdict;

pub use answer::{Answer, Rdata, Soa};
pub use ask::{Answers, Ask, Found, LookupStatus};
pub use codes::{Class, Rcode, Type, UnknownCode};
pub use config::{Invalid, Mistake, Node, Setup};
pub use data::Data;
pub use event::{Event, Outcome};
pub use extended_error::ExtendedError;
pub use hash::stable_hash;
pub use host::{Level, count, count_with, log, print, print_with};
pub use line::{Line, Word};
pub use manifest::{Manifest, NamedSource};
pub use master_file::{MasterFile, MasterFileError};
pub use message::{Message, Unreadable};
pub use mmdb::Mmdb;
pub use name::{Labels, Name, NameBuf, NameError};
pub use name_list::{Listed, NameList, NameListError};
pub use name_map::NameMap;
pub use prefix::{Prefix, PrefixError, PrefixLengths};
pub use prefix_map::PrefixMap;
pub use query::{Identity, Pod, Query, Transport};
pub use record::{Record, Section};
pub use refresh::{Output, SourceFile};
pub use response::{Response, ResponseVerdict, Source};
pub use response_edit::{ResponseEdit, Selector};
pub use table::Table;
pub use value::{FromValue, Ttl, Value};
pub use verdict::{Rewrite, Verdict};

/// A filter. Implement only the phases it needs, and enable them in the [`Manifest`].
pub trait Filter: Sized + 'static {
    /// Builds the filter from its configuration, and returns what it needs to see. Called once.
    ///
    /// # Errors
    /// When the configuration has mistakes that leave no usable filter. A filter that is returned although
    /// mistakes were recorded is discarded, so reading on after a mistake does no harm.
    fn configure(setup: Setup<'_>) -> Result<(Self, Manifest), Invalid>;

    /// Decides what happens to a query.
    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let _ = query;
        Verdict::pass()
    }

    /// Decides what happens to a response.
    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        let _ = response;
        ResponseVerdict::pass()
    }

    /// Decides what happens to a query, given the answers to the lookups it [asked](Verdict::ask) for.
    fn answers(&mut self, query: &Query<'_>, answers: &Answers<'_>) -> Verdict {
        let _ = (query, answers);
        Verdict::pass()
    }

    /// Decides what happens to a response, given the answers to the lookups it [asked](ResponseVerdict::ask)
    /// for.
    fn response_answers(&mut self, response: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        let _ = (response, answers);
        ResponseVerdict::pass()
    }

    /// Builds the data to publish from the sources in the filter's `refresh` block. It runs in an instance of
    /// its own, beside those that see queries; they read the result through [`Setup::published`]. It is
    /// called at startup, periodically, and when a source has changed, always with all files of all sources.
    ///
    /// # Errors
    /// What is wrong with the sources, as text. The data published before stays in place.
    fn refresh(&mut self, sources: &[SourceFile], output: &mut Output) -> Result<(), String> {
        let _ = (sources, output);
        Err("this filter has no refresh: remove the `refresh` block".to_owned())
    }

    /// Receives the outcome of a query.
    fn event(&mut self, event: &Event<'_>) {
        let _ = event;
    }
}

/// Exports a type that implements [`Filter`] as the filter of this module. Use it once per crate.
#[macro_export]
macro_rules! export {
    ($filter:ty) => {
        const _: () = {
            impl $crate::runtime::Exported for $filter {
                fn with<R>(
                    work: impl FnOnce(&::std::cell::RefCell<$crate::runtime::State<$filter>>) -> R,
                ) -> R {
                    ::std::thread_local! {
                        static STATE: ::std::cell::RefCell<$crate::runtime::State<$filter>> =
                            const { ::std::cell::RefCell::new($crate::runtime::State::new()) };
                    }
                    STATE.with(work)
                }
            }

            #[cfg(target_family = "wasm")]
            type Component = $crate::runtime::Component<$filter>;
            #[cfg(target_family = "wasm")]
    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };
    };
}
