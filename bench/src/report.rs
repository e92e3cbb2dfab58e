//! The report, made from the raw numbers.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use crate::peers::PEERS;
use crate::record::{Entry, Environment, Figure};
use crate::sample::{Load, Sample, Samples, median};
use crate::workload::Workload;

/// The loop that all others are compared with.
pub const FLOOR: &str = "floor";

/// The proxy without filters, and its variants with three filters, the more telling one first.
const BARE: &str = "dnsweir";
const FILTERED: [&str; 2] = ["dnsweir+3-called", "dnsweir+3"];

/// A cell is marked above these shares: of queries without a right answer, and of CPU time used by others.
pub const FAILED: f64 = 0.001;
const DISTURBED: f64 = 0.05;

/// The raw numbers of a run.
#[derive(Default)]
pub struct Run {
    /// Where and how it was measured.
    pub environment: Environment,
    notes: Vec<String>,
    /// The measurements.
    pub samples: Samples,
    figures: Vec<Figure>,
}

impl Run {
    /// Reads the file that a run wrote.
    pub fn read(path: &Path) -> io::Result<Run> {
        let text = fs::read_to_string(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Run::parse(&text).map_err(|error| io::Error::other(format!("{}, {error}", path.display())))
    }

    fn parse(text: &str) -> Result<Run, String> {
        let mut run = Run::default();
        for (number, line) in text.lines().enumerate() {
            let entry = serde_json::from_str(line).map_err(|error| format!("line {}: {error}", number + 1));
            run.add(entry?);
        }
        Ok(run)
    }

    /// Adds a line of the raw numbers.
    pub fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Environment(environment) => self.environment = environment,
            Entry::Note { text } => self.notes.push(text),
            Entry::Sample(sample) => self.samples.0.push(sample),
            Entry::Figure(figure) => self.figures.push(figure),
        }
    }

    /// Returns a run with these samples.
    #[cfg(test)]
    pub fn of(samples: &[Sample]) -> Run {
        let mut run = Run::default();
        let versions = [("floor".to_owned(), "1".to_owned())].into();
        run.environment.versions = versions;
        run.samples.0.extend_from_slice(samples);
        run.notes.push("unbound: no answer\n  its words".to_owned());
        run
    }

    /// Returns a recorded figure.
    pub fn figure(&self, of: &str, what: &str) -> Option<f64> {
        let mut all = self.figures.iter();
        let found = all.find(|figure| figure.of == of && figure.what == what);
        found.map(|figure| figure.value)
    }

    /// Returns the median of a figure's values.
    pub fn middle_figure(&self, of: &str, what: &str) -> Option<f64> {
        let all = self.figures.iter();
        let found = all.filter(|figure| figure.of == of && figure.what == what);
        median(found.map(|figure| figure.value))
    }

    /// Returns the names that have figures, each once.
    pub fn figured(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for figure in &self.figures {
            if !all.contains(&&*figure.of) {
                all.push(&figure.of);
            }
        }
        all
    }

    /// Returns the peers measured under `workload`, in the order of the table.
    pub fn peers(&self, workload: Workload) -> Vec<&'static str> {
        let measured = |name: &str| {
            let mut all = self.samples.0.iter();
            all.any(|sample| sample.peer == name && sample.workload == workload)
        };
        PEERS
            .iter()
            .map(|peer| peer.name)
            .filter(|name| measured(name))
            .collect()
    }

    /// Returns the workloads in the order of the table.
    pub fn workloads(&self) -> Vec<Workload> {
        let mut workloads = Workload::ALL.to_vec();
        for sample in &self.samples.0 {
            if !workloads.contains(&sample.workload) {
                workloads.push(sample.workload);
            }
        }
        workloads
    }

    /// Returns the loads that `workload` was measured under: rates ascending, then saturation.
    pub fn loads(&self, workload: Workload) -> Vec<Load> {
        let all = self.samples.0.iter().filter(|sample| sample.workload == workload);
        let mut loads: Vec<Load> = all.map(|sample| sample.load).collect();
        loads.sort_unstable();
        loads.dedup();
        loads
    }

    /// Returns the median of `figure` over the rounds.
    pub fn median(
        &self,
        peer: &str,
        workload: Workload,
        load: Load,
        figure: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        median(self.samples.of(peer, workload, load).filter_map(figure))
    }

    /// Returns the whole report, in Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::from("# Benchmark\n\n");
        self.write_environment(&mut out);
        for workload in self.workloads() {
            let loads = self.loads(workload);
            if !loads.is_empty() {
                let _ = writeln!(out, "\n## {}\n", workload.title());
                self.write_costs(&mut out, workload, &loads);
                out.push('\n');
                self.write_service(&mut out, workload, &loads);
            }
        }
        if !self.notes.is_empty() {
            out.push_str("\n## Notes of the run\n\n");
            self.write_notes(&mut out);
        }
        out
    }

    /// Writes the notes of the run.
    pub fn write_notes(&self, out: &mut String) {
        for note in &self.notes {
            let _ = writeln!(out, "- {}", note.trim_end().replace('\n', "\n  "));
        }
    }

    /// Writes where and how this was measured.
    pub fn write_environment(&self, out: &mut String) {
        let on = &self.environment;
        let _ = writeln!(
            out,
            "{} ({} processors), Linux {}; server on processor {}, client and upstream on {}; {} rounds of \
             {} s each; at fixed rates {} queries at once. Load average before: {}.\n",
            on.processor,
            on.processors,
            on.kernel,
            on.server_core,
            on.client_core,
            on.rounds,
            on.seconds,
            on.burst,
            on.load_average_before,
        );
        let disturbed: Vec<f64> = self.samples.0.iter().map(Sample::disturbed).collect();
        let worst = disturbed.iter().copied().fold(0.0, f64::max);
        let late = self
            .samples
            .0
            .iter()
            .map(|sample| sample.client_late as f64 / 1000.0);
        let _ = writeln!(
            out,
            "Others used {:.1} % of the server's processor (median of all measurements; at worst {:.1} %). The \
             client sent 99 % of its batches within {:.0} us of when they were due (median). Figures are \
             medians of the rounds, ratios medians of the ratio within each round. `!`: more than {:.1} % of \
             queries got no right answer. `~`: others used more than {:.0} % of the server's processor, so \
             the figure is not to be trusted.\n",
            median(disturbed.iter().copied()).unwrap_or(0.0) * 100.0,
            worst * 100.0,
            median(late).unwrap_or(0.0),
            FAILED * 100.0,
            DISTURBED * 100.0,
        );
        for peer in PEERS {
            if let Some(version) = on.versions.get(peer.name) {
                let _ = writeln!(out, "- {}: {version}", peer.name);
            }
        }
    }

    /// Writes the costs of a query, and their ratios.
    fn write_costs(&self, out: &mut String, workload: Workload, loads: &[Load]) {
        let filtered = FILTERED
            .into_iter()
            .find(|name| self.peers(workload).contains(name));
        let mut head = vec!["CPU µs/query".to_owned()];
        for load in loads {
            head.extend([load.title(), "× floor".to_owned(), format!("{BARE} ÷ it")]);
            head.extend(filtered.map(|name| format!("{name} ÷ it")));
        }
        write_head(out, &head);
        for peer in self.peers(workload) {
            let mut row = vec![peer.to_owned()];
            for load in loads {
                let cost = self.median(peer, workload, *load, Sample::cost);
                let range = self.range(peer, workload, *load);
                let mark = self.mark(peer, workload, *load);
                row.push(cost.map_or("–".to_owned(), |cost| format!("{cost:.2}{range}{mark}")));
                let beside = |one: &str, other: &str| match one == other {
                    true => "1".to_owned(),
                    false => {
                        let ratio = self.samples.cost_ratio(one, other, workload, *load);
                        ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"))
                    }
                };
                row.push(beside(peer, FLOOR));
                row.push(beside(BARE, peer));
                row.extend(filtered.map(|name| beside(name, peer)));
            }
            write_row(out, &row);
        }
    }

    /// Writes the service for clients: rate, latency and loss; and the memory used.
    fn write_service(&self, out: &mut String, workload: Workload, loads: &[Load]) {
        let mut head = vec!["service".to_owned()];
        for load in loads {
            match load {
                Load::Rate(_) | Load::Share(_) => head.extend([
                    format!("{}: p50 / p99 / p99.9 µs", load.title()),
                    "unanswered".to_owned(),
                ]),
                Load::Saturation => head.extend([
                    "saturated: q/s".to_owned(),
                    "processor".to_owned(),
                    "unanswered".to_owned(),
                ]),
            }
        }
        head.push("RSS / PSS MiB".to_owned());
        write_head(out, &head);
        for peer in self.peers(workload) {
            let mut row = vec![peer.to_owned()];
            for load in loads {
                let figure = |figure: &dyn Fn(&Sample) -> f64| {
                    self.median(peer, workload, *load, |sample| Some(figure(sample)))
                };
                let Some(failed) = figure(&Sample::failed) else {
                    row.extend(["–", "–"].map(str::to_owned));
                    row.extend((*load == Load::Saturation).then(|| "–".to_owned()));
                    continue;
                };
                match load {
                    Load::Rate(_) | Load::Share(_) => {
                        let us = |of: &dyn Fn(&Sample) -> u64| {
                            figure(&|sample: &Sample| of(sample) as f64 / 1000.0).unwrap_or_default()
                        };
                        row.push(format!(
                            "{:.0} / {:.0} / {:.0}",
                            us(&|sample| sample.latency.p50),
                            us(&|sample| sample.latency.p99),
                            us(&|sample| sample.latency.p999),
                        ));
                    }
                    Load::Saturation => {
                        row.push(format!("{:.0}", figure(&Sample::rate).unwrap_or_default()));
                        let busy = figure(&Sample::busy).unwrap_or_default() * 100.0;
                        row.push(format!("{busy:.0} %"));
                    }
                }
                row.push(format!("{:.3} %", failed * 100.0));
            }
            row.push(self.memory(peer, workload));
            write_row(out, &row);
        }
    }

    /// Returns the largest memory of all loads.
    fn memory(&self, peer: &str, workload: Workload) -> String {
        let all = self.samples.0.iter();
        let samples = all.filter(|sample| sample.peer == peer && sample.workload == workload);
        let largest = samples.max_by_key(|sample| sample.resident);
        largest.map_or("–".to_owned(), |sample| {
            let (resident, proportional) = (sample.resident as f64, sample.proportional as f64);
            format!("{:.1} / {:.1}", resident / 1024.0, proportional / 1024.0)
        })
    }

    /// Returns the least and greatest cost of a query in any round.
    fn range(&self, peer: &str, workload: Workload, load: Load) -> String {
        let costs = self.samples.of(peer, workload, load).filter_map(Sample::cost);
        let (least, most) = costs.fold((f64::MAX, 0.0_f64), |(least, most), cost| {
            (least.min(cost), most.max(cost))
        });
        if least < most {
            format!(" ({least:.2}–{most:.2})")
        } else {
            String::new()
        }
    }

    /// Returns the marks of a cell.
    pub fn mark(&self, peer: &str, workload: Workload, load: Load) -> String {
        let above = |figure: fn(&Sample) -> f64, limit| {
            let median = self.median(peer, workload, load, |sample| Some(figure(sample)));
            median.is_some_and(|value| value > limit)
        };
        let mut mark = String::new();
        if above(Sample::failed, FAILED) {
            mark.push_str(" !");
        }
        if above(Sample::disturbed, DISTURBED) {
            mark.push_str(" ~");
        }
        mark
    }
}

/// Writes the head of a table, with its first column left-aligned.
pub fn write_head(out: &mut String, cells: &[String]) {
    write_row(out, cells);
    out.push_str("|---|");
    out.push_str(&"--:|".repeat(cells.len() - 1));
    out.push('\n');
}

/// Writes a row of a table.
pub fn write_row(out: &mut String, cells: &[String]) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::sample;

    #[test]
    fn the_table_has_medians_and_ratios() {
        let load = Load::Rate(60_000);
        let text = Run::of(&[
            sample("floor", 0, load, 10),
            sample("floor", 1, load, 10),
            sample("floor", 2, load, 30),
            sample("dnsweir", 0, load, 11),
            sample("dnsweir", 1, load, 11),
            sample("dnsweir", 2, load, 33),
            sample("unbound", 0, load, 22),
        ])
        .markdown();
        assert!(
            text.contains("| floor | 10.00 (10.00–30.00) ! | 1 | 1.10 |"),
            "{text}"
        );
        assert!(
            text.contains("| dnsweir | 11.00 (11.00–33.00) ! | 1.10 | 1 |"),
            "{text}"
        );
        assert!(text.contains("| unbound | 22.00 ! | 2.20 | 0.50 |"), "{text}");
        assert!(text.contains("60 000 q/s: p50 / p99 / p99.9 µs"), "{text}");
        assert!(
            text.contains("| 100 / 200 / 300 | 1.980 % | 2.0 / 1.0 |"),
            "{text}"
        );
        assert!(text.contains("- unbound: no answer"), "{text}");
    }

    #[test]
    fn a_disturbed_figure_is_marked() {
        let mut disturbed = sample("floor", 0, Load::Saturation, 10);
        disturbed.foreign = 1_000_000_000;
        disturbed.lost = 0;
        disturbed.wrong = 0;
        let text = Run::of(&[disturbed]).markdown();
        assert!(text.contains("10.10 ~ |"), "{text}");
    }

    #[test]
    fn a_file_that_is_not_one_of_ours_is_refused() {
        assert!(Run::parse("{}").is_err());
        assert!(
            Run::parse("{\"kind\": \"sample\"}")
                .err()
                .unwrap()
                .contains("line 1")
        );
        assert!(Run::parse("nonsense").is_err());
    }
}
