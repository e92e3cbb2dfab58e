//! The parts of WASI that can be granted, identified by interface names.

use wasmtime::component::Component;

use crate::config;

/// The interfaces added to the linker, in the version of wasmtime-wasi; all of 0.2 are compatible.
const THERE: [&str; 20] = [
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:clocks/wall-clock",
    "wasi:clocks/monotonic-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
];

/// Whether an interface is implemented; else its functions trap.
pub(super) fn is_there(interface: &str) -> bool {
    interface
        .split_once('@')
        .is_some_and(|(name, version)| THERE.contains(&name) && version.starts_with("0.2."))
}

/// A part of WASI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The time.
    Clock,
    /// Random numbers.
    Random,
    /// The environment.
    Environment,
    /// Folders.
    Folder,
    /// Available to every filter: streams, polling, terminals, exit.
    Rest,
    /// Not implemented: every call traps.
    Absent,
}

impl Part {
    /// The part that a WASI interface belongs to.
    pub(in crate::filter) fn of(interface: &str) -> Part {
        let name = interface.split('@').next().unwrap_or_default();
        match name {
            _ if !is_there(interface) => Part::Absent,
            "wasi:clocks/wall-clock" | "wasi:clocks/monotonic-clock" => Part::Clock,
            "wasi:random/random" | "wasi:random/insecure" | "wasi:random/insecure-seed" => Part::Random,
            "wasi:cli/environment" => Part::Environment,
            "wasi:filesystem/types" | "wasi:filesystem/preopens" => Part::Folder,
            _ => Part::Rest,
        }
    }

    /// What a filter gets without the grant, and how to grant it; none: it lacks nothing.
    pub fn without(self) -> Option<&'static str> {
        match self {
            Part::Clock => Some("the clock only counts its readings; `wasi { clock }` grants the time"),
            Part::Random => Some("the random numbers are always the same; `wasi { random }` grants others"),
            Part::Environment => Some("the environment is empty; `wasi { env \"NAME\" }` grants variables"),
            Part::Folder => {
                Some("there are no folders; `wasi { folder \"PATH\" }` grants some to `configure`")
            }
            Part::Rest => None,
            Part::Absent => Some("calling it is a trap"),
        }
    }

    fn is_granted(self, grants: &config::Wasi) -> bool {
        match self {
            Part::Clock => grants.clock,
            Part::Random => grants.random,
            Part::Environment => !grants.env.is_empty(),
            Part::Folder => !grants.folders.is_empty(),
            Part::Rest => true,
            Part::Absent => false,
        }
    }
}

/// Describes the WASI imports of a component that are not granted, each with what it gets instead.
pub(in crate::filter) fn not_granted(component: &Component, grants: &config::Wasi) -> Vec<String> {
    let ty = component.component_type();
    let mut notes: Vec<(Part, Vec<String>)> = Vec::new();
    for (name, _) in ty.imports(component.engine()) {
        let part = Part::of(name);
        if !name.starts_with("wasi:") || part.is_granted(grants) {
            continue;
        }
        let name = crate::filter::text::one_line(name, 256);
        match notes.iter_mut().find(|(known, _)| *known == part) {
            Some((_, names)) => names.push(name),
            None => notes.push((part, vec![name])),
        }
    }
    let note = |(part, names): (Part, Vec<String>)| {
        let without = part.without().unwrap_or_default();
        format!("imports {}: {without}", names.join(", "))
    };
    notes.into_iter().map(note).collect()
}
