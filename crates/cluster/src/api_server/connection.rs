//! Keeps a client of the API server, with a kubeconfig or the pod's service account.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;

use super::access::authority_of_pod;
use super::client::{Client, Server};
use super::kubeconfig::File;
use crate::config::Kubeconfig;

/// How long to wait before connecting again, and how long at most, when the new credentials do not serve either.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Runs `follow` with a client until it is done. After a failure, restarts it with a new client if the
/// credentials have changed or are spent; its second argument says whether that one asks another server, to
/// which the versions of the one before mean nothing. Calls `failed` with the reason why there is no client.
pub(crate) async fn keep_connected(
    kubeconfig: Option<&Kubeconfig>,
    failure: &Notify,
    failed: impl Fn(&str),
    mut follow: impl AsyncFnMut(Client, bool),
) {
    let mut before: Option<Server> = None;
    let mut pause = PAUSE;
    loop {
        let begun = Instant::now();
        let credentials = fingerprint(kubeconfig);
        let client = match Client::connect(kubeconfig).await {
            Ok(client) => client,
            Err(problem) => {
                failed(&problem);
                sleep(PAUSE).await;
                continue;
            }
        };
        let server = client.server().clone();
        let is_other = before.is_some_and(|before| before != server);
        before = Some(server);
        tokio::select! {
            () = follow(client.clone(), is_other) => return,
            () = changed(kubeconfig, failure, credentials, &client, pause) => {}
        }
        pause = match begun.elapsed() > 2 * LONGEST {
            true => PAUSE,
            false => (2 * pause).min(LONGEST),
        };
    }
}

/// Waits until a failure occurs after which another client is needed; after one of a certificate, also for
/// `pause`, since what the program prints next may be refused just as well.
async fn changed(
    kubeconfig: Option<&Kubeconfig>,
    failure: &Notify,
    credentials: u64,
    client: &Client,
    pause: Duration,
) {
    loop {
        failure.notified().await;
        if fingerprint(kubeconfig) != credentials {
            tracing::info!("kubernetes: the credentials have changed, connecting again");
            return;
        }
        if client.is_spent() {
            tracing::info!("kubernetes: the client certificate expires or is refused, connecting again");
            sleep(pause).await;
            return;
        }
    }
}

/// A hash of a kubeconfig and the files it names, or of the service account's CA. The client itself rereads
/// tokens.
fn fingerprint(kubeconfig: Option<&Kubeconfig>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Some(kubeconfig) = kubeconfig else {
        std::fs::read(authority_of_pod()).ok().hash(&mut hasher);
        return hasher.finish();
    };
    std::fs::read(&kubeconfig.path).ok().hash(&mut hasher);
    if let Ok(file) = File::read(&kubeconfig.path) {
        let folder = kubeconfig.path.parent().unwrap_or(Path::new("."));
        for path in file.named() {
            std::fs::read(folder.join(path)).ok().hash(&mut hasher);
        }
    }
    hasher.finish()
}
