//! `dnsweir dev`: the proxy, with its filters rebuilt on change and every query shown.
//!
//! Two independent parts run in one process. A thread builds a filter with cargo whenever its source changes;
//! the proxy, run as by `dnsweir run`, reloads changed modules. The module's file is their only connection,
//! so what is seen here is what happens in production, including swaps and refusals.

mod package;
mod view;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tokio::runtime;
use tokio::sync::mpsc::{Receiver, channel};

use super::{Stop, test};
use crate::config;
use crate::run::{self, ConfigOrigin, End, Spectators};
use package::{Built, Package};
use view::View;
use watch::Watch;

/// Serves the configuration until it is stopped. `sources` are the packages of modules outside their
/// package's own target folder; `compiled` is the folder of [`run::load_whole`].
///
/// # Errors
/// When there is no configuration, or the machine prevents the proxy from running.
pub fn dev(file: &Path, sources: &[PathBuf], compiled: Option<&Path>) -> Result<(), Stop> {
    let view = Arc::new(View::new());
    let file = std::path::absolute(file).map_err(|error| Stop::Machine(error.to_string()))?;
    let packages = packages(&file, sources)?;
    // Report such problems before waiting for a build.
    match run::try_addresses(&file) {
        Err(run::Stop::Machine(error)) => return Err(Stop::Machine(error)),
        // Mistakes in the configuration are reported when it is served.
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
    compare(&file, compiled, &view);
    let building = keep_building(packages, watch, &file, compiled, &view);
    let mut changes = building.map_err(Stop::Machine)?;
    let machine = |error: std::io::Error| Stop::Machine(error.to_string());
    let waiting = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(machine)?;
    // After the proxy has run once, signals no longer end the process by default.
    let mut end = waiting.block_on(async { End::new() }).map_err(machine)?;
    loop {
        // A later change may be missed by this start, and then triggers the next one.
        let _ = changes.try_recv();
        match serve(&file, compiled, &view) {
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

/// Builds packages in a separate thread whenever they change. The receiver is notified after each change,
/// once what is built from it is in place.
fn keep_building(
    packages: Vec<Package>,
    mut watch: Watch,
    file: &Path,
    compiled: Option<&Path>,
    view: &Arc<View>,
) -> Result<Receiver<()>, String> {
    let (changed, changes) = channel(1);
    let (view, file) = (Arc::clone(view), file.to_owned());
    let compiled = compiled.map(Path::to_owned);
    let builder = thread::Builder::new().name("builder".into()).spawn(move || {
        loop {
            let concerned = watch.changed_packages(&packages);
            if !concerned.is_empty() {
                view.saved();
            }
            let built: Vec<Built> = concerned.iter().map(|package| package.build(&view)).collect();
            // If it is full, an earlier notification is still pending.
            let _ = changed.try_send(());
            if built.contains(&Built::Changed) {
                // Show the swap before the test results.
                view.await_swap();
            }
            view.settled();
            if built.contains(&Built::Changed) || built.is_empty() {
                compare(&file, compiled.as_deref(), &view);
            }
        }
    });
    builder
        .map(|_| changes)
        .map_err(|error| format!("sources cannot be built: {error}"))
}

/// Runs the proxy, and shows what it does.
fn serve(file: &Path, compiled: Option<&Path>, view: &Arc<View>) -> Result<(), run::Stop> {
    let (queries, generations) = (Arc::clone(view), Arc::clone(view));
    run::run(
        ConfigOrigin::File(file.to_owned()),
        run::Places {
            compiled: compiled.map(Path::to_owned),
            ..run::Places::default()
        },
        run::Mistakes::End,
        Spectators {
            queries: Some(Box::new(move |told| queries.query(told))),
            generations: Some(Box::new(move |generation| match generation {
                Ok(generation) => generations.swapped(generation),
                Err(stop) => generations.refused(&stop.to_string()),
            })),
            // The author is about to change the expected results.
            without_test_cases: true,
        },
    )
}

/// Shows test cases that differ or are invalid. Mistakes in the configuration itself are shown by `serve`.
fn compare(file: &Path, compiled: Option<&Path>, view: &View) {
    match test::of_configuration(file, compiled) {
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

/// The packages of the modules that the configuration names.
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
