//! The interface to fetch remote lists.

use std::pin::Pin;
use std::sync::Arc;

use crate::config::{Data, Location};

/// The contents of a location, or why they cannot be had.
pub type Fetched = Pin<Box<dyn Future<Output = Result<Arc<Data>, String>> + Send>>;

/// Fetches the contents of locations.
pub trait Fetch: Send + Sync {
    /// Returns the copy kept of the last fetch, however old.
    fn kept(&self, location: &Location) -> Option<Arc<Data>>;

    /// Fetches the current contents, within the location's timeout.
    fn fetch(&self, location: &Location) -> Fetched;
}
