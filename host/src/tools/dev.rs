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

use tokio::runtime;
use tokio::sync::mpsc::{Receiver, channel};

use super::{Stop, test};
use crate::config;
use crate::run::{self, ConfigOrigin, End, Spectators};
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
    // What stands in the way is said before anybody waits for a build.
    match run::try_addresses(&file) {
        Err(run::Stop::Machine(error)) => return Err(Stop::Machine(error)),
        // What is wrong with the configuration is told when it is served.
        Err(run::Stop::Configuration(_)) | Ok(()) => {}
    }
    for package in &packages {
        package.check_tools().map_err(Stop::Machine)?;
    }
    let mut watch = Watch::start(&packages, &file).map_err(Stop::Machine)?;
    for package in &packages {
        while package.build(&view) == Built::Failed {
            view.note("waiting for the source to change");
            watch.changed();
        }
    }
    compare(&file, &view);
    let mut changes = keep_building(packages, watch, &file, &view).map_err(Stop::Machine)?;
    let machine = |error: std::io::Error| Stop::Machine(error.to_string());
    let waiting = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(machine)?;
    // Whoever has run the proxy once is not ended by a signal any more.
    let mut end = waiting.block_on(async { End::new() }).map_err(machine)?;
    loop {
        // What changes from here on may come too late for this start, and is then a reason for the next one.
        let _ = changes.try_recv();
        match serve(&file, &view) {
            Err(run::Stop::Configuration(report)) => {
                view.failed("the configuration is not valid", &report.render(view.colour));
                view.settled();
                view.note("waiting for a change");
                let changed = waiting.block_on(async {
                    tokio::select! {
                        changed = changes.recv() => Some(changed),
                        () = end.come() => None,
                    }
                });
                match changed {
                    Some(Some(())) => {}
                    Some(None) => return Err(Stop::Machine("the thread that builds has ended".into())),
                    None => return Ok(()),
                }
            }
            Err(run::Stop::Machine(error)) => return Err(Stop::Machine(error)),
            Ok(()) => return Ok(()),
        }
    }
}

/// Builds packages whenever they change, in a thread of its own. What is received says that something has
/// changed since the last time, and that what is built of it lies in its place.
fn keep_building(
    packages: Vec<Package>,
    mut watch: Watch,
    file: &Path,
    view: &Arc<View>,
) -> Result<Receiver<()>, String> {
    let (changed, changes) = channel(1);
    let (view, file) = (Arc::clone(view), file.to_owned());
    let builder = thread::Builder::new().name("builder".into()).spawn(move || {
        loop {
            let concerned = watch.changed_packages(&packages);
            if !concerned.is_empty() {
                view.saved();
            }
            let built: Vec<Built> = concerned.iter().map(|package| package.build(&view)).collect();
            // If it is full, the same has been said and not been heard yet.
            let _ = changed.try_send(());
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
    builder
        .map(|_| changes)
        .map_err(|error| format!("sources cannot be built: {error}"))
}

/// Runs the proxy, and shows what it does.
fn serve(file: &Path, view: &Arc<View>) -> Result<(), run::Stop> {
    let (queries, generations) = (Arc::clone(view), Arc::clone(view));
    run::run(
        ConfigOrigin::File(file.to_owned()),
        run::Places::default(),
        run::Mistakes::End,
        Spectators {
            queries: Some(Box::new(move |told| queries.query(told))),
            generations: Some(Box::new(move |generation| match generation {
                Ok(generation) => generations.swapped(generation),
                Err(stop) => generations.refused(&stop.to_string()),
            })),
            // Its author is about to change what it says.
            without_test_cases: true,
        },
    )
}

/// Shows which test cases differ or are not valid. What is wrong with the configuration is shown by who serves it.
fn compare(file: &Path, view: &View) {
    match test::of_configuration(file) {
        Ok(tested) if !tested.unchanged => {
            let title = "test cases differ: production would refuse this module";
            view.failed(title, &tested.report);
        }
        Ok(tested) if tested.suspicious => {
            view.failed(
                "a verdict that may be remembered is for one client alone",
                &tested.report,
            );
        }
        Err(Stop::File(report)) if Path::new(report.source().name()) != file => {
            view.failed("test cases are not valid", &report.render(view.colour));
        }
        Ok(_) | Err(_) => {}
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
