//! `filter`: a WebAssembly module and how it is run.

use std::path::{Path, PathBuf};

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Wrong, arguments, block, boolean, child, head, text, whole, word};
use super::error::{Diagnostic, Source, Span};
use super::files::{DATA, Files, unreadable_help};
use super::module::{self, Builtins, Module, Written};
use super::signatures::{self, Signatures, SignedBy};
use super::units::{duration, ms, s, size};
use super::{Filter, Limits, OnError, TestCasesFile, config_block, refresh, wasi};

pub(super) const FILTER: Shape = Shape {
    example: r#"filter "access-log" { module "builtin:log" }"#,
    arguments: 1..=1,
    properties: &[],
    children: &[
        "module",
        "sha256",
        "signed-by",
        "test-cases",
        "on-error",
        "probation",
        "limits",
        "wasi",
        "refresh",
        "config",
    ],
    repeated: &[],
};

pub(super) const LIMITS: Shape = Shape {
    example: r#"limits memory="16MiB" time="5ms""#,
    arguments: 0..=0,
    properties: &[
        "memory",
        "time",
        "load-memory",
        "load-time",
        "tables",
        "data",
        "refresh-memory",
        "refresh-time",
    ],
    children: &[],
    repeated: &[],
};

pub(super) const ON_ERROR: Shape = Shape {
    example: r#"on-error "servfail" unready=#true"#,
    arguments: 1..=1,
    properties: &["unready"],
    children: &[],
    repeated: &[],
};

/// Queries and responses on which a filter that was loaded by a reload must not fail.
pub const PROBATION: u64 = 100;

/// A WebAssembly page; memory comes in whole ones.
const PAGE: usize = 64 * 1024;

/// The filters of a file, while it is decoded.
pub(super) struct Filters<'a> {
    builtins: Builtins<'a>,
    /// `filters "FOLDER"`: where the modules of filters are that have no `module`.
    folder: Option<PathBuf>,
    /// Whom `signed-by` may name.
    signatures: &'a Signatures,
    /// One for each `filter` with a name; none: it has mistakes.
    decoded: Vec<Option<Filter>>,
    /// Name, place, and whether a zone uses it.
    known: Vec<(String, Span, bool)>,
}

impl<'a> Filters<'a> {
    pub fn new(builtins: Builtins<'a>, signatures: &'a Signatures, folder: Option<PathBuf>) -> Filters<'a> {
        Filters {
            builtins,
            folder,
            signatures,
            decoded: Vec::new(),
            known: Vec::new(),
        }
    }

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

    /// Whether a filter called so comes with the proxy.
    pub fn is_builtin(&self, name: &str) -> bool {
        self.builtins.iter().any(|(builtin, _)| *builtin == name)
    }

    /// The names of all filters.
    pub fn names(&self) -> Vec<&str> {
        self.known.iter().map(|(name, ..)| name.as_str()).collect()
    }

    /// The file in the folder of filters that has the module of one called so.
    fn module_of(&self, name: &KdlEntry) -> Option<PathBuf> {
        let name = filter_name(name.value()).ok()?;
        Some(self.folder.as_ref()?.join(format!("{name}.wasm")))
    }

    /// Decodes a filter that a zone uses and that has no node: it is all defaults, and its module is in the folder of
    /// filters. If it is not there, neither is the filter, as the zone will say.
    pub fn decode_used(&mut self, mistakes: &mut Mistakes, files: &mut Files<'_>, name: &KdlEntry) {
        let known = |known: &(String, Span, bool)| name.value().as_string() == Some(&known.0);
        let path = self.module_of(name).filter(|path| path.is_file());
        if path.is_none() || self.known.iter().any(known) {
            return;
        }
        let mut node = KdlNode::new("filter");
        node.set_span(name.span());
        node.name_mut().set_span(name.span());
        node.push(name.clone());
        self.decode(mistakes, files, &node);
    }

    /// Decodes one `filter`.
    pub fn decode(&mut self, mistakes: &mut Mistakes, files: &mut Files<'_>, node: &KdlNode) {
        mistakes.check(node, &FILTER);
        let nodes = block(node);
        let beside = arguments(node).next().and_then(|name| self.module_of(name));
        let module = module::decode(mistakes, files.folder, beside, node);
        let code = module::code(mistakes, files, self.builtins, node, module.as_ref());
        let signed_by = self.signed_by(mistakes, nodes, module.as_ref());
        let test_cases = test_cases(mistakes, files, node, module.as_ref());
        let limits = child(nodes, "limits").map_or(DEFAULT_LIMITS, |node| decode_limits(mistakes, node));
        let (on_error, unready) =
            child(nodes, "on-error").map_or_else(Default::default, |node| on_error(mistakes, node));
        let probation = mistakes.scalar(nodes, "probation 100", whole(0..=1_000_000_000));
        let wasi = child(nodes, "wasi").map(|node| wasi::decode(mistakes, files.folder, node));
        let refresh = child(nodes, "refresh").and_then(|node| refresh::decode(mistakes, files.folder, node));
        files.limit_data(limits.data);
        let config_node = child(nodes, "config");
        let config = config_node
            .map(|node| config_block::decode(mistakes, files, node))
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
        self.decoded.push(module.zip(code).map(|(written, code)| Filter {
            name,
            module: written.module,
            code,
            artifact: None,
            reverted: None,
            signed_by,
            on_error,
            unready,
            probation: probation.unwrap_or(PROBATION),
            limits,
            wasi: wasi.unwrap_or_default(),
            refresh,
            config,
            test_cases,
            span,
            module_span: written.span,
            config_span: config_node.map_or(span, head),
        }));
    }

    /// What the module's signature must be.
    fn signed_by(&self, mistakes: &mut Mistakes, nodes: &[KdlNode], module: Option<&Written>) -> SignedBy {
        let Some(node) = child(nodes, "signed-by") else {
            return SignedBy::default();
        };
        if module.is_some_and(|written| !matches!(written.module, Module::Artifact(_))) {
            let problem = "`signed-by` is for modules from registries alone";
            mistakes.push(
                Diagnostic::new(head(node), problem)
                    .help("remove it, or write: module \"oci://REGISTRY/NAME:TAG\""),
            );
            return SignedBy::default();
        }
        signatures::signed_by(mistakes, self.signatures, node)
    }

    /// Reports filters that no zone uses, and gives all of them; none is missing if nothing was
    /// reported.
    pub fn finish(self, mistakes: &mut Mistakes) -> Vec<Filter> {
        for (name, span, _) in self.known.iter().filter(|(.., used)| !used) {
            let unused = Diagnostic::new(*span, format!("no zone uses the filter {name:?}"));
            mistakes.push(unused.help(format!("remove it, or write `use {name:?}` in a zone")));
        }
        self.decoded.into_iter().flatten().collect()
    }
}

/// The file with the test cases of `filter`: the one that it names, or the one beside its module if there is one.
fn test_cases(
    mistakes: &mut Mistakes,
    files: &mut Files<'_>,
    filter: &KdlNode,
    module: Option<&Written>,
) -> Option<TestCasesFile> {
    let nodes = block(filter);
    let named = mistakes.scalar(nodes, "test-cases \"PATH.test-cases.kdl\"", text);
    let node = child(nodes, "test-cases");
    let (path, span) = match (&named, module) {
        (Some(name), _) => (files.folder.join(name), node.map_or(head(filter), head)),
        (None, Some(written)) => match &written.module {
            Module::File(path) => (test_cases_beside(path), written.span),
            Module::Builtin(_) | Module::Artifact(_) => return None,
        },
        (None, None) => return None,
    };
    files.note(&path);
    if named.is_none() && !path.exists() {
        return None;
    }
    let name = path.display().to_string();
    match files.text(&path) {
        Ok(text) => Some(TestCasesFile {
            source: Source::new(name, text),
            span,
        }),
        Err(error) => {
            let problem = format!("the test cases {name} cannot be read: {error}");
            let usual = "name a text file; a relative path begins at the configuration's folder";
            let help = unreadable_help(&named.unwrap_or_default(), &path, usual);
            mistakes.push(Diagnostic::new(span, problem).help(help));
            None
        }
    }
}

/// Where the test cases of a module are looked for: `FILE.test-cases.kdl` beside `FILE.wasm`.
pub fn test_cases_beside(module: &Path) -> PathBuf {
    module.with_extension("test-cases.kdl")
}

const DEFAULT_LIMITS: Limits = Limits {
    memory: 16 * 1024 * 1024,
    time: ms(5),
    load_memory: 128 * 1024 * 1024,
    load_time: s(30),
    tables: 8 * 1024 * 1024,
    data: DATA,
    refresh_memory: 64 * 1024 * 1024,
    refresh_time: s(30),
};

impl Default for Limits {
    fn default() -> Limits {
        DEFAULT_LIMITS
    }
}

/// What the clients of a filter that fails get, and whether the proxy is ready while it is suspended.
fn on_error(mistakes: &mut Mistakes, node: &KdlNode) -> (OnError, bool) {
    mistakes.check(node, &ON_ERROR);
    let words = [
        ("bypass", OnError::Bypass),
        ("servfail", OnError::Servfail),
        ("refuse", OnError::Refuse),
    ];
    let on_error = mistakes.argument(node, word(&words)).unwrap_or_default();
    (
        on_error,
        mistakes.property(node, "unready", boolean).unwrap_or(false),
    )
}

fn decode_limits(mistakes: &mut Mistakes, node: &KdlNode) -> Limits {
    mistakes.check(node, &LIMITS);
    if node.entries().is_empty() {
        let empty = Diagnostic::new(head(node), "`limits` is empty");
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
        tables: mistakes
            .property(node, "tables", size(0..=1 << 30))
            .unwrap_or(DEFAULT_LIMITS.tables),
        data: mistakes
            .property(node, "data", size(0..=64 << 30))
            .unwrap_or(DEFAULT_LIMITS.data),
        refresh_memory: mistakes
            .property(node, "refresh-memory", memory)
            .unwrap_or(DEFAULT_LIMITS.refresh_memory),
        refresh_time: mistakes
            .property(node, "refresh-time", duration(s(1)..=s(3600)))
            .unwrap_or(DEFAULT_LIMITS.refresh_time),
    }
}

fn memory(value: &KdlValue) -> Result<usize, Wrong> {
    let bytes = size(1024 * 1024..=1024 * 1024 * 1024)(value)?;
    if bytes % PAGE != 0 {
        return Err(Wrong::new(
            "is not a whole number of WebAssembly pages",
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
        return Err(Wrong::new("is not a valid filter name", help));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::super::Module;
    use super::super::tests::{config, parse_in, problems};
    use super::*;

    const USED: &str = "listen \"127.0.0.1\"\nzone \".\" { use \"f\"; forward \"192.0.2.1\" }\n";

    fn filter(block: &str) -> Filter {
        config(&format!("{USED}filter \"f\" {{ {block} }}"))
            .filters
            .remove(0)
    }

    #[test]
    fn filters_in_a_folder_are_called_as_their_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("lists")).unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(format!("lists/{name}.wasm")), name).unwrap();
        }
        let parse = |uses: &str, filters: &str| {
            let text = format!("listen \"::1\"\nfilters \"lists\"\nzone \".\" {{ {uses} }}\n{filters}");
            parse_in(folder.path(), &text)
        };
        // One with a node, one without, one that nobody uses, and one with a module of its own.
        let config = parse(
            "use \"a\"; use \"b\"; use \"log\"",
            "filter \"b\" { on-error \"refuse\" }\nfilter \"log\" { module \"builtin:log\" }",
        )
        .unwrap();
        let modules: Vec<(&str, &[u8])> = config
            .filters
            .iter()
            .map(|filter| (filter.name.as_str(), &filter.code[..]))
            .collect();
        assert_eq!(modules[0], ("b", &b"b"[..]));
        assert_eq!(config.filters[0].on_error, OnError::Refuse);
        assert_eq!(modules[2], ("a", &b"a"[..]));
        assert!(config.files.contains(&folder.path().join("lists/a.wasm")));
        assert!(!config.files.contains(&folder.path().join("lists/c.wasm")));
        for (uses, expected) in [
            ("use \"d\"", "there is no filter \"d\""),
            ("use \"../lists/a\"", "there is no filter \"../lists/a\""),
        ] {
            let report = parse(uses, "").unwrap_err();
            assert_eq!(report.diagnostics()[0].message, expected);
        }
        let report = parse("use \"d\"", "filter \"d\"").unwrap_err();
        assert!(
            report.diagnostics()[0].message.contains("d.wasm cannot be read"),
            "{report}"
        );
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
                tables: 8 << 20,
                data: 256 << 20,
                refresh_memory: 64 << 20,
                refresh_time: s(30),
            }
        );
        assert!(filter.config.is_empty());
    }

    #[test]
    fn every_word_is_read() {
        let filter = filter(
            "module \"builtin:hosts\"; on-error \"refuse\"; \
             limits memory=\"1MiB\" time=\"1s\" load-memory=\"512MiB\" load-time=\"2m\" tables=\"1GiB\" data=\"2GiB\" \
             refresh-memory=\"1MiB\" refresh-time=\"2m\"",
        );
        assert_eq!(filter.on_error, OnError::Refuse);
        assert_eq!(
            filter.limits,
            Limits {
                memory: 1 << 20,
                time: ms(1000),
                load_memory: 512 << 20,
                load_time: s(120),
                tables: 1 << 30,
                data: 2 << 30,
                refresh_memory: 1 << 20,
                refresh_time: s(120),
            }
        );
    }

    #[test]
    fn mistakes_are_found() {
        for (word, expected) in [
            (
                "on-error \"ignore\"",
                "`on-error`: \"ignore\" is not a valid value",
            ),
            ("limits", "`limits` is empty"),
            ("limits memory=\"512KiB\"", "`memory`: \"512KiB\" is out of range"),
            ("limits memory=\"2GiB\"", "`memory`: \"2GiB\" is out of range"),
            (
                "limits memory=\"1025KiB\"",
                "`memory`: \"1025KiB\" is not a whole number of WebAssembly pages",
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
            ("limits tables=\"2GiB\"", "`tables`: \"2GiB\" is out of range"),
            ("limits data=\"65GiB\"", "`data`: \"65GiB\" is out of range"),
            ("limit memory=\"1MiB\"", "`limit` is not allowed in `filter`"),
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
        assert_eq!(named("\"g\""), ["no zone uses the filter \"g\""]);
        assert_eq!(named("\"a b\""), ["`filter`: \"a b\" is not a valid filter name"]);
        assert_eq!(named("\"\""), ["`filter`: \"\" is not a valid filter name"]);
        assert_eq!(named(""), ["`filter` needs a value"]);
    }
}
