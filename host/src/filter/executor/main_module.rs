//! Makes a component export its main module, so that compiling the component compiles both ways into it.

use std::borrow::Cow;

use wasmparser::{CanonicalFunction, CanonicalOption, Parser, Payload};

/// The name under which [`exported`] exports it.
pub(in crate::filter) const NAME: &str = "main-module";

/// What the main module exports, if tools that follow the component model's naming made the component of it.
const MARK: &str = "dnsweir:filter/configure@0.1.0#configure";

/// The component with its main module exported; the component as it is if there is not exactly one, or if it
/// speaks another ABI than UTF-8 in a linear memory.
pub(in crate::filter) fn exported(component: &[u8]) -> Cow<'_, [u8]> {
    // One octet of LEB128 for the index, and no component of ours has that many modules.
    let Some(index @ 0..0x80) = find(component) else {
        return Cow::Borrowed(component);
    };
    // An export section is allowed anywhere behind what it refers to. One export: a plain name, sort "core
    // module", and no type ascribed.
    let mut section = vec![1, 0x00, NAME.len() as u8];
    section.extend_from_slice(NAME.as_bytes());
    section.extend_from_slice(&[0x00, 0x11, index as u8, 0x00]);
    let mut component = component.to_vec();
    component.extend_from_slice(&[11, section.len() as u8]);
    component.extend_from_slice(&section);
    Cow::Owned(component)
}

/// The index of the main module among those of the outermost component.
fn find(component: &[u8]) -> Option<u32> {
    let (mut depth, mut modules, mut found) = (0, 0, None);
    for payload in Parser::new(0).parse_all(component) {
        match payload.ok()? {
            Payload::ModuleSection { .. } => {
                modules += u32::from(depth == 0);
                depth += 1;
            }
            Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ExportSection(exports) if depth == 1 => {
                for export in exports {
                    if export.ok()?.name == MARK && found.replace(modules - 1).is_some() {
                        return None;
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) if depth == 0 => {
                for function in functions {
                    if !is_plain(&function.ok()?) {
                        return None;
                    }
                }
            }
            _ => {}
        }
    }
    found
}

fn is_plain(function: &CanonicalFunction) -> bool {
    use CanonicalOption::{Memory, PostReturn, Realloc, UTF8};
    match function {
        CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. } => options
            .iter()
            .all(|option| matches!(option, UTF8 | Memory(_) | Realloc(_) | PostReturn(_))),
        CanonicalFunction::ResourceDrop { .. } => true,
        _ => false,
    }
}
