//! The picture of the latency of hits, by load as a share of each server's capacity.

use std::error::Error;

use plotters::prelude::*;

use crate::curves::{COLOURS, note, plot};
use crate::picture::{self, heading};
use crate::report::Run;
use crate::sample::{Latency, Load};
use crate::workload::Workload;

/// In pixels: the picture, and the left and right edge of each plot.
const SIZE: (u32, u32) = (760, 250);
const PLOTS: [(u32, u32); 3] = [(8, 252), (258, 502), (508, 752)];
const TOP: u32 = 84;

/// A percentile that a plot shows, in nanoseconds.
type Percentile = fn(&Latency) -> u64;

const PERCENTILES: [(&str, Percentile); 3] = [
    ("median, µs", |latency| latency.p50),
    ("99th percentile, µs", |latency| latency.p99),
    ("99.9th percentile, µs", |latency| latency.p999),
];

/// Draws the hits of a run; `None` if no load was a share of the capacity.
///
/// # Errors
///
/// If it cannot be drawn.
pub fn draw(run: &Run) -> Result<Option<String>, Box<dyn Error>> {
    let shares: Vec<u8> = run
        .loads(Workload::HOT)
        .into_iter()
        .filter_map(|load| match load {
            Load::Share(share) => Some(share),
            _ => None,
        })
        .collect();
    if shares.is_empty() {
        return Ok(None);
    }
    let peers = run.peers(Workload::HOT);
    let curve = |peer: &str, percentile: Percentile| {
        let points = shares.iter().filter_map(|share| {
            let samples = run.samples.of(peer, Workload::HOT, Load::Share(*share));
            let figure = quiet(samples.map(|sample| percentile(&sample.latency) as f64 / 1e3))?;
            Some((f64::from(*share), figure))
        });
        points.collect::<Vec<_>>()
    };
    let svg = picture::draw(SIZE, |area| {
        let title = "How long cached answers take, by load in % of each server's capacity";
        area.draw_text(title, &heading(14.0), (20, 30))?;
        let mut x = 24;
        for (peer, colour) in peers.iter().zip(COLOURS) {
            area.draw(&Circle::new((x, 45), 2, colour.stroke_width(2)))?;
            area.draw_text(peer, &note(), (x + 8, 52))?;
            x += 32 + (6.5 * peer.len() as f64) as i32;
        }
        for ((title, percentile), (left, right)) in PERCENTILES.into_iter().zip(PLOTS) {
            area.draw_text(title, &note(), (left as i32 + 12, 76))?;
            let plotted = area.clone().shrink((left, TOP), (right - left, SIZE.1 - TOP - 8));
            let curves: Vec<_> = peers.iter().map(|peer| curve(peer, percentile)).collect();
            plot(&plotted, &curves)?;
        }
        Ok(())
    });
    svg.map(Some)
}

/// Returns the lowest decile over the rounds. A shared machine may stall for a millisecond, which shows in
/// the tail of the server being measured, and in most rounds affects one of them.
fn quiet(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 10).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::sample;

    #[test]
    fn each_server_has_a_curve_in_each_plot() {
        let mut samples = Vec::new();
        for share in [10, 50, 90] {
            for peer in ["dnsweir", "unbound"] {
                samples.push(sample(peer, 0, Load::Share(share), 5));
            }
        }
        let svg = draw(&Run::of(&samples)).unwrap().unwrap();
        let lines = svg.matches("<polyline fill=\"none\" opacity=\"1\" stroke=\"#0F766E\"");
        assert_eq!(lines.count(), 3, "{svg}");
        let saturated = Run::of(&[sample("dnsweir", 0, Load::Saturation, 5)]);
        assert!(draw(&saturated).unwrap().is_none());
    }
}
