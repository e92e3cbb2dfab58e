//! The Debian system that libraries and programs are taken from: this machine, or one unpacked in a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::elf::{self, Needs, Processor};
use crate::{Failure, output, programs, write};

/// A Debian system.
pub struct System {
    root: PathBuf,
    /// The requirements of the programs to pack.
    pub programs: Needs,
}

/// A package that files were taken from.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl System {
    /// Opens the system in `root`, for the programs that are packed with this one.
    pub fn open(root: &Path, program: &Path) -> Result<System, Failure> {
        Ok(System {
            root: root.to_owned(),
            programs: elf::needs_of_all(&programs::files(program))?,
        })
    }

    /// The processor of the programs.
    pub fn processor(&self) -> Processor {
        self.programs.processor
    }

    /// The path of a file of the system, given by its absolute path there.
    fn path(&self, file: &str) -> PathBuf {
        self.root.join(file.trim_start_matches('/'))
    }

    /// Copies programs, by their absolute paths, with all libraries that they need.
    pub fn copy(&self, programs: &[String], into: &Path) -> Result<(), Failure> {
        let mut left: Vec<String> = programs.to_vec();
        let mut done = BTreeSet::new();
        while let Some(file) = left.pop() {
            if !done.insert(file.clone()) {
                continue;
            }
            let needs = elf::needs(&self.path(&file))?;
            if needs.processor != self.processor() {
                let (is, wanted) = (needs.processor.name(), self.processor().name());
                return Err(format!(
                    "{}: for {is}, and the programs are for {wanted}",
                    self.path(&file).display()
                ));
            }
            self.copy_file(&file, into)?;
            left.extend(self.found(&needs)?);
        }
        Ok(())
    }

    /// Copies what the programs themselves need.
    pub fn copy_libraries(&self, into: &Path) -> Result<(), Failure> {
        self.copy(&self.found(&self.programs)?, into)
    }

    /// Finds the files that are needed, by their absolute paths.
    fn found(&self, needs: &Needs) -> Result<Vec<String>, Failure> {
        let triple = self.processor().libraries();
        let mut files: Vec<String> = needs.linker.iter().cloned().collect();
        for name in &needs.libraries {
            let places = [
                format!("/lib/{triple}/{name}"),
                format!("/usr/lib/{triple}/{name}"),
            ];
            let place = places.into_iter().find(|place| self.path(place).is_file());
            files.push(place.ok_or_else(|| {
                format!(
                    "no library {name} in {}",
                    self.path(&format!("/lib/{triple}")).display()
                )
            })?);
        }
        Ok(files)
    }

    /// Copies a file to the same path, following links.
    pub fn copy_file(&self, file: &str, into: &Path) -> Result<(), Failure> {
        let from = self.path(file);
        let content = fs::read(&from).map_err(|error| {
            format!(
                "{}: {error}; the package that has it is to be installed",
                from.display()
            )
        })?;
        let to = into.join(file.trim_start_matches('/'));
        write(&to, content)?;
        let mode = fs::metadata(&from).and_then(|metadata| fs::set_permissions(&to, metadata.permissions()));
        mode.map_err(|error| format!("{}: {error}", to.display()))
    }

    /// The absolute paths of files in a folder whose names start with one of these prefixes.
    pub fn files(&self, folder: &str, prefixes: &[&str]) -> Result<Vec<String>, Failure> {
        let path = self.path(folder);
        let entries = fs::read_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut files: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
            .map(|name| format!("{folder}/{name}"))
            .collect();
        files.sort();
        Ok(files)
    }

    /// The packages that files belong to, with their copyright files. Files unknown to dpkg are ignored.
    pub fn packages(&self, files: &[String]) -> Result<BTreeMap<Package, String>, Failure> {
        // The folders above may be links on either system.
        let names = files
            .iter()
            .flat_map(|file| [file.clone(), format!("/usr{file}"), file.replacen("/usr", "", 1)]);
        // dpkg fails if any file has no package, but still prints the others.
        let found = self.dpkg("--search").args(names).output();
        let found = found.map_err(|error| format!("cannot run dpkg-query: {error}"))?;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let owners: BTreeSet<&str> = found
            .lines()
            .filter_map(|line| line.split([':', ',']).next())
            .collect();
        if owners.is_empty() {
            return Ok(BTreeMap::new());
        }
        let shown = output(
            self.dpkg("--show")
                .arg("--showformat=${Package} ${Version}\n")
                .args(owners),
        )?;
        let mut packages = BTreeMap::new();
        for line in shown.lines() {
            let (name, version) = line.split_once(' ').unwrap_or((line, ""));
            let copyright = self.path(&format!("/usr/share/doc/{name}/copyright"));
            let copyright = fs::read_to_string(&copyright)
                .map_err(|error| format!("the licence of {name}: {}: {error}", copyright.display()))?;
            let (name, version) = (name.to_owned(), version.to_owned());
            packages.insert(Package { name, version }, copyright);
        }
        Ok(packages)
    }

    fn dpkg(&self, what: &str) -> Command {
        let mut command = Command::new("dpkg-query");
        command
            .arg("--admindir")
            .arg(self.path("/var/lib/dpkg"))
            .arg(what);
        command
    }
}
