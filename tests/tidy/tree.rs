//! A crate as the compiler sees it: its modules, and which file uses which names of which other file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::paths::{Mention, Paths};
use crate::source::{parse, relative, root};

/// The path of a module, from the crate root.
pub type Module = Vec<String>;

/// A file of the crate.
pub struct File {
    pub path: PathBuf,
    module: Module,
    pub paths: Paths,
}

/// A crate without its test code.
pub struct Tree {
    pub files: Vec<File>,
    /// Which file contains each module.
    modules: BTreeMap<Module, usize>,
    /// The names that `use` brings into each module, and the paths they stand for.
    names: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

/// A use in one file of an item in another.
pub struct Use {
    pub from: usize,
    pub to: usize,
    /// The path, as written in the first file.
    pub path: String,
}

/// What a path resolves to.
enum Target {
    Module(Module),
    /// An item in this module.
    Item(Module),
}

impl Tree {
    /// Reads the crate whose root is this file.
    pub fn read(first: &str) -> Tree {
        let mut tree = Tree {
            files: Vec::new(),
            modules: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        tree.add(&root().join(first), Vec::new());
        for file in &tree.files {
            for binding in &file.paths.bindings {
                let module = [&file.module[..], &binding.mention.module].concat();
                let names = tree.names.entry(module).or_default();
                names.insert(binding.name.clone(), binding.mention.path.clone());
            }
        }
        tree
    }

    fn add(&mut self, path: &Path, module: Module) {
        let paths = Paths::of(&parse(path));
        let number = self.files.len();
        self.modules.insert(module.clone(), number);
        for inline in &paths.inline {
            self.modules.insert([&module[..], inline].concat(), number);
        }
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let mut folder = path.parent().unwrap_or(path).to_owned();
        if !["mod", "lib", "main"].contains(&stem) {
            folder.push(stem);
        }
        let declared = paths.declared.clone();
        self.files.push(File {
            path: path.to_owned(),
            module: module.clone(),
            paths,
        });
        for child in declared {
            let place = folder.join(child.iter().collect::<PathBuf>());
            let candidates = [place.with_extension("rs"), place.join("mod.rs")];
            let found = candidates.iter().find(|path| path.is_file());
            let found = found.unwrap_or_else(|| panic!("{} is nowhere", place.display()));
            self.add(found, [&module[..], &child].concat());
        }
    }

    /// Returns every use of one file's items in another file. A re-export is not a use, and a name that a
    /// parent re-exports belongs to the child.
    pub fn uses(&self) -> Vec<Use> {
        let mut uses = Vec::new();
        for (from, file) in self.files.iter().enumerate() {
            let bindings = file.paths.bindings.iter();
            let imports = bindings
                .filter(|binding| !binding.exported)
                .map(|binding| &binding.mention);
            for mention in imports.chain(&file.paths.mentions) {
                let Some(Target::Item(module)) = self.target(file, mention) else {
                    continue;
                };
                let to = self.modules[&module];
                if to != from {
                    uses.push(Use {
                        from,
                        to,
                        path: mention.path.join("::"),
                    });
                }
            }
        }
        uses
    }

    fn target(&self, file: &File, mention: &Mention) -> Option<Target> {
        let from = [&file.module[..], &mention.module].concat();
        self.resolve(&from, &mention.path, 8)
    }

    /// Resolves `path` from `module`; `None` if it leaves the crate or is local. Re-exports of re-exports are
    /// followed up to `times` levels.
    fn resolve(&self, module: &[String], path: &[String], times: u8) -> Option<Target> {
        let times = times.checked_sub(1)?;
        let (mut at, mut rest) = (module.to_vec(), path);
        let mut anchored = false;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()?),
                _ => break,
            }
            (anchored, rest) = (true, after);
        }
        while let Some((first, after)) = rest.split_first() {
            let child = [&at[..], std::slice::from_ref(first)].concat();
            let bound = self.names.get(&at).and_then(|names| names.get(first));
            // A module and a function may share a name: at the end of a path it means the function.
            if self.modules.contains_key(&child) && !(after.is_empty() && bound.is_some()) {
                at = child;
            } else if let Some(bound) = bound {
                match self.resolve(&at, bound, times)? {
                    Target::Module(module) => at = module,
                    item @ Target::Item(_) => return Some(item),
                }
            } else {
                return anchored.then_some(Target::Item(at));
            }
            (anchored, rest) = (true, after);
        }
        Some(Target::Module(at))
    }

    /// Returns the file's name for messages.
    pub fn name(&self, file: usize) -> String {
        relative(&self.files[file].path)
    }
}
