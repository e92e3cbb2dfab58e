//! Makes a component from a plain module, which is what most compilers produce.
//!
//! A component states its interface. A plain module does so in a custom section if a bindings generator added
//! one. If not, its exports show it: the names that the canonical ABI gives to functions of an interface are
//! unambiguous. A module that imports WASI preview 1 also gets an adapter to 0.2.

use std::fmt::Display;
use std::panic::catch_unwind;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as PREVIEW1,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as PREVIEW1_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, SourceMap};

/// The interface, as in `wit/`.
const WIT: [(&str, &str); 5] = [
    ("types.wit", include_str!("../../../../wit/types.wit")),
    ("tables.wit", include_str!("../../../../wit/tables.wit")),
    ("data.wit", include_str!("../../../../wit/data.wit")),
    ("refresh.wit", include_str!("../../../../wit/refresh.wit")),
    ("filter.wit", include_str!("../../../../wit/filter.wit")),
];

/// Errors come from several crates; only their text matters.
type Result<T> = std::result::Result<T, String>;

/// Optional phases of a filter.
const PHASES: [&str; 6] = [
    "queries",
    "responses",
    "query-answers",
    "response-answers",
    "events",
    "refresh",
];

/// What a component is made from, beside the module.
pub(super) fn ingredients() -> impl Iterator<Item = &'static [u8]> {
    WIT.iter()
        .map(|(_, text)| text.as_bytes())
        .chain([PREVIEW1_ADAPTER])
}

/// Makes the component.
///
/// # Errors
///
/// A message, when the module is not a filter.
pub(super) fn component(module: &[u8]) -> Result<Vec<u8>> {
    // The encoder is a build tool, not made for hostile input. If a module makes it panic, only that module
    // fails.
    catch_unwind(|| encode(module)).unwrap_or_else(|_| Err("the encoder panicked".into()))
}

fn encode(module: &[u8]) -> Result<Vec<u8>> {
    let known = Known::of(module)?;
    let mut module = module.to_vec();
    if !known.described {
        describe(&mut module, &known.phases)?;
    }
    let mut encoder = ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .map_err(in_words)?;
    if known.preview1 {
        // The adapter grows the module's memory rather than call an allocator that may not be ready yet.
        encoder = encoder
            .realloc_via_memory_grow(true)
            .adapter(PREVIEW1, PREVIEW1_ADAPTER)
            .map_err(in_words)?;
    }
    encoder.encode().map_err(in_words)
}

/// What matters about a module.
#[derive(Default)]
struct Known {
    /// Whether a section states its interface.
    described: bool,
    /// Whether it imports WASI preview 1.
    preview1: bool,
    /// The phases for which it exports a function.
    phases: Vec<&'static str>,
}

impl Known {
    fn of(module: &[u8]) -> Result<Known> {
        let mut known = Known::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload.map_err(in_words)? {
                Payload::CustomSection(section) => {
                    known.described |= section.name().starts_with("component-type");
                }
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        known.preview1 |= import.map_err(in_words)?.module == PREVIEW1;
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let name = export.map_err(in_words)?.name;
                        known.phases.extend(PHASES.iter().filter(|phase| {
                            let interface = name.strip_prefix("dnsweir:filter/");
                            let version = interface.and_then(|rest| rest.strip_prefix(**phase));
                            version.is_some_and(|rest| rest.starts_with("@0.1.0#"))
                        }));
                    }
                }
                _ => {}
            }
        }
        Ok(known)
    }
}

/// Adds the section for a filter with these phases.
fn describe(module: &mut Vec<u8>, phases: &[&str]) -> Result<()> {
    let mut world = String::from(
        "import dnsweir:filter/host@0.1.0; import dnsweir:filter/tables@0.1.0; import dnsweir:filter/data@0.1.0; \
         import dnsweir:filter/output@0.1.0; \
         export dnsweir:filter/configure@0.1.0;",
    );
    for phase in phases {
        world += &format!("export dnsweir:filter/{phase}@0.1.0;");
    }
    embed(module, "plain", &world)
}

/// Adds the section for a world with these imports and exports. Each world needs a name of its own.
fn embed(module: &mut Vec<u8>, name: &str, world: &str) -> Result<()> {
    let mut resolve = Resolve::default();
    let mut interface = SourceMap::default();
    for (file, text) in WIT {
        interface.push_str(file, text);
    }
    let interface = interface.parse().map_err(|(_, error)| in_words(error))?;
    resolve.push_group(interface).map_err(in_words)?;
    let world = format!("package dnsweir:{name}; world {name} {{ {world} }}");
    let package = resolve.push_source(name, &world).map_err(in_words)?;
    let world = resolve.select_world(&[package], None).map_err(in_words)?;
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).map_err(in_words)
}

fn in_words(error: impl Display) -> String {
    format!("{error:#}")
}
