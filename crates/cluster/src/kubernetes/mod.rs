//! Answers for the names of a Kubernetes cluster, from what its API server says.
//!
//! A [`cluster`] is followed by one thread: a [`Reflector`](crate::api_server::Reflector) for each kind of objects tells of changes, and an [`index`] is
//! made that says the same. Queries read the index of the moment and wait for nothing: [`place`] finds what is at a
//! name, and [`answer`] writes it down. What was known last is served while the API server is away.

mod answer;
mod cluster;
#[doc(hidden)]
pub mod fuzzing;
mod imports;
mod index;
pub(super) mod known;
mod labels;
pub(super) mod message;
mod objects;
mod place;
mod rules;
mod source;
mod stage;
mod state;
mod transfer;

#[cfg(test)]
mod tests;

pub use stage::{Kubernetes, MOST_SOCKETS};
