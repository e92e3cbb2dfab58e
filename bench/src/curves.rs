//! How cost grows, as tables and as a picture of curves.

use std::fmt::Write;

use crate::growth::{Dimension, Line};
use crate::picture::Picture;
use crate::report::{FLOOR, Run, write_head, write_row};
use crate::sample::{Load, Sample};
use crate::scale::{BUILT_MS, INSIDE_NS, START_MS};
use crate::workload::{Workload, grouped};

/// Pixels: the picture, a row of it, and the plots of a row.
const WIDTH: f64 = 760.0;
const TOP: f64 = 56.0;
const ROW: f64 = 158.0;
const PLOTS: [f64; 2] = [62.0, 438.0];
const PLOT_WIDTH: f64 = 296.0;
const PLOT_TOP: f64 = 30.0;
const PLOT_HEIGHT: f64 = 92.0;

/// What a plot may show of a point.
type Figure = fn(&Run, &Line, u32) -> Option<f64>;

const FIGURES: [(&str, Figure); 2] = [
    ("over sockets: processor time, × the floor's", over_floor),
    ("without sockets: the proxy's own part, ns", |run, line, value| {
        run.figure(&line.point_name(value), INSIDE_NS)
    }),
];

/// What a point was asked, and how fast.
fn load(run: &Run, line: &Line, value: u32) -> Option<(Workload, Load)> {
    let workload = line.at(value).workload;
    Some((workload, *run.loads(workload).first()?))
}

fn over_floor(run: &Run, line: &Line, value: u32) -> Option<f64> {
    let (workload, load) = load(run, line, value)?;
    run.samples
        .cost_ratio(&line.point_name(value), FLOOR, workload, load)
}

/// The points of a line that something was measured of.
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

/// The tables.
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

/// The picture: a row for each dimension.
pub fn draw(runs: &[(Dimension, Run)]) -> String {
    let mut picture = Picture::new(WIDTH, TOP + ROW * runs.len() as f64);
    picture.text("title", 20.0, 28.0, "What a cached answer costs as things grow");
    for ((title, _), left) in FIGURES.iter().zip(PLOTS) {
        picture.text("note", left - 42.0, 48.0, title);
    }
    for (row, (dimension, run)) in runs.iter().enumerate() {
        let top = TOP + ROW * row as f64;
        picture.text("head", 20.0, top + 16.0, dimension.title);
        let lines: Vec<(&Line, Vec<u32>)> = dimension.lines().map(|line| (line, points(run, line))).collect();
        if lines.len() > 1 {
            let mut x = PLOTS[1] - 102.0;
            for (index, (line, _)) in lines.iter().enumerate() {
                picture.curve(&format!("line{index}"), &[(x, top + 12.0)]);
                picture.text("note", x + 7.0, top + 16.0, line.label);
                x += 26.0 + 6.2 * line.label.len() as f64;
            }
        }
        for ((_, figure), left) in FIGURES.iter().zip(PLOTS) {
            plot(&mut picture, (left, top + PLOT_TOP), &lines, |line, value| {
                figure(run, line, value)
            });
        }
    }
    picture.finish()
}

/// One plot, from its upper left corner.
fn plot(
    picture: &mut Picture,
    (left, top): (f64, f64),
    lines: &[(&Line, Vec<u32>)],
    figure: impl Fn(&Line, u32) -> Option<f64>,
) {
    let curves: Vec<Vec<(f64, f64)>> = lines
        .iter()
        .map(|(line, values)| {
            let points = values
                .iter()
                .filter_map(|value| Some((f64::from(*value), figure(line, *value)?)));
            points.collect()
        })
        .collect();
    let all = || curves.iter().flatten().copied();
    if all().next().is_none() {
        return;
    }
    let mut values: Vec<f64> = all().map(|(value, _)| value).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    let most = all().map(|(_, figure)| figure).fold(0.0, f64::max);
    let least = all().map(|(_, figure)| figure).fold(f64::MAX, f64::min);
    let across = Axis::across(&values);
    let up = Axis::up(least, most);
    let bottom = top + PLOT_HEIGHT;
    let x = |value: f64| left + across.place(value) * PLOT_WIDTH;
    let y = |figure: f64| bottom - up.place(figure) * PLOT_HEIGHT;
    for tick in up.ticks() {
        picture.line("rule", (left, y(tick)), (left + PLOT_WIDTH, y(tick)));
        picture.text("tick left", left - 8.0, y(tick) + 4.0, short(tick));
    }
    for value in values {
        picture.text("tick", x(value), bottom + 16.0, short(value));
    }
    for (index, curve) in curves.iter().enumerate().filter(|(_, curve)| !curve.is_empty()) {
        let points: Vec<_> = curve
            .iter()
            .map(|(value, figure)| (x(*value), y(*figure)))
            .collect();
        picture.curve(&format!("line{index}"), &points);
    }
}

/// From a value to a place between 0 and 1.
struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Axis {
    /// For values that are put in by hand: counts. Evenly spread for a few.
    fn across(values: &[f64]) -> Axis {
        let (from, to) = (values[0], values[values.len() - 1]);
        Axis {
            from,
            to: if from < to { to } else { from + 1.0 },
            logarithmic: to > 100.0,
        }
    }

    /// For figures: from 0, unless they differ so much that the smaller ones could not be told apart.
    fn up(least: f64, most: f64) -> Axis {
        if most > 20.0 * least && least > 0.0 {
            return Axis {
                from: 10_f64.powf(least.log10().floor()),
                to: 10_f64.powf(most.log10().ceil()),
                logarithmic: true,
            };
        }
        let step = step(most);
        Axis {
            from: 0.0,
            to: (most / step).ceil() * step,
            logarithmic: false,
        }
    }

    fn place(&self, value: f64) -> f64 {
        if self.logarithmic {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.to / self.from).log10().round() as i32;
            return (0..=decades)
                .map(|decade| self.from * 10_f64.powi(decade))
                .collect();
        }
        let step = step(self.to);
        let count = (self.to / step).round() as u32;
        (0..=count).map(|tick| f64::from(tick) * step).collect()
    }
}

/// A round distance between ticks, of which there will be three to five.
fn step(most: f64) -> f64 {
    let decade = 10_f64.powf(most.log10().floor());
    let steps = [0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0].map(|part| part * decade);
    steps
        .into_iter()
        .find(|step| most / step <= 4.0)
        .unwrap_or(decade)
}

/// 1.5, 200, 1k, 1M.
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
    use crate::report::figure;
    use crate::sample::tests::sample;

    #[test]
    fn a_dimension_has_its_figures_in_table_and_picture() {
        let load = Load::Rate(60_000);
        let dimension = Dimension::find("zones").unwrap();
        let at = |name: &str, cost| Sample {
            workload: Workload::Hot(10_000),
            lost: 0,
            wrong: 0,
            answered: 1000,
            ..sample(name, 0, load, cost)
        };
        let mut run = Run::of(&[at(FLOOR, 10), at("zones=1", 12), at("zones=10000", 15)]);
        run.add(&figure("zones=1", INSIDE_NS, 140.0)).unwrap();
        run.add(&figure("zones=1000", INSIDE_NS, 150.4)).unwrap();
        run.add(&figure("zones=1000", BUILT_MS, 7.25)).unwrap();
        let runs = [(dimension, run)];
        let text = markdown(&runs);
        assert!(
            text.contains("| 1 | 140 | 12.00 | 1.20 | 2.0 | – | – |"),
            "{text}"
        );
        assert!(text.contains("| 1 000 | 150 | – | – | – | – | 7.2 |"), "{text}");
        assert!(text.contains("| 10 000 | – | 15.00 | 1.50 |"), "{text}");
        let svg = draw(&runs);
        assert_eq!(svg.matches("<path class=\"line0\"").count(), 2, "{svg}");
        // From the left to the right, and to the top: the highest tick is 1.5.
        let right = PLOTS[0] + PLOT_WIDTH;
        let high = TOP + PLOT_TOP;
        assert!(svg.contains(&format!("L{right:.1} {high:.1}\"")), "{svg}");
    }

    #[test]
    fn axes_have_a_few_round_ticks() {
        let ticks = |least, most| Axis::up(least, most).ticks();
        assert_eq!(ticks(1.1, 1.3), [0.0, 0.5, 1.0, 1.5]);
        assert_eq!(ticks(100.0, 380.0), [0.0, 100.0, 200.0, 300.0, 400.0]);
        assert_eq!(ticks(90.0, 20_000.0), [10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        let across = Axis::across(&[1.0, 10.0, 10_000.0]);
        assert_eq!(
            [1.0, 100.0, 10_000.0].map(|value| across.place(value)),
            [0.0, 0.5, 1.0]
        );
        let few = Axis::across(&[0.0, 4.0, 16.0]);
        assert_eq!([0.0, 4.0, 16.0].map(|value| few.place(value)), [0.0, 0.25, 1.0]);
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
