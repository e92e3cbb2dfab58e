//! `filter`: a WebAssembly module and how it is run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kdl::{KdlNode, KdlValue};

use super::config_block::{ConfigNode, ConfigValue, Place};
use super::data::Data;
use super::decode::{Decoder, Wrong, block, boolean, child, fitting, head, text, whole, word};
use super::error::{Source, Span};
use super::files::{Files, TEXT_HELP};
use super::module::{self, Module, sha256};
use super::refresh::{self, Refresh};
use super::signatures::{self, SignedBy};
use super::units::{duration, ms, s, size};
use super::wasi::{self, Wasi};
use super::words::{Table, words};

words! {
    /// `filter "NAME" { … }`
    #[derive(Debug, Clone)]
    pub struct Filter in FILTER(1..=1): r#"filter "access-log" { module "builtin:log" }"#;

    /// `"builtin:NAME"`, the path of a `.wasm` file, or `"oci://REGISTRY/NAME:TAG@sha256:DIGEST"` with a tag, a digest or
    /// both.
    hand "module" module: Module = ("`NAME.wasm` in the folder of [`filters`](#filters)")
        in module::MODULE, "at most 64 MiB";
    /// The digest that the file must have; for files only.
    one "sha256" sha256: Option<[u8; 32]> = ("none": "64 HEX DIGITS") in sha256, "64 hexadecimal digits";
    /// The keys and identities of which one must have signed, and [for which repository](delivery.md#signatures).
    hand "signed-by" signed_by: SignedBy = ("any of [`signatures`](#signatures), for the repository in the reference")
        in signatures::SIGNED_BY, "names";
    /// [Test cases](filters.md#test) that the module must pass before it is used.
    hand "test-cases" test_cases: Option<TestCasesFile> = ("`NAME.test-cases.kdl` beside the module, if it exists")
        in TEST_CASES, "a file";
    /// What happens to a query when the filter fails: it continues as if the filter had passed it, or gets SERVFAIL or
    /// REFUSED.
    hand "on-error" on_error: OnError = ("") in ON_ERROR;
    /// Calls after which a new module is trusted. If it fails earlier, for eight names and four clients, and the previous
    /// module fails on fewer of these, the previous module and its `config` are restored; 0: never.
    one "probation" probation: u64 = 100 in whole(0..=1_000_000_000);
    /// Memory and time.
    table "limits" limits: Limits = defaults in LIMITS;
    /// The parts of WASI that the filter may use.
    table "wasi" wasi: Wasi = ("nothing") in wasi::WASI, "a block";
    /// Sources that the filter turns into data: [below](#refresh).
    table "refresh" refresh: Option<Refresh> = none in refresh::REFRESH, "a block";
    /// The filter's own configuration.
    hand "config" config: Vec<ConfigNode> = ("empty") in CONFIG, "a block";
    besides {
        /// ASCII letters, digits, `-`, `_` and `.`; unique.
        name: String;
        /// Its whole code, read once; matches `sha256`. Empty for an artifact until delivery.
        code: Bytes;
        /// What was delivered, if the module is an artifact.
        artifact: Option<Delivered>;
        /// Why its module and `config` are not those in the file: the configured ones failed in too many calls.
        reverted: Option<String>;
        /// Whether `/ready` fails while it is suspended.
        unready: bool;
        /// Its span, for errors about the filter as a whole.
        span: Span;
        /// The span of its `module`, for errors about the code.
        module_span: Span;
        /// The span of its `config`, or of the filter if it has none.
        config_span: Span;
    }
}

const TEST_CASES: Table<()> = Table::plain(1..=1, r#"test-cases "PATH.test-cases.kdl""#);

/// The contents are up to the filter.
pub(super) const CONFIG: Table<()> = Table::plain(0..=0, "config { … }");

words! {
    /// What happens to queries, and to readiness, when a filter fails.
    pub(super) struct Failing in ON_ERROR(1..=1): r#"on-error "servfail" unready=#true"#;

    /// What happens to a query.
    value "WORD" on_error: OnError = "bypass" in word(&ANSWERS);
    /// `#true`: `/ready` fails while the filter is suspended.
    property "unready" unready: bool = false in boolean;
}

const ANSWERS: [(&str, OnError); 3] = [
    ("bypass", OnError::Bypass),
    ("servfail", OnError::Servfail),
    ("refuse", OnError::Refuse),
];

words! {
    /// Resource limits of one instance of a filter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits in LIMITS(0..=0): r#"limits memory="16MiB" time="5ms""#, then refuse_empty;

    /// Linear memory of an instance, and globals, imports, exports, segments and table entries at 32 bytes each beyond
    /// 256 KiB.
    property "memory" memory: usize = "16MiB" in memory, "a multiple of `\"64KiB\"`";
    /// One call. An overrun is noticed within 4 ms; a call that waits for a processor may take up to five times as long.
    property "time" time: Duration = "5ms" in duration(ms(1)..=ms(1000));
    /// Memory of the process that compiles the module.
    property "load-memory" load_memory: usize = "128MiB" in size(32 << 20..=4 << 30);
    /// Processor time to compile (four times that in elapsed time), and to run all test cases.
    property "load-time" load_time: Duration = "30s" in duration(s(1)..=s(3600));
    /// All [tables](filters.md#share) of the filter.
    property "tables" tables: usize = "8MiB" in size(0..=1 << 30);
    /// All `(data)` files of the filter, and as much again for published data.
    property "data" data: usize = "256MiB" in size(0..=64 << 30);
    /// Memory of the instance that [refreshes](#refresh).
    property "refresh-memory" refresh_memory: usize = "64MiB" in memory, "a multiple of `\"64KiB\"`";
    /// Processor time of a refresh.
    property "refresh-time" refresh_time: Duration = "30s" in duration(s(1)..=s(3600));
}

/// The size of a WebAssembly page; memory is a multiple of it.
const PAGE: usize = 64 * 1024;

impl Filter {
    /// Whether the same filter is made from both: of the same code, with the same configuration and rights,
    /// and tested by the same cases. Where that is written does not count.
    pub fn makes_the_same_as(&self, other: &Filter) -> bool {
        let cases = |filter: &Filter| filter.test_cases.as_ref().map(|file| file.source.clone());
        self.name == other.name
            && self.on_error == other.on_error
            && self.limits == other.limits
            && self.wasi == other.wasi
            && self.refresh == other.refresh
            && self.config == other.config
            && self.code == other.code
            && cases(self).as_ref().map(Source::text) == cases(other).as_ref().map(Source::text)
    }

    /// The data in its `config` block, in document order.
    pub fn data(&self) -> impl Iterator<Item = &Arc<Data>> {
        let values = self.config.iter().flat_map(|node| {
            let properties = node.properties.iter().map(|(_, value)| value);
            node.arguments.iter().chain(properties)
        });
        values.filter_map(|value| match value {
            ConfigValue::Data(data) => Some(data),
            _ => None,
        })
    }

    /// Returns the span of a part of the `config` block. `node` is an index into [`Filter::config`]. A
    /// missing or invalid node stands for the whole block, an invalid part for its node: a filter may send
    /// any index.
    pub fn config_place(&self, node: Option<usize>, place: Place) -> Span {
        let Some(node) = node.and_then(|index| self.config.get(index)) else {
            return self.config_span;
        };
        let part = match place {
            Place::Node => None,
            Place::Argument(index) => node.argument_spans.get(index),
            Place::Property(index) => node.property_spans.get(index),
        };
        part.copied().unwrap_or(node.span)
    }
}

/// An artifact after delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The digest of its manifest, starting with `sha256:`.
    pub digest: String,
    /// The signer, if a signature was required.
    pub signer: Option<Signer>,
}

/// The signer of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The name of the key or identity.
    pub name: String,
    /// Whether the signature names the artifact's repository. If not, it is valid for any repository.
    pub says_repository: bool,
}

/// A file with a filter's test cases; not parsed here.
#[derive(Debug, Clone)]
pub struct TestCasesFile {
    /// Its contents, named by its path.
    pub source: Source,
    /// The place in the configuration that names it, for errors about the file.
    pub span: Span,
}

/// `on-error "bypass" | "servfail" | "refuse"`: what happens to a query when its filter fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// It continues as if the filter had passed it.
    #[default]
    Bypass,
    /// SERVFAIL.
    Servfail,
    /// REFUSED.
    Refuse,
}

/// Finds the test cases of `filter`: the file that it names, or the one beside its module if that exists.
pub(super) fn test_cases(
    decoder: &mut Decoder,
    filter: &KdlNode,
    module: Option<&module::Written>,
) -> Option<TestCasesFile> {
    let nodes = block(filter);
    let named = decoder.scalar(nodes, TEST_CASES.shape.example, text);
    let node = child(nodes, "test-cases");
    let (path, span) = match (&named, module) {
        (Some(name), _) => (decoder.files.at(name), node.map_or(head(filter), head)),
        (None, Some(written)) => match &written.module {
            Module::File(path) => (test_cases_beside(path), written.span),
            Module::Builtin(_) | Module::Artifact(_) => return None,
        },
        (None, None) => return None,
    };
    decoder.files.note(&path);
    if named.is_none() && !path.exists() {
        return None;
    }
    let text = decoder.file("test cases", &path, span, Files::text, TEXT_HELP)?;
    let source = Source::new(path.display().to_string(), text);
    Some(TestCasesFile { source, span })
}

/// The default file of a module's test cases: `FILE.test-cases.kdl` beside `FILE.wasm`.
pub fn test_cases_beside(module: &Path) -> PathBuf {
    module.with_extension("test-cases.kdl")
}

/// Reports an empty `limits`.
fn refuse_empty(decoder: &mut Decoder, node: &KdlNode, _: &mut Limits) {
    if node.entries().is_empty() {
        decoder.report(node, "`limits` is empty", LIMITS.shape.help());
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

/// Reads a name that is safe in logs and metrics as it is.
pub(super) fn filter_name(value: &KdlValue) -> Result<String, Wrong> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = |name: &str| (1..=63).contains(&name.len()) && name.chars().all(is_plain);
    let help = "write 1 to 63 ASCII letters, digits, `-`, `_` or `.`: \"access-log\"";
    fitting(value, fits, "is not a valid filter name", help)
}
