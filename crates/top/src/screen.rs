//! Draws the screen, as far as there is room.

use dnsweir_os::clock::UnixTime;
use dnsweir_os::plain_text::is_plain;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::changes::{Between, Look};
use super::status::{Queries, Status, Trouble};

/// The height of output that is not a terminal: unlimited.
pub const PLAIN: usize = usize::MAX;

/// The most rows of a table.
const ROWS: usize = 10;

/// A text limited to a number of columns and lines.
pub struct Screen {
    width: usize,
    height: usize,
    lines: Vec<String>,
}

/// Columns of a table. The first gets the remaining width; words are aligned left, figures right.
enum Column {
    Words(&'static str, usize),
    Figure(&'static str, usize),
}

use Column::{Figure, Words};

impl Screen {
    /// Makes an empty screen.
    pub fn new(width: usize, height: usize) -> Screen {
        Screen {
            width: width.max(40),
            height,
            lines: Vec::new(),
        }
    }

    /// Draws what happened between two snapshots.
    pub fn draw(mut self, before: &Look, now: &Look) -> String {
        let between = Between(before, now);
        let status = &now.status;
        self.head(status);
        self.rates(status, between);
        self.zones(status, between);
        self.upstreams(status, between);
        self.filters(status, between);
        if let Some(queries) = &status.queries {
            self.askers(queries);
            self.trouble("FAILED", &queries.failed);
            self.trouble("SLOW", &queries.slow);
        }
        self.lines.truncate(self.height);
        self.lines.join("\n") + "\n"
    }

    /// Shows the process and its problems.
    fn head(&mut self, status: &Status) {
        self.line(&format!(
            "dnsweir {}, {}, up {}, configuration {}, {}",
            status.version,
            if status.ready { "ready" } else { "not ready" },
            duration(status.uptime_seconds),
            status.generation,
            status.listen.join(" ")
        ));
        let problems = &status.problems;
        // In a terminal, leave room for the rest.
        let shown = if self.height == PLAIN {
            problems.len()
        } else {
            (self.height / 8).max(1)
        };
        if problems.is_empty() {
            self.line("no problems found");
        }
        for problem in problems.iter().take(shown) {
            let about = match problem.about.as_str() {
                "" => String::new(),
                about => format!("{about} "),
            };
            let since = problem.since / 1000;
            let now = UnixTime::now().as_millis() / 1000;
            let lasting = duration(now.saturating_sub(since));
            self.paragraph("! ", &format!("{about}{} (for at least {lasting})", problem.what));
            self.paragraph("  ", &problem.advice);
        }
        if problems.len() > shown {
            self.line(&format!("! {} more, in /status", problems.len() - shown));
        }
    }

    /// Shows the rates.
    fn rates(&mut self, status: &Status, between: Between<'_>) {
        let asked = between.rate("dnsweir_requests_total", &[]);
        let hits = between.rate("dnsweir_cache_hits_total", &[]);
        let misses = between.rate("dnsweir_cache_misses_total", &[]);
        let [median, slowest] =
            [0.5, 0.99].map(|part| seconds(between.quantile(part, "dnsweir_request_duration_seconds", &[])));
        self.lines.push(String::new());
        let rates = format!(
            "in the last {:.0} s: {}/s, {} from the cache, median {median}, p99 {slowest}, {} waiting",
            between.seconds().max(1.0),
            number(asked),
            share(hits, hits + misses),
            number(between.1.samples.sum("dnsweir_waiting_queries", &[]))
        );
        self.paragraph("", &rates);
        let answers = between.grown("dnsweir_responses_total", &[]);
        let values = between.1.samples.values("dnsweir_responses_total", "rcode");
        let mut rcodes: Vec<(f64, &str)> = values
            .into_iter()
            .map(|rcode| {
                (
                    between.grown("dnsweir_responses_total", &[("rcode", rcode)]),
                    rcode,
                )
            })
            .filter(|(count, _)| *count > 0.0)
            .collect();
        rcodes.sort_by(|one, other| other.0.total_cmp(&one.0));
        let rcodes: Vec<String> = rcodes
            .into_iter()
            .map(|(count, rcode)| format!("{rcode} {}", share(count, answers)))
            .collect();
        if !rcodes.is_empty() {
            self.paragraph("answers: ", &rcodes.join(", "));
        }
        let resident = status
            .memory
            .resident_bytes
            .map_or_else(|| "–".to_owned(), octets);
        self.line(&format!(
            "memory: {resident} of at most {}",
            octets(status.memory.ceiling_bytes)
        ));
    }

    fn zones(&mut self, status: &Status, between: Between<'_>) {
        let mut rows: Vec<(f64, Vec<String>)> = status
            .zones
            .iter()
            .map(|zone| {
                let rate = zone.names.iter();
                let rate = rate
                    .map(|name| between.rate("dnsweir_requests_total", &[("zone", name)]))
                    .sum();
                let stages = zone.stages.join(" → ");
                (rate, vec![zone.names.join(" "), number(rate), stages])
            })
            .collect();
        rows.sort_by(|one, other| other.0.total_cmp(&one.0));
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        let stages = self.width / 2;
        self.table(
            &[Words("ZONE", 0), Figure("per s", 9), Words("STAGES", stages)],
            rows,
        );
    }

    fn upstreams(&mut self, status: &Status, between: Between<'_>) {
        let mut addresses: Vec<(&str, &str)> = status
            .upstreams
            .iter()
            .map(|one| (one.address.as_str(), one.to.as_str()))
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        let rows = addresses.into_iter().map(|(address, to)| {
            let one = || status.upstreams.iter().filter(|one| one.to == to);
            let state = match () {
                () if one().any(|one| one.looping) => "loops back",
                () if one().all(|one| one.healthy) => "in use",
                () => "out of use",
            };
            let time = |part| {
                seconds(between.quantile(part, "dnsweir_forward_request_duration_seconds", &[("to", to)]))
            };
            let failures = between.rate("dnsweir_forward_failures_total", &[("to", to)]);
            let silence = [("to", to), ("reason", "timeout")];
            let lost = between.grown("dnsweir_forward_failures_total", &silence);
            vec![
                address.to_owned(),
                state.to_owned(),
                number(between.rate("dnsweir_forward_requests_total", &[("to", to)])),
                time(0.5),
                time(0.99),
                share(
                    lost,
                    between
                        .grown("dnsweir_forward_requests_total", &[("to", to)])
                        .max(lost),
                ),
                number(failures - between.rate("dnsweir_forward_failures_total", &silence)),
            ]
        });
        let columns = [
            Words("UPSTREAM", 0),
            Words("state", 10),
            Figure("per s", 9),
            Figure("median", 9),
            Figure("p99", 9),
            Figure("lost", 8),
            Figure("failed/s", 8),
        ];
        self.table(&columns, rows.collect());
    }

    fn filters(&mut self, status: &Status, between: Between<'_>) {
        let rows = status.filters.iter().map(|filter| {
            let labels = [("filter", filter.name.as_str())];
            let items = between.grown("dnsweir_filter_items_total", &labels);
            let spent = between.grown("dnsweir_filter_seconds_total", &labels);
            let state = match (filter.suspended_workers, filter.traps) {
                (0, 0) => String::new(),
                (0, traps) => format!("{traps} traps"),
                (_, traps) => format!("suspended, {traps} traps"),
            };
            vec![
                filter.name.clone(),
                state,
                number(between.rate("dnsweir_filter_items_total", &labels)),
                number(between.rate("dnsweir_filter_remembered_total", &labels)),
                seconds((items > 0.0).then(|| spent / items)),
            ]
        });
        let columns = [
            Words("FILTER", 0),
            Words("state", 20),
            Figure("called/s", 9),
            Figure("recalled/s", 10),
            Figure("time each", 9),
        ];
        self.table(&columns, rows.collect());
    }

    /// Shows names and clients side by side.
    fn askers(&mut self, queries: &Queries) {
        let count = queries.names.len().max(queries.clients.len());
        let rows = (0..count).map(|at| {
            let name = queries
                .names
                .get(at)
                .map(|name| (name.name.clone(), name.per_second));
            let client = queries.clients.get(at);
            let client = client.map(|client| (client.address.clone(), client.per_second));
            let cells = [name, client].into_iter().flat_map(|cell| match cell {
                Some((who, rate)) => [who, number(rate)],
                None => [String::new(), String::new()],
            });
            cells.collect()
        });
        let columns = [
            Words("NAME", 0),
            Figure("per s", 9),
            Words("CLIENT", 39.min(self.width / 3)),
            Figure("per s", 9),
        ];
        self.table(&columns, rows.collect());
    }

    fn trouble(&mut self, title: &'static str, troubles: &[Trouble]) {
        let rows = troubles.iter().map(|trouble| {
            let why = trouble.error.as_deref().unwrap_or(&trouble.source);
            vec![
                format!("{} {}", trouble.name, trouble.qtype),
                clock(trouble.time),
                trouble.client.clone(),
                seconds(Some(trouble.milliseconds / 1e3)),
                format!("{} {why}", trouble.rcode),
            ]
        });
        let columns = [
            Words(title, 0),
            Words("at (UTC)", 8),
            Words("client", 18),
            Figure("took", 9),
            Words("result", 28),
        ];
        self.table(&columns, rows.collect());
    }

    /// Draws a table, unless it is empty or there is no room for a row.
    fn table(&mut self, columns: &[Column], rows: Vec<Vec<String>>) {
        let room = self.height.saturating_sub(self.lines.len() + 2).min(ROWS);
        if rows.is_empty() || room == 0 {
            return;
        }
        self.lines.push(String::new());
        let fixed: usize = columns.iter().map(|column| column.width() + 1).sum();
        let first = self.width.saturating_sub(fixed).max(16);
        let titles = columns.iter().map(|column| column.title().to_owned()).collect();
        for row in [titles].into_iter().chain(rows.into_iter().take(room)) {
            let cells = row.iter().zip(columns).map(|(cell, column)| match column {
                Words(_, 0) => padded(cell, first, false),
                Words(_, width) => padded(cell, *width, false),
                Figure(_, width) => padded(cell, *width, true),
            });
            let line = cells.collect::<Vec<_>>().join(" ");
            self.line(line.trim_end());
        }
    }

    /// Wraps a text, indented below the end of `begin`.
    fn paragraph(&mut self, begin: &str, text: &str) {
        let room = self.width - begin.len();
        let mut lines = vec![String::new()];
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.is_empty() => line.push_str(word),
                Some(line) if line.width() + 1 + word.width() <= room => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        let space = " ".repeat(begin.len());
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
            let begin = if at == 0 { begin } else { &*space };
            self.line(&format!("{begin}{line}"));
        }
    }

    fn line(&mut self, text: &str) {
        self.lines.push(cut(text, self.width));
    }
}

impl Column {
    fn title(&self) -> &'static str {
        match self {
            Words(title, _) | Figure(title, _) => title,
        }
    }

    fn width(&self) -> usize {
        match self {
            Words(_, width) | Figure(_, width) => *width,
        }
    }
}

/// Cuts a text to a width, with an ellipsis. Control characters are removed: some texts come from other
/// hosts.
fn cut(text: &str, width: usize) -> String {
    let text: String = text.chars().filter(|char| is_plain(*char)).collect();
    if text.width() <= width {
        return text;
    }
    let mut used = 1;
    let kept = text.chars().take_while(|char| {
        used += char.width().unwrap_or(0);
        used <= width
    });
    kept.chain(['…']).collect()
}

fn padded(text: &str, width: usize, right: bool) -> String {
    let text = cut(text, width);
    let space = " ".repeat(width.saturating_sub(text.width()));
    if right { space + &text } else { text + &space }
}

fn number(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{:.1} M", value / 1e6),
        _ if value >= 1e4 => format!("{:.1} k", value / 1e3),
        _ if value >= 100.0 || value.fract().abs() < 1e-9 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

fn seconds(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value >= 1.0 => format!("{value:.2} s"),
        Some(value) if value >= 1e-3 => format!("{:.1} ms", value * 1e3),
        Some(value) => format!("{:.0} µs", value * 1e6),
    }
}

fn share(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1} %", 100.0 * part / whole),
        false => "–".to_owned(),
    }
}

fn octets(value: u64) -> String {
    format!("{:.1} MiB", value as f64 / f64::from(1 << 20))
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// The time of day (UTC) of a Unix time in milliseconds.
fn clock(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_the_terminal_at_most() {
        for (text, width, expected) in [
            ("short", 10, "short"),
            ("exactly ten", 11, "exactly ten"),
            ("somewhat longer", 10, "somewhat …"),
            ("漢字漢字漢字", 6, "漢字…"),
            ("\x1b[2Jevil\u{9b}\u{202e}", 10, "[2Jevil"),
        ] {
            assert_eq!(cut(text, width), expected);
        }
        assert_eq!(padded("a", 3, true), "  a");
        assert_eq!(padded("abcd", 3, false), "ab…");
    }

    #[test]
    fn paragraphs_go_on_below_their_beginning() {
        let mut screen = Screen::new(40, PLAIN);
        screen.paragraph(
            "! ",
            "an upstream leaves 10 % of its queries unanswered (for 4 min)",
        );
        screen.paragraph("  ", "");
        screen.paragraph("", &"x".repeat(50));
        assert_eq!(
            screen.lines,
            [
                "! an upstream leaves 10 % of its queries",
                "  unanswered (for 4 min)",
                &("x".repeat(39) + "…"),
            ]
        );
    }

    #[test]
    fn figures_are_short() {
        let numbers = [0.0, 0.25, 7.0, 99.5, 1234.0, 56_789.0, 2e6].map(number);
        assert_eq!(numbers, ["0", "0.2", "7", "99.5", "1234", "56.8 k", "2.0 M"]);
        let times = [None, Some(0.000_012), Some(0.0123), Some(2.5)].map(seconds);
        assert_eq!(times, ["–", "12 µs", "12.3 ms", "2.50 s"]);
        assert_eq!(
            [5, 65, 3700, 90_000].map(duration),
            ["5 s", "1 min", "1 h 1 min", "1 d 1 h"]
        );
        assert_eq!(clock(1_000_000_000_000), "01:46:40");
    }
}
