//! Answers for the names of a Kubernetes cluster, from the objects of its API server.
//!
//! One thread follows a [`cluster`]: a [`Reflector`](crate::api_server::Reflector) per kind of object reports
//! changes, which go into an [`index`]. Queries read the current index and never wait: [`place`] looks the
//! name up, and [`answer`] writes the reply. The last known state is served while the API server is
//! unreachable.

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
