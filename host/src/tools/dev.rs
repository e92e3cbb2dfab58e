//! `dnsweir dev`: the proxy, with the sources of its filters watched and everything shown.
//!
//! Two things go on in one process and know nothing of each other. A thread builds a filter with cargo whenever
//! its source changes; the proxy, as `dnsweir run` runs it, takes over modules that have changed. Between
//! them lies the module's file. So what is seen here is what production does, swap and refusals included.

mod package;
mod view;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use super::{Stop, questions};
use crate::config;
use crate::run::{self, Spectators};
use package::{Built, Package, Watch};
use view::View;

/// Serves the configuration until it is told to stop. `sources` are packages of modules that do not lie in
/// their package's own target folder.
///
/// # Errors
/// When there is no configuration, or the machine does not let the proxy run.
pub fn dev(file: &Path, sources: &[PathBuf]) -> Result<(), Stop> {
    let view = Arc::new(View::new());
    let file = std::path::absolute(file).map_err(|error| Stop::Machine(error.to_string()))?;
    let packages = packages(&file, sources)?;
    let mut watch = Watch::start(&packages, &file).map_err(Stop::Machine)?;
    for package in &packages {
        while package.build(&view) == Built::Failed {
            view.note("waiting for the source to change");
            watch.changed();
        }
    }
    let packages = Arc::new(packages);
    loop {
        let running = serve(&file, &view, &packages, watch);
        match running {
            Err(run::Stop::Configuration(report)) => {
                view.failed("the configuration is not valid", &report.render(view.colour));
                view.note("waiting for a change");
                watch = Watch::start(&packages, &file).map_err(Stop::Machine)?;
                for package in watch.changed_packages(&packages) {
                    package.build(&view);
                }
            }
            Err(run::Stop::Machine(error)) => return Err(Stop::Machine(error)),
            Ok(()) => return Ok(()),
        }
    }
}

/// Runs the proxy, and beside it the thread that builds.
fn serve(
    file: &Path,
    view: &Arc<View>,
    packages: &Arc<Vec<Package>>,
    mut watch: Watch,
) -> Result<(), run::Stop> {
    if !packages.is_empty() {
        let (packages, view, file) = (Arc::clone(packages), Arc::clone(view), file.to_owned());
        let built = thread::Builder::new().name("builder".into()).spawn(move || {
            loop {
                let changed = watch.changed_packages(&packages);
                if !changed.is_empty() {
                    view.saved();
                }
                let built: Vec<Built> = changed.iter().map(|package| package.build(&view)).collect();
                if built.contains(&Built::Changed) {
                    // First the answers, then what there is to say about them.
                    view.await_swap();
                }
                view.settled();
                if built.contains(&Built::Changed) || built.is_empty() {
                    compare(&file, &view);
                }
            }
        });
        built.map_err(|error| run::Stop::Machine(error.to_string()))?;
    }
    compare(file, view);
    let (queries, generations) = (Arc::clone(view), Arc::clone(view));
    run::run(
        Some(file.to_owned()),
        None,
        Spectators {
            queries: Some(Box::new(move |told| queries.query(told))),
            generations: Some(Box::new(move |generation| match generation {
                Ok(generation) => generations.swapped(generation),
                Err(stop) => generations.refused(&stop.to_string()),
            })),
            // Its author is about to change what it says.
            whatever_was_recorded: true,
        },
    )
}

/// Shows what filters say otherwise than was recorded. What is wrong with the files themselves is shown by who
/// serves them.
fn compare(file: &Path, view: &View) {
    if let Ok((report, false)) = questions::of_configuration(file) {
        view.failed(
            "recorded questions are answered otherwise, which production would refuse",
            &report,
        );
    }
}

/// The packages whose modules the configuration names.
fn packages(file: &Path, sources: &[PathBuf]) -> Result<Vec<Package>, Stop> {
    let modules = config::modules(file)?;
    let mut packages: Vec<Package> = Vec::new();
    let found = modules.iter().filter_map(|module| Package::of_module(module));
    let named = sources.iter().map(|folder| Package::in_folder(folder));
    for package in found.map(Ok).chain(named) {
        let package = package.map_err(Stop::Refused)?;
        if !packages.iter().any(|known| known.is(&package)) {
            packages.push(package);
        }
    }
    for package in &mut packages {
        package.feeds(&modules);
    }
    Ok(packages)
}
