//! The generation to go back to, should a filter of the present one fail on its first queries.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::serve::generation::Generation;

/// How long it is kept.
const KEPT: Duration = Duration::from_secs(600);

/// The generation to go back to, for a while.
#[derive(Default)]
pub(super) struct Before(Option<(Arc<Generation>, Instant)>);

impl Before {
    /// For the next ten minutes.
    pub fn keep(generation: Arc<Generation>) -> Before {
        Before(Some((generation, Instant::now() + KEPT)))
    }

    /// It, if it is still there.
    pub fn get(&self) -> Option<&Arc<Generation>> {
        self.0.as_ref().map(|(generation, _)| generation)
    }

    /// Resolves when it is not needed any more; never, if there is none.
    pub async fn is_old(&self) {
        match &self.0 {
            Some((_, until)) => sleep_until(*until).await,
            None => std::future::pending().await,
        }
    }
}
