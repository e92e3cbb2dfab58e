//! The filters to go back to, should those that took their place fail for many while they are on probation.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::config::{self, Config};
use crate::filter::Charges;
use crate::serve::generation::{Generation, Loaded};

/// How long they are kept.
const KEPT: Duration = Duration::from_secs(600);

/// The filters to go back to, for a while.
#[derive(Default)]
pub(super) struct Before(Vec<Former>);

/// A filter that another one took the place of.
#[derive(Clone)]
pub(super) struct Former {
    /// It, as it was loaded.
    pub loaded: Loaded,
    /// What it was loaded from.
    pub config: config::Filter,
    until: Instant,
}

impl Before {
    /// Keeps, for the next ten minutes, the filters of `old` that others of the same names have taken the place of in
    /// `new`. Those that were kept stay as long as what took their place does.
    pub fn follow(&mut self, old: &Generation, new: &Generation) {
        let filters = new.filters.iter().zip(&new.config.filters);
        let formers = filters.filter_map(|(loaded, config)| {
            let named = |was: &config::Filter| was.name == config.name;
            let was = old.config.filters.iter().position(named)?;
            if Arc::ptr_eq(&old.filters[was].filter, &loaded.filter) {
                return self.0.iter().find(|former| named(&former.config)).cloned();
            }
            // There is no way back from the way back.
            config.reverted.is_none().then(|| Former {
                loaded: old.filters[was].clone(),
                config: old.config.filters[was].clone(),
                until: Instant::now() + KEPT,
            })
        });
        self.0 = formers.collect();
    }

    /// Gives up those with data of their own: while the next generation is loaded, there may be data of the `current` one
    /// and of that.
    pub fn make_room(&mut self, current: &Config) {
        let known = current.data();
        let is_known = |former: &Former| former.config.data().all(|data| known.contains(&data));
        self.0.retain(is_known);
    }

    /// Of the filters of `current` that have failed for many while on probation, the first that took the place of another:
    /// its index, what it failed on, and the one before.
    pub fn charged(&self, current: &Generation) -> Option<(usize, Charges, Former)> {
        let mut filters = current.filters.iter().enumerate();
        filters.find_map(|(index, loaded)| {
            let filter = &loaded.filter;
            let former = self.0.iter().find(|former| former.config.name == filter.name())?;
            Some((index, filter.charges()?, former.clone()))
        })
    }

    /// Gives up those that were kept long enough.
    pub(crate) fn forget_old(&mut self) {
        let now = Instant::now();
        self.0.retain(|former| now < former.until);
    }

    /// Resolves when one of them was kept long enough; never, if there is none.
    pub(crate) async fn is_old(&self) {
        match self.0.iter().map(|former| former.until).min() {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

impl Former {
    /// A configuration in which its module and `config` take the place of those of the filter with this index; `why` is
    /// told of it until the next reload.
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
