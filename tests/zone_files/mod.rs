//! Zone files: what is served from them, next to nsd on the same files, and what is said about those that are wrong.

mod comparison;
mod secondaries;
mod serving;
mod transfers;
