//! Escapes log lines, so that text from others cannot look like anything else.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::pace::{Pace, REPORT};
use crate::plain_text::{escape_into, escape_json};

/// Writes an event as `format` does, but escaped and on one line. Reports of ours may have several.
pub struct Plain<F> {
    /// The inner format.
    pub format: F,
    /// Whether it writes JSON.
    pub is_json: bool,
    /// Whether it writes colours. They are ours: `format` escapes those in fields.
    pub is_coloured: bool,
    /// Says how many lines were left out before.
    pub pace: Pace,
}

impl<S, N, F> FormatEvent<S, N> for Plain<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n');
        let left_out = self.pace.take_left_out(event.metadata());
        if self.is_json {
            let line = line.strip_suffix('}').unwrap_or(line);
            escape_json(&mut writer, line)?;
            match left_out {
                0 => writer.write_str("}\n"),
                _ => writeln!(writer, ",\"left_out_before\":{left_out}}}"),
            }
        } else {
            let keep = match (event.metadata().name() == REPORT, self.is_coloured) {
                (false, false) => &[][..],
                (true, false) => &['\n'],
                (false, true) => &['\x1b'],
                (true, true) => &['\n', '\x1b'],
            };
            escape_into(&mut writer, line, keep)?;
            match left_out {
                0 => writer.write_str("\n"),
                _ => writeln!(writer, " left_out_before={left_out}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().write(octets)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The text written for the events of `say`.
    fn written(is_json: bool, say: impl Fn()) -> String {
        written_to(&Written::default(), is_json, say)
    }

    fn written_to(written: &Written, is_json: bool, say: impl Fn()) -> String {
        let (to, pace) = (written.clone(), Pace::default());
        let all = tracing_subscriber::registry().with(pace.clone());
        let lines = fmt::layer().with_writer(move || to.clone()).with_ansi(false);
        let (is_coloured, format) = (false, fmt::format().with_ansi(false));
        if is_json {
            let format = format.json();
            let plain = Plain {
                format,
                is_json,
                is_coloured,
                pace,
            };
            let fields = fmt::format::JsonFields::new();
            let all = all.with(lines.fmt_fields(fields).event_format(plain));
            tracing::subscriber::with_default(all, say);
        } else {
            let plain = Plain {
                format,
                is_json,
                is_coloured,
                pace,
            };
            let all = all.with(lines.event_format(plain));
            tracing::subscriber::with_default(all, say);
        }
        let octets = std::mem::take(&mut *written.0.lock());
        String::from_utf8(octets).unwrap()
    }

    const FORGED: &str = "no\nINFO all is well\r\u{1b}[2J\u{2028}\u{202e}";

    #[test]
    fn no_words_forge_a_line() {
        let say = || tracing::warn!(error = FORGED, "it said {FORGED}");
        let text = written(false, say);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.ends_with('\n') && !text.contains(['\r', '\u{1b}', '\u{2028}', '\u{202e}']));
        assert!(text.contains("it said no\\nINFO all is well\\r"), "{text}");
        let json = written(true, say);
        assert_eq!(json.matches('\n').count(), 1, "{json}");
        assert!(!json.contains(['\u{2028}', '\u{202e}']), "{json}");
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["fields"]["error"], FORGED);
    }

    #[test]
    fn a_report_has_its_lines() {
        let text = written(false, || tracing::error!(name: REPORT, "two\nlines\u{202e}"));
        assert!(text.ends_with("two\nlines\\u{202e}\n"), "{text}");
    }

    #[test]
    fn what_was_left_out_is_told_with_the_next_of_its_kind() {
        for (is_json, told) in [(false, " left_out_before="), (true, "\"left_out_before\":")] {
            let to = Written::default();
            let is_told = || String::from_utf8_lossy(&to.0.lock()).contains(told);
            let text = written_to(&to, is_json, || {
                while !is_told() {
                    tracing::warn!("again");
                }
            });
            let (first, last) = text.trim_end().rsplit_once('\n').unwrap();
            assert!(last.contains(told) && !first.contains(told), "{last}");
        }
    }
}
