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

    /// Gives it up if it has data of its own: while the next generation is loaded, there may be data of the `current` one
    /// and of that.
    pub fn make_room(&mut self, current: &Generation) {
        let known = current.config.data();
        if self
            .get()
            .is_some_and(|before| before.config.data().iter().any(|data| !known.contains(data)))
        {
            *self = Before::default();
        }
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
