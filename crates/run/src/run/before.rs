//! Replaced filters, to go back to if their replacements fail for many names while on probation.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::config::{self, Config};
use crate::filter::Charges;
use crate::serve::generation::{Generation, Loaded};

/// How long they are kept.
const KEPT: Duration = Duration::from_secs(600);

/// Replaced filters, kept for a while.
#[derive(Default)]
pub(super) struct Before(Vec<Former>);

/// A filter that was replaced.
#[derive(Clone)]
pub(super) struct Former {
    /// The filter as loaded.
    pub loaded: Loaded,
    /// Its configuration.
    pub config: config::Filter,
    until: Instant,
}

impl Before {
    /// Keeps, for ten minutes, the filters of `old` that `new` replaces under the same names. Those kept
    /// before stay as long as their replacement does.
    pub fn follow(&mut self, old: &Generation, new: &Generation) {
        let filters = new.filters.iter().zip(&new.config.filters);
        let formers = filters.filter_map(|(loaded, config)| {
            let named = |was: &config::Filter| was.name == config.name;
            let was = old.config.filters.iter().position(named)?;
            if Arc::ptr_eq(&old.filters[was].filter, &loaded.filter) {
                return self.0.iter().find(|former| named(&former.config)).cloned();
            }
            // After going back, the failed filter is not kept.
            config.reverted.is_none().then(|| Former {
                loaded: old.filters[was].clone(),
                config: old.config.filters[was].clone(),
                until: Instant::now() + KEPT,
            })
        });
        self.0 = formers.collect();
    }

    /// Drops those with their own data: during a load there is memory only for the data of the `current`
    /// generation and of the next.
    pub fn make_room(&mut self, current: &Config) {
        let known = current.data();
        let is_known = |former: &Former| former.config.data().all(|data| known.contains(&data));
        self.0.retain(is_known);
    }

    /// Returns the first filter of `current` that has failed for many names while on probation and has a
    /// predecessor: its index, its failures, and the predecessor.
    pub fn charged(&self, current: &Generation) -> Option<(usize, Charges, Former)> {
        let mut filters = current.filters.iter().enumerate();
        filters.find_map(|(index, loaded)| {
            let filter = &loaded.filter;
            let former = self.0.iter().find(|former| former.config.name == filter.name())?;
            Some((index, filter.charges()?, former.clone()))
        })
    }

    /// Drops those that were kept long enough.
    pub(crate) fn forget_old(&mut self) {
        let now = Instant::now();
        self.0.retain(|former| now < former.until);
    }

    /// Resolves when one was kept long enough; never, if there is none.
    pub(crate) async fn is_old(&self) {
        match self.0.iter().map(|former| former.until).min() {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

impl Former {
    /// Returns a configuration where its module and `config` replace those of the filter at this index. `why`
    /// is shown until the next reload.
    pub(crate) fn in_place_of(&self, index: usize, current: &Config, why: String) -> Config {
        let mut config = current.clone();
        let (filter, own) = (&mut config.filters[index], self.config.clone());
        filter.module = own.module;
        filter.code = own.code;
        filter.artifact = own.artifact;
        filter.signed_by = own.signed_by;
        filter.test_cases = own.test_cases;
        filter.config = own.config;
        filter.reverted = Some(why);
        config
    }
}
