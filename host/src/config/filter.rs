//! `filter`: a WebAssembly module and how it is run.

use kdl::{KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Wrong, block, child, head, text, word};
use super::error::{Diagnostic, Span};
use super::module::Modules;
use super::units::{duration, ms, s, size};
use super::{Filter, Limits, OnError, config_block};

pub(super) const FILTER: Shape = Shape {
    example: r#"filter "access-log" { module "builtin:log" }"#,
    arguments: 1..=1,
    properties: &[],
    children: &["module", "sha256", "questions", "on-error", "limits", "config"],
    repeated: &[],
};

pub(super) const LIMITS: Shape = Shape {
    example: r#"limits memory="16MiB" time="5ms""#,
    arguments: 0..=0,
    properties: &["memory", "time", "load-memory", "load-time"],
    children: &[],
    repeated: &[],
};

/// A WebAssembly page; memory comes in whole ones.
const PAGE: usize = 64 * 1024;

/// The filters of a file, while it is decoded.
#[derive(Default)]
pub(super) struct Filters {
    /// One for each `filter` with a name; none: it has mistakes.
    decoded: Vec<Option<Filter>>,
    /// Name, place, and whether a zone uses it.
    known: Vec<(String, Span, bool)>,
}

impl Filters {
    /// The index of the filter called `name`, which counts as used from now on.
    pub fn find(&mut self, name: &str) -> Option<usize> {
        let index = self.known.iter().position(|(known, ..)| known == name)?;
        self.known[index].2 = true;
        Some(index)
    }

    /// The name of the filter at `index`.
    pub fn name(&self, index: usize) -> &str {
        self.known
            .get(index)
            .map(|(name, ..)| name.as_str())
            .unwrap_or_default()
    }

    /// The names of all filters.
    pub fn names(&self) -> Vec<&str> {
        self.known.iter().map(|(name, ..)| name.as_str()).collect()
    }

    /// Decodes one `filter`.
    pub fn decode(&mut self, mistakes: &mut Mistakes, modules: &mut Modules<'_>, node: &KdlNode) {
        mistakes.check(node, &FILTER);
        let nodes = block(node);
        let module = modules.decode(mistakes, node);
        let questions = modules.questions(mistakes, node, module.as_ref());
        let limits = child(nodes, "limits").map_or(DEFAULT_LIMITS, |node| decode_limits(mistakes, node));
        let on_errors = [
            ("bypass", OnError::Bypass),
            ("servfail", OnError::Servfail),
            ("refuse", OnError::Refuse),
        ];
        let on_error = mistakes
            .scalar(nodes, r#"on-error "bypass""#, word(&on_errors))
            .unwrap_or_default();
        let config_node = child(nodes, "config");
        let config = config_node
            .map(|node| config_block::decode(mistakes, modules, node))
            .unwrap_or_default();

        let Some(name) = mistakes.argument(node, filter_name) else {
            return;
        };
        if let Some((_, first, _)) = self.known.iter().find(|(known, ..)| *known == name) {
            mistakes.push(
                Diagnostic::new(head(node), format!("filter {name:?} is defined twice"))
                    .label("again")
                    .other(*first, "first here")
                    .help("give one of them another name"),
            );
            return;
        }
        let span = head(node);
        self.known.push((name.clone(), span, false));
        self.decoded.push(module.map(|(module, module_span)| Filter {
            name,
            module,
            on_error,
            limits,
            config,
            questions,
            span,
            module_span,
            config_span: config_node.map_or(span, head),
        }));
    }

    /// Reports filters that no zone uses, and gives all of them; none is missing if nothing was
    /// reported.
    pub fn finish(self, mistakes: &mut Mistakes) -> Vec<Filter> {
        for (name, span, _) in self.known.iter().filter(|(.., used)| !used) {
            let unused = Diagnostic::new(*span, format!("nothing uses the filter {name:?}"));
            mistakes.push(unused.help(format!("remove it, or write `use {name:?}` in a zone")));
        }
        self.decoded.into_iter().flatten().collect()
    }
}

pub(super) const DEFAULT_LIMITS: Limits = Limits {
    memory: 16 * 1024 * 1024,
    time: ms(5),
    load_memory: 128 * 1024 * 1024,
    load_time: s(30),
};

fn decode_limits(mistakes: &mut Mistakes, node: &KdlNode) -> Limits {
    mistakes.check(node, &LIMITS);
    if node.entries().is_empty() {
        let empty = Diagnostic::new(head(node), "`limits` changes nothing");
        mistakes.push(empty.help(format!("write: {}", LIMITS.example)));
    }
    Limits {
        memory: mistakes
            .property(node, "memory", memory)
            .unwrap_or(DEFAULT_LIMITS.memory),
        time: mistakes
            .property(node, "time", duration(ms(1)..=ms(1000)))
            .unwrap_or(DEFAULT_LIMITS.time),
        load_memory: mistakes
            .property(node, "load-memory", size(32 << 20..=4 << 30))
            .unwrap_or(DEFAULT_LIMITS.load_memory),
        load_time: mistakes
            .property(node, "load-time", duration(s(1)..=s(3600)))
            .unwrap_or(DEFAULT_LIMITS.load_time),
    }
}

fn memory(value: &KdlValue) -> Result<usize, Wrong> {
    let bytes = size(1024 * 1024..=1024 * 1024 * 1024)(value)?;
    if bytes % PAGE != 0 {
        return Err(Wrong::new(
            "is no number of WebAssembly pages",
            "write a multiple of \"64KiB\"",
        ));
    }
    Ok(bytes)
}

/// A name that can stand in logs and metrics as it is.
fn filter_name(value: &KdlValue) -> Result<String, Wrong> {
    let name = text(value)?;
    let fits = (1..=63).contains(&name.len());
    if !fits
        || !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        let help = "write 1 to 63 ASCII letters, digits, `-`, `_` or `.`: \"access-log\"";
        return Err(Wrong::new("is not a name for a filter", help));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::super::Module;
    use super::super::tests::{config, problems};
    use super::*;

    const USED: &str = "listen \"127.0.0.1\"\nzone \".\" { use \"f\"; forward \"192.0.2.1\" }\n";

    fn filter(block: &str) -> Filter {
        config(&format!("{USED}filter \"f\" {{ {block} }}"))
            .filters
            .remove(0)
    }

    #[test]
    fn everything_but_the_module_has_a_default() {
        let filter = filter("module \"builtin:log\"");
        assert!(matches!(&filter.module, Module::Builtin(name) if name == "log"));
        assert_eq!(filter.on_error, OnError::Bypass);
        assert_eq!(
            filter.limits,
            Limits {
                memory: 16 << 20,
                time: ms(5),
                load_memory: 128 << 20,
                load_time: s(30),
            }
        );
        assert!(filter.config.is_empty());
    }

    #[test]
    fn every_word_is_read() {
        let filter = filter(
            "module \"builtin:hosts\"; on-error \"refuse\"; \
             limits memory=\"1MiB\" time=\"1s\" load-memory=\"512MiB\" load-time=\"2m\"",
        );
        assert_eq!(filter.on_error, OnError::Refuse);
        assert_eq!(
            filter.limits,
            Limits {
                memory: 1 << 20,
                time: ms(1000),
                load_memory: 512 << 20,
                load_time: s(120),
            }
        );
    }

    #[test]
    fn mistakes_are_found() {
        for (word, expected) in [
            (
                "on-error \"ignore\"",
                "`on-error`: \"ignore\" is not one of its words",
            ),
            ("limits", "`limits` changes nothing"),
            ("limits memory=\"512KiB\"", "`memory`: \"512KiB\" is out of range"),
            ("limits memory=\"2GiB\"", "`memory`: \"2GiB\" is out of range"),
            (
                "limits memory=\"1025KiB\"",
                "`memory`: \"1025KiB\" is no number of WebAssembly pages",
            ),
            ("limits time=\"0ms\"", "`time`: \"0ms\" is out of range"),
            ("limits time=\"1001ms\"", "`time`: \"1001ms\" is out of range"),
            (
                "limits load-memory=\"16MiB\"",
                "`load-memory`: \"16MiB\" is out of range",
            ),
            (
                "limits load-time=\"999ms\"",
                "`load-time`: \"999ms\" is out of range",
            ),
            ("limit memory=\"1MiB\"", "`filter` takes no `limit`"),
        ] {
            assert_eq!(
                problems(&format!(
                    "{USED}filter \"f\" {{ module \"builtin:log\"; {word} }}"
                )),
                [expected],
                "{word}"
            );
        }
        let twice = "filter \"f\" { module \"builtin:log\" }\n".repeat(2);
        assert_eq!(
            problems(&format!("{USED}{twice}")),
            ["filter \"f\" is defined twice"]
        );
        let named = |name: &str| {
            problems(&format!(
                "{USED}filter \"f\" {{ module \"builtin:log\" }}\nfilter {name} {{ module \"builtin:log\" }}"
            ))
        };
        assert_eq!(named("\"g\""), ["nothing uses the filter \"g\""]);
        assert_eq!(named("\"a b\""), ["`filter`: \"a b\" is not a name for a filter"]);
        assert_eq!(named("\"\""), ["`filter`: \"\" is not a name for a filter"]);
        assert_eq!(named(""), ["`filter` needs a value"]);
    }
}
