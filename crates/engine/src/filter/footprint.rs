//! The memory of an instance that its code cannot address.
//!
//! Each core instance has its globals, imports, exports and table functions in host memory. The runtime
//! limits these only by the size of the module: a component of 6 MB can have sixty instances with a million
//! globals each. So they are counted before a module is compiled, and what exceeds a [small allowance](FREE)
//! counts against `limits memory=`.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind, ComponentTypeRef, ElementItems, Encoding,
    Instance, Parser, Payload, Result,
};

use super::load_error::LoadError;
use crate::config::Limits;

/// Maximum bytes per item of an instance, over all kinds of items, in the runtime's structures of version 48.
const ITEM: u64 = 32;

/// Bytes of an instance without items.
const INSTANCE: u64 = 4096;

/// Bytes that do not count against `limits memory=`; ordinary filters take no more.
pub(super) const FREE: usize = 256 << 10;

/// Core instances that wrapping a plain module into a component adds to its own.
const WRAPPER: u64 = 3;

/// Maximum core instances of a component. One made with the SDK has 3, one with CPython and its libraries 38.
pub(super) const INSTANCES: usize = 64;

/// The parts of a component that are copied for each of its instances.
#[derive(Debug, Default, PartialEq, Eq)]
struct Footprint {
    /// Core instances.
    instances: u64,
    /// Globals in all instances.
    globals: u64,
    /// Items of any kind in all instances, globals included.
    items: u64,
}

/// Items of one core module.
#[derive(Debug, Default, Clone, Copy)]
struct Items {
    globals: u64,
    /// Items of any kind, globals included.
    all: u64,
}

/// The bytes of `limits memory=` that an instance takes beside linear memory.
///
/// # Errors
///
/// When they exceed the limit.
pub(super) fn overhead(module: &[u8], limits: &Limits) -> std::result::Result<usize, LoadError> {
    // An unreadable module gets a better error message when it is compiled.
    let footprint = Footprint::of(module).unwrap_or_default();
    let octets = usize::try_from(footprint.octets()).unwrap_or(usize::MAX);
    let overhead = octets.saturating_sub(FREE);
    if overhead < limits.memory {
        return Ok(overhead);
    }
    Err(LoadError::Footprint {
        octets,
        limit: limits.memory,
        instances: footprint.instances,
        globals: footprint.globals,
        others: footprint.items - footprint.globals,
    })
}

impl Footprint {
    fn octets(&self) -> u64 {
        (self.instances + WRAPPER)
            .saturating_mul(INSTANCE)
            .saturating_add(self.items.saturating_mul(ITEM))
    }

    fn of(bytes: &[u8]) -> Result<Footprint> {
        let outline = Outline::of(bytes)?;
        let Some(instances) = outline.flat() else {
            // Nested components can be instantiated many times, with modules as arguments. Assume the maximum
            // number of instances, each of the largest module.
            let largest = |of: fn(&Items) -> u64| outline.all_modules().map(of).max().unwrap_or(0);
            let most = INSTANCES as u64;
            return Ok(Footprint {
                instances: most,
                globals: most * largest(|items| items.globals),
                items: most * largest(|items| items.all),
            });
        };
        let sum = |of: fn(&Items) -> u64| instances.iter().map(of).sum();
        Ok(Footprint {
            instances: instances.len() as u64,
            globals: sum(|items| items.globals),
            items: sum(|items| items.all),
        })
    }
}

/// The modules of a component, and which of them are instantiated.
#[derive(Default)]
struct Outline {
    /// Modules of the outermost level.
    modules: Vec<Items>,
    /// Modules of nested components.
    inner: Vec<Items>,
    /// The module of each core instance of the outermost level.
    instances: Vec<u32>,
    /// Whether modules come from, or are instantiated in, other levels than the outermost.
    nested: bool,
}

/// The kind of nesting level that the parser is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Module,
    Component,
}

impl Outline {
    fn of(bytes: &[u8]) -> Result<Outline> {
        let mut outline = Outline::default();
        let mut levels = Vec::new();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::Version { encoding, .. } => {
                    levels.push(match encoding {
                        Encoding::Module => Level::Module,
                        Encoding::Component => Level::Component,
                    });
                    outline.enter(&levels);
                }
                Payload::End(_) => drop(levels.pop()),
                payload if levels.last() == Some(&Level::Module) => {
                    let (globals, all) = count(&payload)?;
                    if let Some(items) = outline.innermost(&levels) {
                        items.globals += globals;
                        items.all += all;
                    }
                }
                payload => outline.component(&payload, levels.len() == 1)?,
            }
        }
        Ok(outline)
    }

    fn enter(&mut self, levels: &[Level]) {
        match levels {
            // A plain module is instantiated once.
            [Level::Module] => {
                self.modules.push(Items::default());
                self.instances.push(0);
            }
            [Level::Component, Level::Module] => self.modules.push(Items::default()),
            [.., Level::Module] => self.inner.push(Items::default()),
            _ => {}
        }
    }

    /// The module that the parser is in.
    fn innermost(&mut self, levels: &[Level]) -> Option<&mut Items> {
        if levels.len() <= 2 {
            self.modules.last_mut()
        } else {
            self.inner.last_mut()
        }
    }

    fn component(&mut self, payload: &Payload<'_>, outermost: bool) -> Result<()> {
        match payload {
            Payload::InstanceSection(instances) => {
                for instance in instances.clone() {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        self.instances.push(module_index);
                        self.nested |= !outermost;
                    }
                }
            }
            Payload::ComponentImportSection(imports) => {
                for import in imports.clone() {
                    self.nested |= matches!(import?.ty, ComponentTypeRef::Module(_));
                }
            }
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases.clone() {
                    self.nested |= matches!(
                        alias?,
                        ComponentAlias::InstanceExport {
                            kind: ComponentExternalKind::Module,
                            ..
                        } | ComponentAlias::Outer {
                            kind: ComponentOuterAliasKind::CoreModule,
                            ..
                        }
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The items of each core instance; none if nesting makes them hard to count.
    fn flat(&self) -> Option<Vec<Items>> {
        let items = |module: &u32| self.modules.get(*module as usize).copied();
        let instances: Option<Vec<Items>> = self.instances.iter().map(items).collect();
        instances.filter(|_| !self.nested)
    }

    fn all_modules(&self) -> impl Iterator<Item = &Items> {
        self.modules.iter().chain(&self.inner)
    }
}

/// The number of globals and of all items in one section of a module.
fn count(payload: &Payload<'_>) -> Result<(u64, u64)> {
    let several = |count: u32| Ok((0, u64::from(count)));
    match payload {
        Payload::ImportSection(imports) => {
            let mut all = 0;
            for import in imports.clone().into_imports() {
                import?;
                all += 1;
            }
            Ok((0, all))
        }
        Payload::GlobalSection(globals) => Ok((u64::from(globals.count()), u64::from(globals.count()))),
        Payload::TableSection(tables) => several(tables.count()),
        Payload::MemorySection(memories) => several(memories.count()),
        Payload::ExportSection(exports) => several(exports.count()),
        Payload::DataSection(segments) => several(segments.count()),
        Payload::ElementSection(segments) => {
            let mut all = 0;
            for segment in segments.clone() {
                all += 1 + u64::from(match segment?.items {
                    ElementItems::Functions(items) => items.count(),
                    ElementItems::Expressions(_, items) => items.count(),
                });
            }
            Ok((0, all))
        }
        _ => Ok((0, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(text: &str) -> Footprint {
        Footprint::of(&wat::parse_str(text).unwrap()).unwrap()
    }

    const MODULE: &str = r#"
        (import "a" "f" (func $f))
        (memory (export "memory") 1)
        (global i32 (i32.const 0)) (global i32 (i32.const 1))
        (table 4 funcref)
        (elem (i32.const 0) func $f $f)
        (data (i32.const 0) "x")"#;

    #[test]
    fn the_items_of_a_module_are_counted() {
        // Import, memory, export, two globals, table, data segment, element segment and its two items.
        let expected = Footprint {
            instances: 1,
            globals: 2,
            items: 10,
        };
        assert_eq!(footprint(&format!("(module {MODULE})")), expected);
    }

    #[test]
    fn every_instance_counts() {
        let component = format!(
            r#"(component
              (core module $m {MODULE})
              (core module $other (global i32 (i32.const 0)) (func (export "f")))
              (component (core module (global i32 (i32.const 0))))
              (core instance $a (instantiate $other))
              (core instance (instantiate $m (with "a" (instance $a))))
              (core instance (instantiate $m (with "a" (instance $a)))))"#
        );
        let expected = Footprint {
            instances: 3,
            globals: 5,
            items: 22,
        };
        assert_eq!(footprint(&component), expected);
    }

    #[test]
    fn instances_in_components_count_as_often_as_they_can_be_made() {
        let component = r#"(component
              (component $c
                (core module $m (global i32 (i32.const 0)) (global i32 (i32.const 0)))
                (core instance (instantiate $m)))
              (instance (instantiate $c))
              (instance (instantiate $c)))"#;
        let expected = Footprint {
            instances: 64,
            globals: 128,
            items: 128,
        };
        assert_eq!(footprint(component), expected);
    }
}
