//! Who fetches lists from elsewhere.

use std::pin::Pin;
use std::sync::Arc;

use crate::config::{Data, Location};

/// What is at a location, or why that cannot be had.
pub type Fetched = Pin<Box<dyn Future<Output = Result<Arc<Data>, String>> + Send>>;

/// Fetches what locations name.
pub trait Fetch: Send + Sync {
    /// What was fetched last, whenever that was.
    fn kept(&self, location: &Location) -> Option<Arc<Data>>;

    /// What is there now. It takes no longer than the location says.
    fn fetch(&self, location: &Location) -> Fetched;
}
