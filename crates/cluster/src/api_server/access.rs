//! Where an API server is, how it is verified, and as whom to ask it.

use std::path::Path;

use hyper::Uri;
use parking_lot::Mutex;
use serde_json::json;

use super::credentials::{Cached, Credentials, Lease};
use super::kubeconfig::{self, File, Pem, User};
use super::plugin::Plugin;
use crate::config::Kubeconfig;
use dnsweir_config::tls::{Authorities, Identity, Trust};

/// Where the kubelet puts a pod's service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// All of it.
pub(super) struct Access {
    pub server: Uri,
    pub trust: Trust,
    /// The name in the server's certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
    pub credentials: Credentials,
    /// How long a client certificate serves that a program printed.
    pub lease: Option<Lease>,
    pub namespace: String,
}

/// The CA certificate of the API server in a pod.
pub(super) fn authority_of_pod() -> std::path::PathBuf {
    Path::new(ACCOUNT).join("ca.crt")
}

impl Access {
    /// That of the pod's service account.
    pub(super) fn of_pod() -> Result<Access, String> {
        let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
        let (host, port) = (
            variable("KUBERNETES_SERVICE_HOST")?,
            variable("KUBERNETES_SERVICE_PORT")?,
        );
        // An IPv6 address in a URL is in brackets.
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host,
        };
        let read = |name: &str| {
            let path = Path::new(ACCOUNT).join(name);
            std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let authority = Authorities::from_pem(&read("ca.crt")?);
        let token = Path::new(ACCOUNT).join("token");
        read("token")?;
        Ok(Access {
            server: parsed(&format!("https://{host}:{port}"))?,
            trust: Trust {
                authorities: Some(authority.map_err(|problem| format!("{ACCOUNT}/ca.crt {problem}"))?),
                ..Trust::default()
            },
            server_name: None,
            credentials: Credentials::File(token, Mutex::default()),
            lease: None,
            namespace: String::from_utf8_lossy(&read("namespace")?).into_owned(),
        })
    }

    /// That of a kubeconfig's context.
    pub(super) async fn of_kubeconfig(kubeconfig: &Kubeconfig) -> Result<Access, String> {
        let folder = kubeconfig.path.parent().unwrap_or(Path::new("."));
        let file = File::read(&kubeconfig.path)?;
        let (context, cluster, user) = file.chosen(kubeconfig.context.as_deref())?;
        refuse(&cluster, &user)?;
        if cluster.insecure_skip_tls_verify {
            tracing::warn!(
                server = cluster.server,
                "kubernetes: the API server's certificate is not verified, as insecure-skip-tls-verify says"
            );
        }
        let authorities = cluster.authorities(folder)?;
        let described = json!({
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "certificate-authority-data": authorities.as_ref().map(|pem| encoded(pem)),
        });
        let authorities = authorities.map(|pem| Authorities::from_pem(&pem)).transpose();
        let mut certificate = user.certificate(folder)?;
        let (mut is_printed, mut expires) = (false, None);
        let credentials = match credentials(user, folder, described)? {
            Credentials::Plugin(plugin, _) => {
                let printed = plugin.run().await?;
                (is_printed, expires) = (printed.certificate.is_some(), printed.expires);
                certificate = printed.certificate.or(certificate);
                match printed.token {
                    Some(token) => {
                        let cached = Cached::of(&token, expires)?;
                        Credentials::Plugin(plugin, Mutex::new(Some(cached)))
                    }
                    None => Credentials::None,
                }
            }
            other => other,
        };
        let identity = certificate.map(|pem| identity(&pem)).transpose()?;
        let not_after = identity.as_ref().and_then(|identity| identity.expires);
        Ok(Access {
            server: parsed(&cluster.server)?,
            trust: Trust {
                authorities: authorities.map_err(|problem| format!("certificate-authority {problem}"))?,
                identity,
                unverified: cluster.insecure_skip_tls_verify,
                ..Trust::default()
            },
            server_name: cluster.tls_server_name,
            credentials,
            lease: is_printed.then(|| Lease::new(expires, not_after)),
            namespace: context.namespace.unwrap_or_else(|| "default".into()),
        })
    }
}

/// A client certificate with its key.
fn identity(pem: &Pem) -> Result<Identity, String> {
    let read = Identity::from_pem(&pem.certificate, &pem.key);
    read.map_err(|(is_key, problem)| match is_key {
        true => format!("client-key {problem}"),
        false => format!("client-certificate {problem}"),
    })
}

/// What would be ignored otherwise, and matters.
fn refuse(cluster: &kubeconfig::Cluster, user: &User) -> Result<(), String> {
    let refused = [
        (cluster.proxy_url.is_some(), "proxy-url is not supported"),
        (user.impersonated.is_some(), "a user's `as` is not supported"),
        (
            user.auth_provider.is_some(),
            "auth-provider is not supported, as in Kubernetes since 1.26: use exec",
        ),
    ];
    match refused.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, problem)) => Err(problem.into()),
        None => Ok(()),
    }
}

/// In the order of Kubernetes' own clients.
fn credentials(user: User, folder: &Path, cluster: serde_json::Value) -> Result<Credentials, String> {
    if let Some(exec) = user.exec {
        return Ok(Credentials::Plugin(
            Plugin::new(exec, folder, cluster)?,
            Mutex::default(),
        ));
    }
    if let Some(path) = user.token_file {
        return Ok(Credentials::File(folder.join(path), Mutex::default()));
    }
    match (user.token, user.username, user.password) {
        (Some(token), ..) => Credentials::token(&token),
        (None, Some(user), Some(password)) => Credentials::password(&user, &password),
        _ => Ok(Credentials::None),
    }
}

fn parsed(server: &str) -> Result<Uri, String> {
    server
        .parse()
        .map_err(|error| format!("the server {server:?} is not a URL: {error}"))
}

fn encoded(pem: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(pem)
}
