//! What `/metrics` shows of a filter.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::counters::{FilterCounters, LOOKUPS};
use super::host_state::clock;
use super::load::Filter;
use crate::metrics::{Metric, Metrics};

impl Filter {
    /// Adds the filter's metrics.
    pub fn show(&self, metrics: &mut Metrics) {
        let (filter, counters) = (("filter", self.name()), &**self.counters());
        show_phases(filter, counters, metrics);
        let metric = metrics.counter("filter_verdicts", "Verdicts on queries, by kind");
        add_each(metric, filter, "verdict", &counters.verdicts.kinds());
        let metric = metrics.counter("filter_lookups", "Lookups made for a filter, by result");
        for (status, count) in LOOKUPS.iter().zip(&counters.lookups) {
            metric.add(&[filter, ("status", status)], count.load(Relaxed));
        }
        let help = "Queries decided by a remembered verdict, without a call";
        let metric = metrics.counter("filter_remembered", help);
        metric.add(&[filter], counters.remembered.load(Relaxed));
        let help = "Responses changed by a verdict of the filter, remembered verdicts included";
        let metric = metrics.counter("filter_edits", help);
        metric.add(&[filter], counters.edits.load(Relaxed));
        let help = "Time that the proxy spent on changing responses";
        let metric = metrics.counter("filter_edit_seconds", help);
        metric.add_seconds(&[filter], counters.edit_nanoseconds.load(Relaxed) as f64 / 1e9);
        let help = "Verdicts of the filter that held a response back";
        let metric = metrics.counter("filter_delays", help);
        metric.add(&[filter], counters.delays.load(Relaxed));
        let help = "Calls that trapped, exceeded a limit or returned an invalid result";
        let (traps, metric) = (&counters.traps, metrics.counter("filter_traps", help));
        add_each(
            metric,
            filter,
            "reason",
            &[
                ("trap", &traps.trap),
                ("time", &traps.time),
                ("memory", &traps.memory),
                ("garbage", &traps.garbage),
            ],
        );
        let help = "Queries, responses and events for which the filter was not called, by reason";
        let metric = metrics.counter("filter_uncalled", help);
        add_each(metric, filter, "reason", &counters.uncalled.reasons());
        let metric = metrics.counter("filter_restarts", "Instances that replaced a failed one");
        metric.add(&[filter], counters.restarts.load(Relaxed));
        let help = "Workers on which the filter is suspended, at least for new names and clients";
        let metric = metrics.gauge("filter_suspended", help);
        metric.add(&[filter], counters.suspended.load(Relaxed));
        let help = "Peak memory of any instance of the filter";
        let metric = metrics.gauge("filter_memory_bytes", help);
        metric.add(&[filter], counters.memory.load(Relaxed));
        let help = "Lines printed by the filter and dropped because nothing read them in time";
        let metric = metrics.counter("filter_lines_dropped", help);
        metric.add(&[filter], counters.lines_dropped.load(Relaxed));
        show_own(filter, counters, metrics);
        self.show_refreshes(filter, metrics);
        if let Some(tables) = self.context.tables.get() {
            tables.show(clock(), self.name(), metrics);
        }
    }
}

impl Filter {
    /// Declares the metrics for every filter, so that every page has them; only a filter with a refresh has
    /// values.
    fn show_refreshes(&self, filter: (&'static str, &str), metrics: &mut Metrics) {
        let refreshes = self.refresh_config().map(|_| self.refreshes());
        let help = "Refreshes of a filter's data, by result";
        let metric = metrics.counter("filter_refreshes", help);
        if let Some(refreshes) = refreshes {
            for (result, count) in [
                ("new", &refreshes.new),
                ("unchanged", &refreshes.unchanged),
                ("failed", &refreshes.failed),
            ] {
                metric.add(&[filter, ("result", result)], count.load(Relaxed));
            }
        }
        let help = "Bytes that a filter's refresh has published";
        let metric = metrics.gauge("filter_published_bytes", help);
        if refreshes.is_some() {
            metric.add(&[filter], self.published_octets() as u64);
        }
        let help = "Seconds since the last successful refresh of a filter's data";
        let metric = metrics.gauge("filter_refresh_age_seconds", help);
        if let Some(age) = refreshes.and_then(|refreshes| refreshes.age()) {
            metric.add(&[filter], age.as_secs());
        }
    }
}

/// Adds the values that the filter itself names.
fn show_own(filter: (&'static str, &str), counters: &FilterCounters, metrics: &mut Metrics) {
    let help = "Queries dropped by the filter, by its reason";
    let metric = metrics.counter("filter_drops", help);
    for (reason, count) in counters.drops.snapshot() {
        metric.add(&[filter, ("reason", &reason)], count);
    }
    let metric = metrics.counter("filter_counter", "Counters kept by the filter itself");
    for own in counters.own.snapshot() {
        let mut labels = vec![filter, ("name", &*own.name)];
        labels.extend(own.labels.iter().map(|(name, value)| (&**name, &**value)));
        metric.add(&labels, own.count);
    }
    let help =
        "Counts rejected because of an invalid name or label, or because the filter has too many counters";
    let metric = metrics.counter("filter_counters_dropped", help);
    metric.add(&[filter], counters.own_dropped.load(Relaxed));
}

fn show_phases(filter: (&'static str, &str), counters: &FilterCounters, metrics: &mut Metrics) {
    for (phase, counters) in counters.phases() {
        let labels = [filter, ("phase", phase)];
        let metric = metrics.counter("filter_calls", "Calls into a filter, by phase");
        metric.add(&labels, counters.calls.load(Relaxed));
        let metric = metrics.counter("filter_seconds", "Time spent inside a filter, by phase");
        metric.add_seconds(&labels, counters.nanoseconds.load(Relaxed) as f64 / 1e9);
        let help = "Queries, responses and events passed to a filter";
        let metric = metrics.counter("filter_items", help);
        metric.add(&labels, counters.items.load(Relaxed));
        let help = "Queries, responses and events on which a filter failed";
        let metric = metrics.counter("filter_failed", help);
        metric.add(&labels, counters.failed.load(Relaxed));
    }
}

fn add_each(
    metric: &mut Metric,
    filter: (&'static str, &str),
    label: &'static str,
    counters: &[(&str, &AtomicU64)],
) {
    for (value, count) in counters {
        metric.add(&[filter, (label, value)], count.load(Relaxed));
    }
}
