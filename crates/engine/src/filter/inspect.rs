//! What can be told of a module without running it.

use sha2::{Digest, Sha256};
use wasmtime::component::types::ComponentItem;

use super::engine::Engine;
use super::face;
use super::layer::{Layer, layer};
use super::load;
use super::load_error::LoadError;
use super::text;
use super::wasi::Part;
use crate::config::{Limits, hex};

/// A module as it lies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anatomy {
    /// Whether it is a component, and not the plain module that cargo leaves, which the proxy wraps into one.
    pub component: bool,
    /// Octets.
    pub size: usize,
    /// SHA-256 in hexadecimal, as the configuration's `sha256` has it.
    pub digest: String,
    /// What it needs.
    pub imports: Vec<Interface>,
    /// What it offers.
    pub exports: Vec<Interface>,
}

/// An interface that a module imports or exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// `dnsweir:filter/host@0.1.0`
    pub name: String,
    /// Its functions.
    pub functions: Vec<String>,
    /// What the proxy does about it.
    pub standing: Standing,
}

/// What the proxy does about an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Part of the interface of filters.
    Known,
    /// WASI's.
    Wasi(Part),
    /// Something else: a module that imports it is refused.
    Foreign,
}

/// Looks at a module. It is compiled, within `limits`, since only the compiler knows whether it is one.
///
/// # Errors
/// When it is no module that this proxy could compile.
pub fn inspect(engine: &Engine, bytes: &[u8], limits: &Limits) -> Result<Anatomy, LoadError> {
    let component = load::component(engine, bytes, limits)?;
    let imports = interfaces(engine, component.component_type().imports(component.engine()));
    let exports = interfaces(engine, component.component_type().exports(component.engine()));
    Ok(Anatomy {
        component: layer(bytes) == Some(Layer::Component),
        size: bytes.len(),
        digest: hex::digits(&Sha256::digest(bytes)),
        imports,
        exports,
    })
}

fn interfaces<'a>(
    engine: &Engine,
    items: impl Iterator<Item = (&'a str, wasmtime::component::types::ComponentExtern<'a>)>,
) -> Vec<Interface> {
    let interfaces = items.map(|(name, item)| Interface {
        standing: match name {
            _ if name.starts_with("dnsweir:filter/") && face::is_of_this_line(name) => Standing::Known,
            _ if name.starts_with("wasi:") => Standing::Wasi(Part::of(name)),
            _ => Standing::Foreign,
        },
        functions: match item.ty {
            ComponentItem::ComponentInstance(instance) => instance
                .exports(&engine.wasm)
                .filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)))
                .map(|(name, _)| text::one_line(name, 256))
                .collect(),
            _ => Vec::new(),
        },
        name: text::one_line(name, 256),
    });
    interfaces.collect()
}
