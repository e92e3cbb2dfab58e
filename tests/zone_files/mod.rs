//! Zone files: serving them, compared with nsd on the same files, and reporting mistakes in them.

mod comparison;
mod secondaries;
mod serving;
mod transfers;
