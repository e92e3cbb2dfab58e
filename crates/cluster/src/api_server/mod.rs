//! The API server of a Kubernetes cluster: how it is reached, and how its objects are followed.
//!
//! [`keep_connected`] has a client for as long as somebody needs one, and a [`Reflector`] tells of the objects of one kind.
//! What is made of them is for the rooms that need them.

mod connection;
mod followed;
mod reflector;

pub(crate) use connection::keep_connected;
pub use followed::Followed;
pub(crate) use reflector::Reflector;
pub use reflector::{Change, Reading};
