//! The results, as a table and as curves.

use std::error::Error;
use std::fmt::Write;

use plotters::prelude::*;

use super::follower::Follower;
use crate::curves::{COLOURS, note, plot};
use crate::picture::{self, Area, heading};
use crate::report::{Run, write_head, write_row};
use crate::workload::grouped;

// What the raw numbers call the figures.
/// From the start of the process to the first right answer.
pub const START_MS: &str = "start_ms";
/// CPU time until then.
pub const START_CPU_MS: &str = "start_cpu_ms";
/// Memory after the lists, and after all changes.
pub const RESIDENT_MIB: &str = "resident_mib";
pub const RESIDENT_AFTER_MIB: &str = "resident_after_mib";
/// CPU time per query.
pub const QUERY_US: &str = "query_us";
/// From a change to an answer that has it, without other changes: median and maximum.
pub const CHANGE_MS: &str = "change_ms";
pub const WORST_CHANGE_MS: &str = "worst_change_ms";
/// The same, during other changes.
pub const BUSY_CHANGE_MS: &str = "busy_change_ms";
pub const WORST_BUSY_CHANGE_MS: &str = "worst_busy_change_ms";
/// CPU time per change, and changes per second.
pub const CHANGE_US: &str = "change_us";
pub const CHANGES: &str = "changes";

/// Each figure's title in the table, and its digits.
const COLUMNS: [(&str, &str, usize); 11] = [
    (RESIDENT_MIB, "resident, MiB", 0),
    (RESIDENT_AFTER_MIB, "after the changes", 0),
    (START_MS, "first answer, ms", 0),
    (START_CPU_MS, "processor until then, ms", 0),
    (CHANGE_MS, "change to answer, ms", 1),
    (WORST_CHANGE_MS, "at worst", 1),
    (BUSY_CHANGE_MS, "among others, ms", 1),
    (WORST_BUSY_CHANGE_MS, "at worst", 1),
    (CHANGES, "changes/s", 0),
    (CHANGE_US, "CPU µs/change", 0),
    (QUERY_US, "CPU µs/query", 1),
];

/// In pixels: the picture, one row of it, and the left and right edge of each plot in a row.
const WIDTH: u32 = 760;
const TOP: u32 = 56;
const ROW: u32 = 172;
const PLOTS: [(u32, u32); 2] = [(20, 372), (396, 748)];

/// The plots, two in a row.
const CURVES: [[(&str, &str); 2]; 3] = [
    [
        (RESIDENT_MIB, "resident after the lists, MiB"),
        (START_MS, "from start to the first right answer, ms"),
    ],
    [
        (CHANGE_MS, "from a change to the answer, ms"),
        (BUSY_CHANGE_MS, "the same among other changes, ms"),
    ],
    [
        (CHANGE_US, "processor time of a change, µs"),
        (QUERY_US, "processor time of a query, µs"),
    ],
];

/// Returns the sizes of the cluster that have figures.
fn sizes(run: &Run) -> Vec<u32> {
    let all = run.figured().into_iter();
    let mut sizes: Vec<u32> = all.filter_map(|of| of.split_once('=')?.1.parse().ok()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the table.
pub fn markdown(run: &Run) -> String {
    let mut out = String::from("# Following a Kubernetes cluster\n\n");
    let on = &run.environment;
    let _ = writeln!(
        out,
        "{} ({} processors), Linux {}; the servers on processor {}, all else on {}; medians of {} rounds, processor time of \
         {} s each. Load average before: {}.\n",
        on.processor,
        on.processors,
        on.kernel,
        on.server_core,
        on.client_core,
        on.rounds,
        on.seconds,
        on.load_average_before,
    );
    for (name, version) in &on.versions {
        let _ = writeln!(out, "- {name}: {version}");
    }
    out.push('\n');
    let head = ["services", ""]
        .into_iter()
        .chain(COLUMNS.iter().map(|(_, title, _)| *title));
    write_head(&mut out, &head.map(str::to_owned).collect::<Vec<_>>());
    for services in sizes(run) {
        for follower in Follower::ALL {
            let of = follower.point(services);
            let mut cells = vec![grouped(services.into()), follower.name().to_owned()];
            cells.extend(COLUMNS.iter().map(|(what, _, digits)| {
                let figure = run.middle_figure(&of, what);
                figure.map_or("–".to_owned(), |figure| format!("{figure:.digits$}"))
            }));
            write_row(&mut out, &cells);
        }
    }
    out.push('\n');
    run.write_notes(&mut out);
    out
}

/// Draws the picture.
pub fn draw(run: &Run) -> Result<String, Box<dyn Error>> {
    picture::draw((WIDTH, TOP + ROW * CURVES.len() as u32), |area| {
        area.draw_text(
            "Following a Kubernetes cluster, by services",
            &heading(15.0),
            (20, 32),
        )?;
        let mut x = 560;
        for (follower, colour) in Follower::ALL.iter().zip(COLOURS) {
            area.draw(&Circle::new((x, 25), 2, colour.stroke_width(2)))?;
            area.draw_text(follower.name(), &note(), (x + 7, 32))?;
            x += 90;
        }
        let (_, rows) = area.split_vertically(TOP);
        for (row, figures) in rows.split_evenly((CURVES.len(), 1)).iter().zip(CURVES) {
            draw_row(row, run, figures)?;
        }
        Ok(())
    })
}

fn draw_row(row: &Area, run: &Run, figures: [(&str, &str); 2]) -> Result<(), Box<dyn Error>> {
    for ((what, title), (left, right)) in figures.into_iter().zip(PLOTS) {
        row.draw_text(title, &heading(12.0), (left as i32, 18))?;
        let area = row.clone().shrink((left, 22), (right - left, ROW - 34));
        let curves = Follower::ALL.map(|follower| {
            let points = sizes(run).into_iter().filter_map(|services| {
                let figure = run.middle_figure(&follower.point(services), what)?;
                Some((f64::from(services), figure))
            });
            points.collect::<Vec<_>>()
        });
        plot(&area, &curves)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Entry, Figure};

    #[test]
    fn medians_are_in_the_table_and_points_in_the_picture() {
        let mut run = Run::default();
        for (of, value) in [
            ("dnsweir=100", 9.0),
            ("dnsweir=100", 11.0),
            ("CoreDNS=100", 50.0),
            ("CoreDNS=1000", 60.0),
        ] {
            let (of, what) = (of.to_owned(), RESIDENT_MIB.to_owned());
            run.add(Entry::Figure(Figure { of, what, value }));
        }
        let text = markdown(&run);
        assert!(text.contains("| 100 | dnsweir | 10 | – |"), "{text}");
        assert!(text.contains("| 1 000 | CoreDNS | 60 | – |"), "{text}");
        assert!(draw(&run).unwrap().contains("resident after the lists"));
    }
}
