//! `run --wait`: a start whose configuration is wrong waits until it is right.
//!
//! Nothing is served and nothing set up meanwhile, so that queries go where they went before: on a node to the cluster's DNS. A process that ended would be
//! started again and again by whoever looks after it, each time after a longer pause, and go on pausing when the file is right. What is
//! wrong is said in the log, and under `/ready` of the admin address, as far as the file says where that is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::ConfigOrigin;
use crate::admin::{Listener, Reply, Server, StatusCode, text};
use crate::config::{self, Report};
use crate::listen::Port;
use crate::log::REPORT;
use crate::watch::Changes;

/// How often it is tried without being told of a change: what a file includes may be on no way that is watched.
const AGAIN: Duration = Duration::from_secs(5);

/// What becomes of a start whose configuration is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistakes {
    /// It ends.
    End,
    /// It waits until they are corrected.
    Await,
}

/// What was said last.
#[derive(Default)]
pub(super) struct Waiting {
    said: Option<String>,
}

impl Waiting {
    /// Says what is wrong, and waits until it may be corrected.
    pub async fn correction(&mut self, origin: &ConfigOrigin, report: &Report, changes: &mut Changes) {
        let why = report.to_string();
        let is_new = self.said.as_ref() != Some(&why);
        if is_new {
            tracing::error!(
                name: REPORT,
                "nothing is served until the configuration is valid, and the node's network is left as it is:\n{why}"
            );
            self.said = Some(why.clone());
        }
        let _served = serve(origin, &why);
        let files: Vec<PathBuf> = origin.file().map(PathBuf::from).into_iter().collect();
        changes.watch(&files);
        let is_so = || {
            origin
                .load(false, true)
                .is_err_and(|report| report.to_string() == why)
        };
        let by_loading = is_so();
        // It was corrected before it was watched, or it is a filter's mistake, which is seen only by a start.
        if !by_loading && is_new {
            return;
        }
        loop {
            tokio::select! {
                () = changes.changed() => return,
                () = sleep(AGAIN) => if by_loading && !is_so() { return },
            }
        }
    }
}

/// Serves what the configuration says of its admin addresses, as far as it can be read and they can be had.
fn serve(origin: &ConfigOrigin, why: &str) -> Vec<Server> {
    let addresses = origin.file().map(config::admin_addresses).unwrap_or_default();
    let body: Arc<str> = format!("waiting for a valid configuration\n{why}\n").into();
    let serve = |address: SocketAddr| {
        let body = Arc::clone(&body);
        // A process that ran before goes on beside us.
        let listener = Listener::bind(address, Port::Shared)
            .inspect_err(|error| tracing::warn!(%address, %error, "cannot report on this address that nothing is served"))
            .ok()?;
        Some(listener.serve(move |path, _| reply(path, &body)))
    };
    addresses.into_iter().filter_map(serve).collect()
}

/// It is well, and not ready; that is all that there is to see.
fn reply(path: &str, why: &str) -> Reply {
    match path {
        "/health" => text(StatusCode::OK, "ok\n".into()),
        _ => text(StatusCode::SERVICE_UNAVAILABLE, why.to_owned()),
    }
}
