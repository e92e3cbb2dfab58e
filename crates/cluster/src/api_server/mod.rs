//! The API server of a Kubernetes cluster: connects to it and follows its objects.
//!
//! [`keep_connected`] keeps a client for as long as it is needed, and a [`Reflector`] reports the objects of
//! one kind. The modules that use the objects interpret them.

mod access;
mod client;
mod connection;
mod credentials;
mod followed;
mod kubeconfig;
mod objects;
mod plugin;
mod reflector;
pub mod resources;
#[cfg(test)]
mod tests;

pub use client::{Client, Error, Session};
pub(crate) use connection::keep_connected;
pub use followed::Followed;
pub(crate) use objects::Groups;
pub use objects::{HasMetadata, Metadata, Object, Status};
pub use reflector::{Change, Reading};
pub(crate) use reflector::{Collection, Reflector};
