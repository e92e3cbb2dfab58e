//! How the API server is reached: by a kubeconfig, or by the service account of the pod.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig as File};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::Kubeconfig;

/// Where the kubelet puts the authority that the API server's certificate is of.
const AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// How long until connecting is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// A connection that is silent for so long is dead: the API server says something every minute.
const SILENCE: Duration = Duration::from_secs(150);

/// Has `follow` go on with a client until it is done, anew whenever a failure finds other credentials. `failed` is told why
/// there is no client.
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

/// Waits until a failure finds other credentials than those.
async fn changed(kubeconfig: Option<&Kubeconfig>, failure: &Notify, credentials: u64) {
    loop {
        failure.notified().await;
        if fingerprint(kubeconfig) != credentials {
            return;
        }
    }
}

/// A client of the API server, as the configuration has it.
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
    // When to try again is decided here, for all kinds of failures.
    config.default_retry = false;
    dnsweir_config::tls::install_provider();
    Client::try_from(config).map_err(|error| error.to_string())
}

/// Stands for what is in a kubeconfig and the files that it names, or for whom a service account trusts. Its token is read again by
/// the client.
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
