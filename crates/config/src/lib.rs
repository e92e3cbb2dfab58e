//! Reads and checks the configuration, and fills in every default.
//!
//! [`load`] turns a text into a [`Config`] or a [`Report`] of every mistake in it; no intermediate state is
//! visible. This crate knows KDL and nothing about the rest of the proxy. It uses no socket, interface or
//! WebAssembly, and reads only the files that the text names.
//!
//! Each section of the language is decoded by its own file and described in `docs/configuration.md`. A test
//! here parses the examples in that document.

#![forbid(unsafe_code)]

mod address;
mod admin;
mod cache;
mod changing_upstreams;
mod clients;
pub mod config_block;
pub mod decode;
mod dnstap;
mod encrypted;
mod environment;
mod error;
pub mod files;
mod filter;
mod filters;
mod forward;
mod glossary;
mod include;
mod kind;
mod kubernetes;
mod listen;
mod lists;
mod load;
mod location;
mod module;
pub mod name;
mod network;
mod node;
mod pods;
mod reference;
mod refresh;
mod registries;
mod resolv_conf;
mod schema;
mod secondary;
mod selector;
mod service_entries;
mod signatures;
mod source;
mod spell;
mod surroundings;
mod syntax;
pub mod tls;
mod transfer;
mod tsig;
pub mod units;
mod upstream;
mod wasi;
mod whole;
mod words;
mod zone;
mod zone_file;

#[cfg(test)]
mod tests;

use dnsweir_os::{data, plain_text};
use dnsweir_wire::{dns, zonefile};
// Each chooses the version that another crate uses, as Cargo.toml says.
use idna_adapter as _;
use textwrap as _;

pub use crate::tls::{Identity, Trust};
pub use admin::Admin;
pub use cache::{Cache, Keeping, Prefetch, ServeStale};
pub use clients::{Clients, Rate};
pub use config_block::{ConfigNode, ConfigValue, Place};
pub use dnstap::{Dnstap, TapMessages, TapReader};
pub use dnsweir_os::data::{Data, DataWriter};
pub use dnsweir_wire::hex;
pub use error::{Diagnostic, Report, Source, Span};
pub use files::{read_module, read_source};
pub use filter::{Delivered, Filter, Limits, OnError, Signer, TestCasesFile, test_cases_beside};
pub use forward::{Forward, Written};
pub use glossary::{glossary, known_words};
pub use kubernetes::{External, Kubeconfig, Kubernetes, Pods};
pub use listen::Listen;
pub use lists::{List, ListAnswer, ListFormat, Lists};
pub use load::{admin_addresses, keeps_network, listeners, load, load_block, modules, parse};
pub use location::{Access, Location};
pub use module::{Builtins, Module, unreadable_help};
pub use network::{Network, left_aligned};
pub use node::{Node, NodeMode};
pub use pods::NodePods;
pub use reference::Reference;
pub use refresh::{Refresh, RefreshOrigin, RefreshSource};
pub use registries::Registries;
pub use schema::schema;
pub use secondary::Secondary;
pub use selector::Selector;
pub use service_entries::ServiceEntries;
pub use signatures::{
    ISSUER_HELP, Key, SUBJECT_HELP, Signatures, SignedBy, SigningIdentity, TrustRoot, is_issuer, is_subject,
};
pub use source::{NamedSource, SourceConfig};
pub use spell::spell;
pub use transfer::Transfer;
pub use units::{spell_duration, spell_size};
pub use upstream::{Encryption, Next, Policy, Protocol, Upstream};
pub use wasi::{Folder, Wasi};
pub use whole::Config;
pub use zone::{Stage, Zone};
pub use zone_file::ZoneFile;
