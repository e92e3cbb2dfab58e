//! How cost grows, as tables and as a picture of curves.

use std::error::Error;
use std::fmt::Write;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::growth::{Dimension, Line};
use crate::picture::{self, Area, BROWN, GREEN, GREY, NOTE, PAPER, RULE, VIOLET, heading, text};
use crate::report::{FLOOR, Run, write_head, write_row};
use crate::sample::{Load, Sample};
use crate::scale::{BUILT_MS, INSIDE_NS, START_MS};
use crate::workload::{Workload, grouped};

/// In pixels: the picture, one row of it, and the left and right edge of each plot in a row.
const WIDTH: u32 = 760;
const TOP: u32 = 56;
const ROW: u32 = 158;
const PLOTS: [(u32, u32); 2] = [(20, 372), (396, 748)];

/// The colours of a plot's curves.
pub const COLOURS: [RGBColor; 4] = [GREEN, BROWN, VIOLET, GREY];

/// A figure of a point that a plot shows.
type Figure = fn(&Run, &Line, u32) -> Option<f64>;

const FIGURES: [(&str, Figure); 2] = [
    ("over sockets: processor time, × the floor's", over_floor),
    ("without sockets: the proxy's own part, ns", |run, line, value| {
        run.figure(&line.point_name(value), INSIDE_NS)
    }),
];

/// Returns the workload and load of a point.
fn load(run: &Run, line: &Line, value: u32) -> Option<(Workload, Load)> {
    let workload = line.at(value).workload;
    Some((workload, *run.loads(workload).first()?))
}

fn over_floor(run: &Run, line: &Line, value: u32) -> Option<f64> {
    let (workload, load) = load(run, line, value)?;
    run.samples
        .cost_ratio(&line.point_name(value), FLOOR, workload, load)
}

/// Returns the points of a curve that have any figures.
fn points(run: &Run, line: &Line) -> Vec<u32> {
    let points = line.points(usize::MAX).map(|(value, _)| value);
    points
        .filter(|value| {
            FIGURES
                .iter()
                .any(|(_, figure)| figure(run, line, *value).is_some())
        })
        .collect()
}

/// Returns the tables.
pub fn markdown(runs: &[(Dimension, Run)]) -> String {
    let mut out = String::from("# How cost grows\n\n");
    for (dimension, run) in runs {
        let _ = writeln!(out, "## {}\n", dimension.title);
        run.write_environment(&mut out);
        let head = [
            "",
            "own part, ns",
            "CPU µs/query",
            "× floor",
            "RSS MiB",
            "start, ms",
            "build, ms",
        ];
        write_head(&mut out, &head.map(str::to_owned));
        for line in dimension.lines() {
            for value in points(run, line) {
                let name = line.point_name(value);
                let figure = |what: &str, digits: usize| {
                    let figure = run.figure(&name, what);
                    figure.map_or("–".to_owned(), |figure| format!("{figure:.digits$}"))
                };
                let sampled = |what: fn(&Sample) -> f64, digits: usize| {
                    let (workload, load) = load(run, line, value)?;
                    let median = run.median(&name, workload, load, |sample| Some(what(sample)))?;
                    Some(format!("{median:.digits$}{}", run.mark(&name, workload, load)))
                };
                let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
                let label = if line.label.is_empty() { "" } else { ", " };
                write_row(
                    &mut out,
                    &[
                        format!("{}{label}{}", grouped(value.into()), line.label),
                        figure(INSIDE_NS, 0),
                        or_none(sampled(|sample| sample.cost().unwrap_or(f64::NAN), 2)),
                        or_none(over_floor(run, line, value).map(|ratio| format!("{ratio:.2}"))),
                        or_none(sampled(|sample| sample.resident as f64 / 1024.0, 1)),
                        figure(START_MS, 0),
                        figure(BUILT_MS, 1),
                    ],
                );
            }
        }
        out.push('\n');
        run.write_notes(&mut out);
    }
    out
}

/// Draws the picture: a row for each dimension.
pub fn draw(runs: &[(Dimension, Run)]) -> Result<String, Box<dyn Error>> {
    picture::draw((WIDTH, TOP + ROW * runs.len() as u32), |area| {
        area.draw_text(
            "What a cached answer costs as things grow",
            &heading(15.0),
            (20, 32),
        )?;
        let (head, rows) = area.split_vertically(TOP);
        for ((title, _), (left, _)) in FIGURES.iter().zip(PLOTS) {
            head.draw_text(title, &note(), (left as i32, 51))?;
        }
        for ((dimension, run), row) in runs.iter().zip(rows.split_evenly((runs.len(), 1))) {
            draw_row(&row, *dimension, run)?;
        }
        Ok(())
    })
}

fn draw_row(row: &Area, dimension: Dimension, run: &Run) -> Result<(), Box<dyn Error>> {
    row.draw_text(dimension.title, &heading(12.0), (20, 20))?;
    let lines: Vec<(&Line, Vec<u32>)> = dimension.lines().map(|line| (line, points(run, line))).collect();
    if lines.len() > 1 {
        let mut x = PLOTS[1].0 as i32 - 60;
        for ((line, _), colour) in lines.iter().zip(COLOURS) {
            row.draw(&Circle::new((x, 12), 2, colour.stroke_width(2)))?;
            row.draw_text(line.label, &note(), (x + 7, 19))?;
            x += 26 + (6.2 * line.label.len() as f64) as i32;
        }
    }
    for ((_, figure), (left, right)) in FIGURES.iter().zip(PLOTS) {
        let area = row.clone().shrink((left, 24), (right - left, ROW - 36));
        let curves = lines.iter().map(|(line, values)| {
            let points = values
                .iter()
                .filter_map(|value| Some((f64::from(*value), figure(run, line, *value)?)));
            points.collect()
        });
        plot(&area, &curves.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Draws one plot. The axis of counts is logarithmic, unless they are few; the other axis begins at 0, unless
/// the figures differ so much that the smaller ones would be indistinguishable.
pub fn plot(area: &Area, curves: &[Vec<(f64, f64)>]) -> Result<(), Box<dyn Error>> {
    let all = || curves.iter().flatten().copied();
    let mut counts: Vec<f64> = all().map(|(count, _)| count).collect();
    counts.sort_unstable_by(f64::total_cmp);
    counts.dedup();
    let (Some(first), Some(last)) = (counts.first().copied(), counts.last().copied()) else {
        return Ok(());
    };
    let most = all().map(|(_, figure)| figure).fold(0.0, f64::max);
    let least = all().map(|(_, figure)| figure).fold(f64::MAX, f64::min);
    let across = first..last.max(first + 1.0);
    let logarithmic = most > 20.0 * least && least > 0.0;
    let decades = 10_f64.powf(least.log10().floor())..10_f64.powf(most.log10().ceil());
    let up = 0.0..most * 1.05;
    // On a logarithmic axis, each count has its tick.
    match (last > 100.0, logarithmic) {
        (true, true) => curves_on(
            area,
            across.log_scale().with_key_points(counts),
            decades.log_scale(),
            curves,
        ),
        (true, false) => curves_on(area, across.log_scale().with_key_points(counts), up, curves),
        (false, true) => curves_on(area, across, decades.log_scale(), curves),
        (false, false) => curves_on(area, across, up, curves),
    }
}

fn curves_on<X, Y>(area: &Area, across: X, up: Y, curves: &[Vec<(f64, f64)>]) -> Result<(), Box<dyn Error>>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin_top(6)
        .margin_right(14)
        .x_label_area_size(24)
        .y_label_area_size(42)
        .build_cartesian_2d(across, up)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(TRANSPARENT)
        .set_all_tick_mark_size(4)
        .bold_line_style(RULE)
        .light_line_style(TRANSPARENT)
        .label_style(text(11.0, NOTE, HPos::Center))
        .x_label_formatter(&|count| short(*count))
        .y_label_formatter(&|figure| short(*figure))
        .x_labels(9)
        .y_labels(5)
        .draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS) {
        let points = || curve.iter().copied();
        chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
        chart.draw_series(points().map(|point| Circle::new(point, 2, PAPER.filled())))?;
        chart.draw_series(points().map(|point| Circle::new(point, 2, colour.stroke_width(2))))?;
    }
    Ok(())
}

/// Returns the text style of notes.
pub fn note() -> TextStyle<'static> {
    text(11.0, NOTE, HPos::Left)
}

/// Formats a number briefly: 1.5, 200, 1k, 1M.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let rounded = (value * 100.0).round() / 100.0;
    format!("{rounded}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::DIMENSIONS;
    use crate::record::{Entry, Figure};
    use crate::sample::tests::sample;

    #[test]
    fn a_dimension_has_its_figures_in_table_and_picture() {
        let load = Load::Rate(60_000);
        let dimension: Dimension = "zones".parse().unwrap();
        let at = |name: &str, cost| Sample {
            workload: Workload::Hot(10_000),
            lost: 0,
            wrong: 0,
            answered: 1000,
            ..sample(name, 0, load, cost)
        };
        let mut run = Run::of(&[at(FLOOR, 10), at("zones=1", 12), at("zones=10000", 15)]);
        let mut figure = |of: &str, what: &str, value| {
            let (of, what) = (of.to_owned(), what.to_owned());
            run.add(Entry::Figure(Figure { of, what, value }));
        };
        figure("zones=1", INSIDE_NS, 140.0);
        figure("zones=1000", INSIDE_NS, 150.4);
        figure("zones=1000", BUILT_MS, 7.25);
        let runs = [(dimension, run)];
        let text = markdown(&runs);
        assert!(
            text.contains("| 1 | 140 | 12.00 | 1.20 | 2.0 | – | – |"),
            "{text}"
        );
        assert!(text.contains("| 1 000 | 150 | – | – | – | – | 7.2 |"), "{text}");
        assert!(text.contains("| 10 000 | – | 15.00 | 1.50 |"), "{text}");
        let svg = draw(&runs).unwrap();
        assert_eq!(
            svg.matches("<polyline fill=\"none\" opacity=\"1\" stroke=\"#0F766E\"")
                .count(),
            2,
            "{svg}"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.25, 200.0, 10_000.0, 1e6].map(short),
            ["0.25", "200", "10k", "1M"]
        );
    }

    #[test]
    fn every_dimension_has_curves() {
        for dimension in DIMENSIONS {
            assert!((1..=3).contains(&dimension.lines().count()), "{}", dimension.name);
        }
    }
}
