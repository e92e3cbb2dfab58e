//! Describes a module without running it.

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

/// A module's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anatomy {
    /// Whether it is a component; else it is a plain module as cargo builds it, which the proxy wraps into
    /// one.
    pub component: bool,
    /// Size in bytes.
    pub size: usize,
    /// SHA-256 in hexadecimal, as in the configuration's `sha256`.
    pub digest: String,
    /// The interfaces it needs.
    pub imports: Vec<Interface>,
    /// The interfaces it provides.
    pub exports: Vec<Interface>,
}

/// An interface that a module imports or exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, as `dnsweir:filter/host@0.1.0`.
    pub name: String,
    /// Its functions.
    pub functions: Vec<String>,
    /// How the proxy treats it.
    pub standing: Standing,
}

/// How the proxy treats an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Part of the filter interface.
    Known,
    /// Part of WASI.
    Wasi(Part),
    /// Unknown: a module that imports it is refused.
    Foreign,
}

/// Inspects a module. It is compiled, within `limits`, since only the compiler knows whether it is valid.
///
/// # Errors
/// When this proxy cannot compile it.
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
