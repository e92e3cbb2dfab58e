//! The two formats of `/metrics`, and how a request selects one.
//!
//! OpenMetrics 1.0 is for clients that name it, as Prometheus does; all others get Prometheus' text format
//! 0.0.4, which `promtool check metrics` and most agents read. The samples are the same; in 0.0.4 a counter's
//! family has the name of its samples, and there is no end marker.

use std::fmt::{self, Write as _};

use hyper::header::{ACCEPT, HeaderMap};

use crate::metrics::{Kind, Metric, Metrics, Sample};

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Format {
    /// Returns the format that a request's `Accept` ranks higher (RFC 9110 section 12.5.1). If it ranks
    /// neither, the text format, which is more useful than a 406.
    pub fn wanted(headers: &HeaderMap) -> Format {
        let (mut open_metrics, mut text) = (0, None);
        for range in headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
        {
            for range in range.split(',') {
                let (media_type, version, rank) = media_range(range);
                if media_type.eq_ignore_ascii_case("application/openmetrics-text") {
                    if matches!(version, None | Some("1.0.0")) {
                        open_metrics = open_metrics.max(rank);
                    }
                    continue;
                }
                // How closely it matches the type: the closest match counts.
                let closeness = match media_type.to_ascii_lowercase().as_str() {
                    "text/plain" if matches!(version, None | Some("0.0.4")) => 2,
                    "text/*" => 1,
                    "*/*" => 0,
                    _ => continue,
                };
                text = text.max(Some((closeness, rank)));
            }
        }
        let text = text.map_or(0, |(_, rank)| rank);
        match open_metrics > 0 && open_metrics >= text {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }

    /// Returns the media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Formats metrics, each set with its name prefix.
    pub fn write(self, all: &[(&str, Metrics)]) -> String {
        let mut text = String::new();
        for (prefix, metrics) in all {
            for metric in metrics.all() {
                // Writing to a String does not fail.
                let _ = self.write_metric(&mut text, prefix, metric);
            }
        }
        if self == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn write_metric(self, text: &mut String, prefix: &str, metric: &Metric) -> fmt::Result {
        let (kind, total) = match metric.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        let name = format!("{prefix}_{}", metric.name);
        let family = match self {
            Format::OpenMetrics => name.clone(),
            Format::Text => format!("{name}{total}"),
        };
        writeln!(text, "# HELP {family} {}.", Escaped(metric.help))?;
        writeln!(text, "# TYPE {family} {kind}")?;
        for (labels, sample) in &metric.samples {
            let mut line = |suffix: &str, bound: Option<f64>, value: fmt::Arguments<'_>| {
                write!(text, "{name}{suffix}")?;
                write_labels(text, labels, bound)?;
                writeln!(text, " {value}")
            };
            match sample {
                Sample::Whole(number) => line(total, None, format_args!("{number}"))?,
                Sample::Signed(number) => line(total, None, format_args!("{number}"))?,
                Sample::Seconds(seconds) => line(total, None, format_args!("{seconds}"))?,
                Sample::Durations(sum, buckets) => {
                    let mut below = 0;
                    for (bound, count) in buckets {
                        below += count;
                        line("_bucket", Some(*bound), format_args!("{below}"))?;
                    }
                    line("_count", None, format_args!("{below}"))?;
                    line("_sum", None, format_args!("{sum}"))?;
                }
            }
        }
        Ok(())
    }
}

/// Parses a media range, or a content coding, which has the same syntax, into type, version, and weight in
/// thousandths.
pub(crate) fn media_range(text: &str) -> (&str, Option<&str>, u16) {
    let mut words = text.split(';').map(str::trim);
    let media_type = words.next().unwrap_or_default();
    let (mut version, mut rank) = (None, 1000);
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        match name.trim_end() {
            "q" | "Q" => rank = thousandths(value),
            name if name.eq_ignore_ascii_case("version") => version = Some(value.trim().trim_matches('"')),
            _ => {}
        }
    }
    (media_type, version, rank)
}

/// Parses a weight (RFC 9110 section 12.4.2). An invalid one counts as 0.
fn thousandths(weight: &str) -> u16 {
    match weight.trim().parse::<f32>() {
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0).round() as u16,
        _ => 0,
    }
}

fn write_labels(text: &mut String, labels: &[(String, String)], bound: Option<f64>) -> fmt::Result {
    let mut before = '{';
    for (name, value) in labels {
        write!(text, "{before}{name}=\"{}\"", Escaped(value))?;
        before = ',';
    }
    match bound {
        Some(bound) if bound.is_infinite() => write!(text, "{before}le=\"+Inf\"}}"),
        // As the label was in the first release: 1e-5.
        Some(bound) => write!(text, "{before}le=\"{bound:?}\"}}"),
        None if before == ',' => text.write_char('}'),
        None => Ok(()),
    }
}

/// A label value or help text, escaped to one line. In 0.0.4 help texts need no `\"`, but none of ours
/// contains a quote.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\\' => formatter.write_str("\\\\"),
            '"' => formatter.write_str("\\\""),
            '\n' => formatter.write_str("\\n"),
            other => formatter.write_char(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dnsweir_counts::histogram::Histogram;

    fn wanted(accept: &[&str]) -> Format {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        Format::wanted(&headers)
    }

    #[test]
    fn the_format_is_the_one_that_is_ranked_higher() {
        use Format::{OpenMetrics, Text};
        // Prometheus 3.
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            (&[][..], Text),
            (&["*/*"], Text),
            (&[prometheus], OpenMetrics),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["Application/OpenMetrics-Text; Version=\"1.0.0\""], OpenMetrics),
            (&["application/openmetrics-text; version=0.0.1"], Text),
            (&["application/openmetrics-text; version=2.0.0, */*;q=0.1"], Text),
            (&["application/openmetrics-text;q=0"], Text),
            (&["application/openmetrics-text;q=2"], Text),
            (&["application/openmetrics-text;q=0.3, text/plain;q=0.7"], Text),
            (
                &["text/plain;q=0.7", "application/openmetrics-text;q=0.7"],
                OpenMetrics,
            ),
            // The closest range counts, not the one ranked highest.
            (
                &["text/plain;q=0.1, */*, application/openmetrics-text;q=0.2"],
                OpenMetrics,
            ),
            (&["text/html,application/xhtml+xml,*/*;q=0.8"], Text),
            (&["image/png"], Text),
            (&[";;q,=,,q=1"], Text),
        ] {
            assert_eq!(wanted(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn both_formats_have_the_same_samples() {
        let mut metrics = Metrics::default();
        let asked = metrics.counter("asked", "Queries that were asked");
        asked.add(&[("zone", "a\"\\\n."), ("type", "A")], 3);
        asked.add(&[("zone", "."), ("type", "A")], 4);
        metrics.counter("spent_seconds", "Time").add_seconds(&[], 0.5);
        metrics
            .gauge("serial", "A number")
            .add_signed(&[("zone", ".")], -1);
        metrics.gauge("none", "Nothing yet");
        let histogram = Histogram::<19>::default();
        for micros in [10, 40, 9_000_000] {
            histogram.observe(micros, |counter, by| {
                counter.fetch_add(by, std::sync::atomic::Ordering::Relaxed);
            });
        }
        metrics
            .histogram("took_seconds", "How long it took")
            .add_durations(&[("to", "b")], &histogram);
        let all = [("dnsweir", metrics)];
        let text = Format::Text.write(&all);
        for lines in [
            "# HELP dnsweir_asked_total Queries that were asked.\n# TYPE dnsweir_asked_total counter\n\
             dnsweir_asked_total{zone=\".\",type=\"A\"} 4\ndnsweir_asked_total{zone=\"a\\\"\\\\\\n.\",type=\"A\"} 3\n",
            "# TYPE dnsweir_spent_seconds_total counter\ndnsweir_spent_seconds_total 0.5\n",
            "# TYPE dnsweir_serial gauge\ndnsweir_serial{zone=\".\"} -1\n",
            "# TYPE dnsweir_none gauge\n#",
            "# TYPE dnsweir_took_seconds histogram\ndnsweir_took_seconds_bucket{to=\"b\",le=\"1e-5\"} 1\n\
             dnsweir_took_seconds_bucket{to=\"b\",le=\"5e-5\"} 2\ndnsweir_took_seconds_bucket{to=\"b\",le=\"0.00025\"} 2\n",
            "dnsweir_took_seconds_bucket{to=\"b\",le=\"8.192\"} 2\ndnsweir_took_seconds_bucket{to=\"b\",le=\"+Inf\"} 3\n\
             dnsweir_took_seconds_count{to=\"b\"} 3\ndnsweir_took_seconds_sum{to=\"b\"} 9.00005\n",
        ] {
            assert!(text.contains(lines), "{lines}\n{text}");
        }
        let open_metrics = Format::OpenMetrics.write(&all);
        assert!(
            open_metrics.contains("# TYPE dnsweir_asked counter\ndnsweir_asked_total{"),
            "{open_metrics}"
        );
        assert!(open_metrics.ends_with("\n# EOF\n") && !text.contains("# EOF"));
        let samples = |page: &str| {
            page.lines()
                .filter(|line| !line.starts_with('#'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(samples(&text), samples(&open_metrics));
    }
}
