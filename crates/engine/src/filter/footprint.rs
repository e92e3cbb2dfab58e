//! The memory of an instance beside what its code can address.
//!
//! Each instance of a core module has its globals, its imports and exports and the functions in its tables in memory of
//! the host, which the runtime limits in no way but by the size of the module: a component of six megabytes can have
//! sixty instances with a million globals each. So they are counted before a module is compiled, and what they take beyond
//! a [little](FREE) is part of `limits memory=`.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind, ComponentTypeRef, ElementItems, Encoding,
    Instance, Parser, Payload, Result,
};

use super::load_error::LoadError;
use crate::config::Limits;

/// Octets of an item that is part of an instance: at most so many for any kind of item, of the runtime's structures for
/// version 48.
const ITEM: u64 = 32;

/// Octets of an instance without items.
const INSTANCE: u64 = 4096;

/// Octets that do not count against `limits memory=`: what ordinary filters take.
pub(super) const FREE: usize = 256 << 10;

/// Core instances that are part of the component that a plain module is made into, beside its own.
const WRAPPER: u64 = 3;

/// Core instances of a component. One of the SDK's has three, one that brings CPython and its libraries 38.
pub(super) const INSTANCES: usize = 64;

/// The parts of a component that each of its instances has a copy of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Footprint {
    /// Core instances.
    instances: u64,
    /// Globals, of all of them.
    globals: u64,
    /// Items of any kind, of all of them.
    items: u64,
}

/// Items of one core module.
#[derive(Debug, Default, Clone, Copy)]
struct Items {
    globals: u64,
    /// All of them.
    all: u64,
}

/// What an instance of this module or component takes away from `limits memory=` beside linear memory, in octets.
///
/// # Errors
///
/// When that is more than all it may take.
pub(super) fn overhead(module: &[u8], limits: &Limits) -> std::result::Result<usize, LoadError> {
    // What cannot be read is refused with better words when it is compiled.
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
            // Components in components can be instantiated many times, and given modules as arguments. There cannot
            // be more instances than this, nor larger ones.
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

/// What there is to be instantiated, and what is.
#[derive(Default)]
struct Outline {
    /// The modules of the outermost level.
    modules: Vec<Items>,
    /// Those of components in it.
    inner: Vec<Items>,
    /// The module of each core instance of the outermost level.
    instances: Vec<u32>,
    /// Whether modules come from, or are instantiated, anywhere but in the outermost level.
    nested: bool,
}

/// Where a parser is.
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
            // Alone, it is instantiated once.
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

    /// The items of each core instance; none if that cannot be told so easily.
    fn flat(&self) -> Option<Vec<Items>> {
        let items = |module: &u32| self.modules.get(*module as usize).copied();
        let instances: Option<Vec<Items>> = self.instances.iter().map(items).collect();
        instances.filter(|_| !self.nested)
    }

    fn all_modules(&self) -> impl Iterator<Item = &Items> {
        self.modules.iter().chain(&self.inner)
    }
}

/// Globals and all items of one section of a module.
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
