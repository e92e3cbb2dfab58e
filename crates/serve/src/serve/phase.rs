//! Filter calls: one for all queries of a batch that have reached the same filter.

use std::time::{Duration, Instant};

use crate::filter::{Batch, Instance};

use super::live::Live;
use super::worker::Worker;

/// One of the two phases in which a filter decides: on the way in, and on the way out.
pub(super) trait Phase {
    /// What a filter gets about one query.
    type Record;
    /// What it decides.
    type Outcome;

    /// Adds the record of the query with this index to the batch.
    fn show(&self, filter: usize, index: usize, batch: &mut Batch<Self::Record>);
    /// Calls the filter, which returns one outcome for each record.
    fn call(
        &self,
        instance: &mut Instance,
        batch: &mut Batch<Self::Record>,
        outcomes: &mut Vec<Self::Outcome>,
    );
    /// Applies the outcome for the query with this index. `took` is the duration of the call, if it is
    /// traced.
    fn apply(&mut self, filter: usize, index: usize, outcome: Self::Outcome, took: Option<Duration>);
}

impl Worker {
    /// Calls each filter for the queries that wait for it, and applies the outcomes. Afterwards none waits.
    pub(super) fn ask<P: Phase>(
        &self,
        live: &Live,
        phase: &mut P,
        waiting: &mut [Vec<usize>],
        batch: &mut Batch<P::Record>,
        outcomes: &mut Vec<P::Outcome>,
    ) {
        for (filter, waiting) in waiting.iter_mut().enumerate() {
            if waiting.is_empty() {
                continue;
            }
            batch.clear();
            for &index in waiting.iter() {
                phase.show(filter, index, batch);
            }
            let begun = self.shared.trace_sink.as_ref().map(|_| Instant::now());
            phase.call(&mut live.instances[filter].borrow_mut(), batch, outcomes);
            let took = begun.map(|begun| begun.elapsed());
            for (index, outcome) in waiting.drain(..).zip(outcomes.drain(..)) {
                phase.apply(filter, index, outcome, took);
            }
        }
    }
}
