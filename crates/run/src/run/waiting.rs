//! `run --wait`: a start with an invalid configuration waits until it is valid.
//!
//! Meanwhile nothing is served or set up, so queries go where they went before: on a node, to the cluster's
//! DNS. If the process exited instead, its supervisor would restart it after ever longer pauses, and keep
//! pausing once the file is right. The errors are logged, and shown under `/ready` of the admin address if
//! the file tells where that is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::time::sleep;

use super::ConfigOrigin;
use crate::admin::{Listener, Reply, Server, StatusCode, text};
use crate::config::{self, Report};
use crate::listen::Port;
use crate::log::REPORT;
use crate::watch::Changes;

/// How often it retries without a notification: files may not be watched, and a registry may be at fault.
const AGAIN: Duration = Duration::from_secs(5);

/// What a start does with an invalid configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistakes {
    /// It ends.
    End,
    /// It waits for a correction.
    Await,
}

/// The longest time between two full starts, which may compile filters and ask registries.
const SELDOM: Duration = Duration::from_secs(300);

/// Remembers the last report.
#[derive(Default)]
pub(super) struct Waiting {
    said: Option<String>,
    /// How long it waits before the next start without a notification.
    pause: Duration,
}

impl Waiting {
    /// Reports what is wrong, and waits until it may be corrected. `changes` watches the files that were read.
    pub async fn correction(
        &mut self,
        origin: &ConfigOrigin,
        report: &Report,
        changes: &mut Changes,
        hangup: &mut Signal,
    ) {
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
        let is_so = || {
            origin
                .load(false, true)
                .is_err_and(|report| report.to_string() == why)
        };
        // Otherwise a filter is at fault, or a registry, which only a full start detects.
        let by_loading = is_so();
        self.pause = match by_loading || is_new {
            true => AGAIN,
            false => (2 * self.pause).min(SELDOM),
        };
        loop {
            tokio::select! {
                () = changes.changed() => return,
                _ = hangup.recv() => break,
                () = sleep(self.pause) => if !by_loading || !is_so() { break },
            }
        }
        // The start reads the files as they are now.
        changes.note();
    }
}

/// Serves the report on the configured admin addresses, as far as they can be read and bound.
fn serve(origin: &ConfigOrigin, why: &str) -> Vec<Server> {
    let addresses = origin.file().map(config::admin_addresses).unwrap_or_default();
    let body: Arc<str> = format!("waiting for a valid configuration\n{why}\n").into();
    let serve = |address: SocketAddr| {
        let body = Arc::clone(&body);
        // An earlier process may keep serving beside us.
        let listener = Listener::bind(address, Port::Shared)
            .inspect_err(|error| tracing::warn!(%address, %error, "cannot report on this address that nothing is served"))
            .ok()?;
        Some(listener.serve(move |path, _| reply(path, &body)))
    };
    addresses.into_iter().filter_map(serve).collect()
}

/// Healthy, but not ready; there is nothing else to see.
fn reply(path: &str, why: &str) -> Reply {
    match path {
        "/health" => text(StatusCode::OK, "ok\n".into()),
        _ => text(StatusCode::SERVICE_UNAVAILABLE, why.to_owned()),
    }
}
