//! Connects to the API server, with a kubeconfig or the pod's service account.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig as File};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::Kubeconfig;

/// The CA certificate of the API server, which the kubelet puts there.
const AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// How long to wait before connecting again.
const PAUSE: Duration = Duration::from_secs(1);

/// A connection that is silent for this long is dead: the API server sends something every minute.
const SILENCE: Duration = Duration::from_secs(150);

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
        let client = match connect(kubeconfig).await {
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

/// Creates a client from the configuration.
async fn connect(kubeconfig: Option<&Kubeconfig>) -> Result<Client, String> {
    let mut config = match kubeconfig {
        None => kube::Config::incluster().map_err(|error| format!("there is no service account: {error}"))?,
        Some(kubeconfig) => {
            let path = kubeconfig.path.display();
            let file = File::read_from(&kubeconfig.path).map_err(|error| format!("{path}: {error}"))?;
            let options = KubeConfigOptions {
                context: kubeconfig.context.clone(),
                ..KubeConfigOptions::default()
            };
            let config = kube::Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(|error| format!("{path}: {error}"))?
        }
    };
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    // The reflector decides when to retry, for all kinds of failures.
    config.default_retry = false;
    dnsweir_config::tls::install_provider();
    Client::try_from(config).map_err(|error| error.to_string())
}

/// A hash of a kubeconfig and the files it names, or of the service account's CA. The client itself rereads
/// the account's token.
fn fingerprint(kubeconfig: Option<&Kubeconfig>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Some(kubeconfig) = kubeconfig else {
        std::fs::read(AUTHORITY).ok().hash(&mut hasher);
        return hasher.finish();
    };
    std::fs::read(&kubeconfig.path).ok().hash(&mut hasher);
    if let Ok(file) = File::read_from(&kubeconfig.path) {
        let clusters = file.clusters.into_iter().filter_map(|named| named.cluster);
        let authorities = clusters.filter_map(|cluster| cluster.certificate_authority);
        let users = file.auth_infos.into_iter().filter_map(|named| named.auth_info);
        let certificates = users
            .flat_map(|user| [user.client_certificate, user.client_key])
            .flatten();
        for path in authorities.chain(certificates) {
            std::fs::read(path).ok().hash(&mut hasher);
        }
    }
    hasher.finish()
}
