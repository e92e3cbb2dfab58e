//! The API server of a Kubernetes cluster: connects to it and follows its objects.
//!
//! [`keep_connected`] keeps a client for as long as it is needed, and a [`Reflector`] reports the objects of
//! one kind. The modules that use the objects interpret them.

mod connection;
mod followed;
mod reflector;

pub(crate) use connection::keep_connected;
pub use followed::Followed;
pub(crate) use reflector::Reflector;
pub use reflector::{Change, Reading};
