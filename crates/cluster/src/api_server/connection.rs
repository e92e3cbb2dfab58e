//! Keeps a client of the API server, with a kubeconfig or the pod's service account.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::access::authority_of_pod;
use super::client::Client;
use super::kubeconfig::File;
use crate::config::Kubeconfig;

/// How long to wait before connecting again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs `follow` with a client until it is done; restarts it with a new client if the credentials have
/// changed after a failure. Calls `failed` with the reason why there is no client.
pub(crate) async fn keep_connected(
    kubeconfig: Option<&Kubeconfig>,
    failure: &Notify,
    failed: impl Fn(&str),
    mut follow: impl AsyncFnMut(Client),
) {
    loop {
        let credentials = fingerprint(kubeconfig);
        let client = match Client::connect(kubeconfig).await {
            Ok(client) => client,
            Err(problem) => {
                failed(&problem);
                sleep(PAUSE).await;
                continue;
            }
        };
        tokio::select! {
            () = follow(client) => return,
            () = changed(kubeconfig, failure, credentials) => {
                tracing::info!("kubernetes: the credentials have changed, connecting again");
            }
        }
    }
}

/// Waits until a failure occurs and the credentials differ from these.
async fn changed(kubeconfig: Option<&Kubeconfig>, failure: &Notify, credentials: u64) {
    loop {
        failure.notified().await;
        if fingerprint(kubeconfig) != credentials {
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
