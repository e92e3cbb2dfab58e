//! `dnsweir check`: everything that a start does before it takes effect.

use std::path::Path;

use super::descriptors::Descriptors;
use super::{Stop, ceiling, engine, folder, load_whole, machine};
use crate::ceiling::memory_limit;
use crate::config::{self, Config, Module, SourceConfig};
use crate::filter;
use crate::private_folder::PrivateFolder;
use crate::serve::generation::Generation;

/// Loads a configuration and compiles its filters, without changing anything. Returns notes for the operator.
/// The folder is that of [`load_whole`].
pub fn check(file: &Path, compiled: Option<&Path>) -> Result<Vec<String>, Stop> {
    let (config, folder) = load_whole(file, compiled)?;
    check_loaded(config, folder)
}

/// The same for text that names only built-in modules. `name` stands for the file in errors.
pub fn check_text(name: &str, text: &str) -> Result<Vec<String>, Stop> {
    let config = config::parse(name, text, Path::new("/"), filter::BUILTINS)?;
    check_loaded(config, folder(None)?)
}

fn check_loaded(config: Config, folder: Option<PrivateFolder>) -> Result<Vec<String>, Stop> {
    let engine = engine(folder.as_ref())?;
    let generation = Generation::build(0, config, &engine, None, None)?;
    let notes = generation.filters.iter().flat_map(|loaded| {
        let filter = &loaded.filter;
        let note = |what: &String| format!("filter {:?} {what}", filter.name());
        filter.notes().iter().map(note)
    });
    let granted = generation.config.filters.iter().filter_map(|filter| {
        let words = filter.wasi.words();
        (!words.is_empty()).then(|| {
            format!(
                "filter {:?} may use these parts of WASI: {}",
                filter.name,
                words.join(", ")
            )
        })
    });
    let delivered = generation.config.filters.iter().filter_map(|filter| {
        let artifact = filter.artifact.as_ref()?;
        let signer = artifact.signer.as_ref();
        let signer = signer.map_or("no signature required".to_owned(), |signer| {
            let name = &signer.name;
            // A digest in the configuration pins the artifact.
            match (&filter.module, signer.says_repository) {
                (Module::Artifact(reference), false) if reference.is_movable() => format!(
                    "signed with {name:?}; the signature names no repository: everything that {name:?} has signed is accepted under \
                     this name, unless the digest is written"
                ),
                _ => format!("signed with {name:?}"),
            }
        });
        Some(format!(
            "filter {:?} is {}, {signer}",
            filter.name, artifact.digest
        ))
    });
    let open = generation.config.sources().filter_map(|source| match source {
        SourceConfig::ServiceEntries(entries) if entries.namespaces.is_empty() => Some(
            "`service-entries` takes objects of every namespace: anyone who may write a ServiceEntry in one of them can answer \
             any client's queries. Restrict it: namespaces \"istio-system\""
                .to_owned(),
        ),
        _ => None,
    });
    let workers = generation.config.workers;
    let descriptors = Descriptors::of_process(&generation.config, workers).map_err(machine)?;
    let memory = ceiling(&generation, workers, descriptors).beyond(memory_limit());
    let unusable = generation.config.unusable.iter().cloned().chain(memory);
    let notes = notes.chain(granted).chain(delivered);
    Ok(notes.chain(open).chain(unusable).collect())
}
