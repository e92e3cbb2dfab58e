//! Makes a component export its main module, so that compiling the component compiles both ways into it.
//!
//! The core path calls the main module's exports by the names that the canonical ABI gives them. That is the same
//! code only where the component lifts its functions from those very exports, with the memory, the allocation and the
//! clean-up that [`core_module`](super::core_module) assumes. A component is free to lift others, so one that somebody
//! else put together is never entered this way; one that [we made](crate::filter::plain) is, if what we made of the
//! module is what we expect.

use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ExternalKind, Instance, Parser, Payload, Result,
};

/// The name under which [`exported`] exports it.
pub(in crate::filter) const NAME: &str = "main-module";

/// What the main module exports for each phase.
const PHASES: [&str; 4] = [
    "dnsweir:filter/configure@0.1.0#configure",
    "dnsweir:filter/queries@0.1.0#on-queries",
    "dnsweir:filter/responses@0.1.0#on-responses",
    "dnsweir:filter/events@0.1.0#on-events",
];

/// How names begin that the canonical ABI has in another form, which may stand beside the usual one.
const OTHER_NAMES: &str = "cm32p2";

/// A component of our making with its main module exported; none if it lifts anything but what the core path calls.
pub(in crate::filter) fn exported(component: &[u8]) -> Option<Vec<u8>> {
    let outline = Outline::of(component).ok()?;
    // One octet of LEB128 for the index, and no component of ours has that many modules.
    let index @ 0..0x80 = outline.main_module()? else {
        return None;
    };
    // An export section is allowed anywhere behind what it refers to. One export: a plain name, sort "core
    // module", and no type ascribed.
    let mut section = vec![1, 0x00, NAME.len() as u8];
    section.extend_from_slice(NAME.as_bytes());
    section.extend_from_slice(&[0x00, 0x11, index as u8, 0x00]);
    let mut component = component.to_vec();
    component.extend_from_slice(&[11, section.len() as u8]);
    component.extend_from_slice(&section);
    Some(component)
}

/// What an item of a core index space is an export of: a core instance, and the name; none: something else.
type Exported<'a> = Option<(u32, &'a str)>;

/// The outermost level of a component, as far as calls depend on it.
#[derive(Default)]
struct Outline<'a> {
    /// Exports of each core module.
    modules: Vec<Vec<&'a str>>,
    /// Which module each core instance is one of.
    instances: Vec<Option<u32>>,
    functions: Vec<Exported<'a>>,
    memories: Vec<Exported<'a>>,
    /// Core functions that the component exports, and how.
    lifts: Vec<(u32, Box<[CanonicalOption]>)>,
    /// How the component's imports are called.
    lowers: Vec<Box<[CanonicalOption]>>,
    /// Whether there is an intrinsic that no filter needs.
    odd: bool,
}

/// Where a parser is.
#[derive(PartialEq, Eq)]
enum Level {
    Module,
    Component,
}

impl<'a> Outline<'a> {
    fn of(component: &'a [u8]) -> Result<Outline<'a>> {
        let mut outline = Outline::default();
        let mut levels = Vec::new();
        for payload in Parser::new(0).parse_all(component) {
            match payload? {
                Payload::ModuleSection { .. } => {
                    if levels.is_empty() {
                        outline.modules.push(Vec::new());
                    }
                    levels.push(Level::Module);
                }
                Payload::ComponentSection { .. } => levels.push(Level::Component),
                Payload::End(_) => drop(levels.pop()),
                Payload::ExportSection(exports) if levels == [Level::Module] => {
                    let names: Result<Vec<_>> = exports.into_iter().map(|export| Ok(export?.name)).collect();
                    outline.modules.pop();
                    outline.modules.push(names?);
                }
                Payload::InstanceSection(instances) if levels.is_empty() => {
                    for instance in instances {
                        outline.instances.push(match instance? {
                            Instance::Instantiate { module_index, .. } => Some(module_index),
                            Instance::FromExports(_) => None,
                        });
                    }
                }
                Payload::ComponentAliasSection(aliases) if levels.is_empty() => {
                    for alias in aliases {
                        outline.alias(&alias?);
                    }
                }
                Payload::ComponentCanonicalSection(functions) if levels.is_empty() => {
                    for function in functions {
                        outline.canonical(function?);
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    fn alias(&mut self, alias: &ComponentAlias<'a>) {
        if let ComponentAlias::CoreInstanceExport {
            kind,
            instance_index,
            name,
        } = *alias
        {
            match kind {
                ExternalKind::Func | ExternalKind::FuncExact => {
                    self.functions.push(Some((instance_index, name)));
                }
                ExternalKind::Memory => self.memories.push(Some((instance_index, name))),
                _ => {}
            }
        }
    }

    fn canonical(&mut self, function: CanonicalFunction) {
        match function {
            CanonicalFunction::Lift {
                core_func_index,
                options,
                ..
            } => self.lifts.push((core_func_index, options)),
            CanonicalFunction::Lower { options, .. } => {
                self.lowers.push(options);
                self.functions.push(None);
            }
            CanonicalFunction::ResourceDrop { .. } => self.functions.push(None),
            _ => self.odd = true,
        }
    }

    /// The index of the module that every call ends up in, if there is one and calls reach it as the core path does.
    fn main_module(&self) -> Option<u32> {
        let module = only(self.modules.iter().map(|exports| exports.contains(&PHASES[0])))?;
        let instance = only(self.instances.iter().map(|of| *of == Some(module)))?;
        let exports = self.modules.get(module as usize)?;
        let ordinary = !self.odd && !exports.iter().any(|name| name.starts_with(OTHER_NAMES));
        let mut lifts = self.lifts.iter();
        let mut lowers = self.lowers.iter();
        let direct = ordinary
            && lifts.all(|(function, options)| self.is_direct(instance, exports, *function, options))
            && lowers.all(|options| self.options_fit(instance, options, None));
        direct.then_some(module)
    }

    /// Whether a function that the component exports is the main module's of the same name, with what belongs to it.
    fn is_direct(&self, main: u32, exports: &[&str], function: u32, options: &[CanonicalOption]) -> bool {
        let Some(Some((instance, name))) = self.functions.get(function as usize) else {
            return false;
        };
        let post_return = format!("cabi_post_{name}");
        let cleans_up = options
            .iter()
            .any(|option| matches!(option, CanonicalOption::PostReturn(_)));
        *instance == main
            && PHASES.contains(name)
            && cleans_up == exports.contains(&post_return.as_str())
            && self.options_fit(main, options, Some(&post_return))
    }

    /// Whether nothing but the main instance's memory, allocation and clean-up takes part in a call.
    fn options_fit(&self, main: u32, options: &[CanonicalOption], post_return: Option<&str>) -> bool {
        let is = |item: Option<&Exported<'_>>, name| item == Some(&Some((main, name)));
        options.iter().all(|option| match *option {
            CanonicalOption::UTF8 => true,
            CanonicalOption::Memory(index) => is(self.memories.get(index as usize), "memory"),
            CanonicalOption::Realloc(index) => is(self.functions.get(index as usize), "cabi_realloc"),
            CanonicalOption::PostReturn(index) => {
                post_return.is_some_and(|name| is(self.functions.get(index as usize), name))
            }
            _ => false,
        })
    }
}

/// The index of the only one that it is true of.
fn only(mut all: impl Iterator<Item = bool>) -> Option<u32> {
    let index = all.by_ref().position(|is| is)?;
    let another = all.any(|is| is);
    u32::try_from(index).ok().filter(|_| !another)
}
