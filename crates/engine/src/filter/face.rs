//! Checks a module before it is compiled: which interface it was built for, and whether it is a filter.
//!
//! Every error found here would be found later, too, but with a linker's message.

use wasmparser::{KnownCustom, Name, Parser, Payload, Result};

use super::load_error::LoadError;

/// Prefix of all names of the interface.
const OURS: &str = "dnsweir:filter/";

/// # Errors
///
/// When the module was built for another version of the interface, or exports nothing of it.
pub(super) fn check(module: &[u8]) -> std::result::Result<(), LoadError> {
    let Ok(Face { imports, exports }) = Face::of(module) else {
        // An unreadable module gets a better error message when it is compiled.
        return Ok(());
    };
    let ours = |name: &&String| name.starts_with(OURS);
    if let Some(other) = imports
        .iter()
        .chain(&exports)
        .filter(ours)
        .find(|name| !is_of_this_line(name))
    {
        let version = other.split(['@', '#']).nth(1).unwrap_or("no version");
        return Err(LoadError::OtherVersion(super::text::one_line(version, 64)));
    }
    if let Some(version) = imports.iter().find_map(|name| later_wasi(name)) {
        return Err(LoadError::LaterWasi(super::text::one_line(version, 64)));
    }
    if exports.iter().any(|name| name.starts_with(OURS)) {
        return Ok(());
    }
    let program = |name: &String| name == "_start" || name.starts_with("wasi:cli/run@");
    Err(LoadError::Interface(if exports.iter().any(program) {
        "it is a program, and not a library, which cargo makes with `crate-type = [\"cdylib\"]` under `[lib]`"
            .into()
    } else {
        "it exports nothing of it, not even `configure`; in Rust, its source has to end with \
         `dnsweir_filter::export!(YourFilter);`"
            .into()
    }))
}

/// Maximum bytes of a function's name. Every trap copies the names of up to twenty functions on the stack;
/// Rust's longest have some 2,000 bytes.
const NAME: usize = 4096;

/// # Errors
///
/// When a function's name is longer.
pub(super) fn check_names(module: &[u8]) -> std::result::Result<(), LoadError> {
    // An unreadable module gets a better error message when it is compiled, and an unreadable section of
    // names has none.
    let payloads = Parser::new(0).parse_all(module).map_while(Result::ok);
    let sections = payloads.filter_map(|payload| match payload {
        Payload::CustomSection(section) => match section.as_known() {
            KnownCustom::Name(names) => Some(names),
            _ => None,
        },
        _ => None,
    });
    let functions = sections.flat_map(|names| names.into_iter().map_while(Result::ok));
    for names in functions {
        let Name::Function(names) = names else { continue };
        let longest = names
            .into_iter()
            .map_while(Result::ok)
            .map(|naming| naming.name.len());
        if let Some(octets) = longest.max().filter(|&octets| octets > NAME) {
            return Err(LoadError::Name(octets, NAME));
        }
    }
    Ok(())
}

/// The version of a WASI interface later than 0.2. Its functions differ from those of the same names in 0.2,
/// and would trap only when called, which is late.
fn later_wasi(interface: &str) -> Option<&str> {
    let (_, version) = interface.strip_prefix("wasi:")?.split_once('@')?;
    let mut numbers = version.split('.').map(|number| number.parse::<u64>().ok());
    let number = (numbers.next()??, numbers.next()??);
    (number > (0, 2)).then_some(version)
}

/// Whether an interface has a version that this proxy implements.
pub(super) fn is_of_this_line(interface: &str) -> bool {
    interface
        .split_once('@')
        .is_some_and(|(_, version)| version.starts_with("0.1."))
}

/// The names that the outermost module or component imports from and exports.
#[derive(Default)]
struct Face {
    imports: Vec<String>,
    exports: Vec<String>,
}

impl Face {
    fn of(module: &[u8]) -> Result<Face> {
        let mut face = Face::default();
        let mut depth = 0;
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                _ if depth > 1 => {}
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        face.imports.push(import?.module.to_owned());
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        face.exports.push(export?.name.to_owned());
                    }
                }
                Payload::ComponentImportSection(imports) => {
                    for import in imports {
                        face.imports.push(import?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(exports) => {
                    for export in exports {
                        face.exports.push(export?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(face)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let refused = check(&wat::parse_str(text).unwrap());
        refused.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_no_filter_is_told_apart() {
        let of_0_2 = r#"(module (func (export "dnsweir:filter/configure@0.2.0#configure")))"#;
        for (text, expected) in [
            (
                r#"(module (func (export "dnsweir:filter/configure@0.1.0#configure")))"#,
                "",
            ),
            (of_0_2, "built for version 0.2.0 of the filter interface"),
            (
                r#"(component (import "dnsweir:filter/host@1.0.0" (instance)))"#,
                "built for version 1.0.0",
            ),
            (
                r#"(module (func (export "_start")))"#,
                "crate-type = [\"cdylib\"]",
            ),
            (
                r#"(component (import "wasi:cli/stdout@0.3.0-rc-2025-09-16" (instance)))"#,
                "built for WASI 0.3.0-rc-2025-09-16, and filters get WASI 0.2",
            ),
            (
                r#"(module (import "wasi:clocks/monotonic-clock@0.3.0" "now" (func (result i64)))
                    (func (export "dnsweir:filter/configure@0.1.0#configure")))"#,
                "--target wasm32-wasip2",
            ),
            (
                r#"(module (import "wasi:clocks/monotonic-clock@0.2.0" "now" (func (result i64)))
                    (import "wasi:logging/logging@0.1.0-draft" "log" (func))
                    (import "wasi:odd/one" "f" (func)) (import "wasi:odd/one@x" "f" (func))
                    (func (export "dnsweir:filter/configure@0.1.0#configure")))"#,
                "",
            ),
            ("(module)", "dnsweir_filter::export!"),
            ("(component)", "dnsweir_filter::export!"),
        ] {
            let said = refused(text);
            assert!(
                said.contains(expected) && said.is_empty() == expected.is_empty(),
                "{text}: {said}"
            );
        }
    }
}
