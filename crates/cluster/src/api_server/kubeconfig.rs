//! The kubeconfig file
//! (<https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>).

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct File {
    current_context: Option<String>,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

/// Which cluster to ask, and as whom.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Context {
    cluster: String,
    user: Option<String>,
    pub namespace: Option<String>,
}

/// A cluster.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub server: String,
    pub tls_server_name: Option<String>,
    pub insecure_skip_tls_verify: bool,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    pub proxy_url: Option<String>,
}

/// A user.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<PathBuf>,
    pub username: Option<String>,
    pub password: Option<String>,
    #[serde(rename = "as")]
    pub impersonated: Option<String>,
    pub auth_provider: Option<serde::de::IgnoredAny>,
    pub exec: Option<Exec>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a user")
    }
}

/// A certificate and its key, in PEM.
pub(super) struct Pem {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// A program that prints credentials.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Exec {
    pub api_version: String,
    pub command: String,
    pub args: Option<Vec<String>>,
    pub env: Option<Vec<Variable>>,
    pub interactive_mode: Option<String>,
    pub provide_cluster_info: bool,
}

/// A variable of its environment.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Variable {
    pub name: String,
    pub value: String,
}

impl File {
    /// Reads it.
    pub fn read(path: &Path) -> Result<File, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        yaml_serde::from_str(&text).map_err(|error| format!("is not a kubeconfig: {error}"))
    }

    /// The cluster and the user of a context, or of the current one.
    pub fn chosen(&self, context: Option<&str>) -> Result<(Context, Cluster, User), String> {
        let wanted = context
            .or(self.current_context.as_deref())
            .filter(|name| !name.is_empty());
        let wanted = wanted.ok_or("it has no current-context: name one")?;
        let context = self.contexts.iter().find(|context| context.name == wanted);
        let context = context
            .ok_or_else(|| format!("it has no context {wanted:?}"))?
            .context
            .clone();
        let cluster = self
            .clusters
            .iter()
            .find(|cluster| cluster.name == context.cluster);
        let cluster = cluster.ok_or_else(|| format!("it has no cluster {:?}", context.cluster))?;
        let user = match &context.user {
            None => User::default(),
            Some(name) => {
                let user = self.users.iter().find(|user| user.name == *name);
                user.ok_or_else(|| format!("it has no user {name:?}"))?
                    .user
                    .clone()
            }
        };
        Ok((context, cluster.cluster.clone(), user))
    }

    /// The files that it names, relative to itself.
    pub fn named(&self) -> impl Iterator<Item = &Path> {
        let authorities = self
            .clusters
            .iter()
            .map(|named| &named.cluster.certificate_authority);
        let users = self.users.iter().map(|named| &named.user);
        let of_users = users.flat_map(|user| [&user.client_certificate, &user.client_key]);
        authorities.chain(of_users).flatten().map(PathBuf::as_path)
    }
}

impl Cluster {
    /// The authorities of its certificate, in PEM.
    pub fn authorities(&self, folder: &Path) -> Result<Option<Vec<u8>>, String> {
        let (data, file) = (&self.certificate_authority_data, &self.certificate_authority);
        contents("certificate-authority", data.as_deref(), file.as_deref(), folder)
    }
}

impl User {
    /// Its certificate and key, in PEM.
    pub fn certificate(&self, folder: &Path) -> Result<Option<Pem>, String> {
        let (data, file) = (&self.client_certificate_data, &self.client_certificate);
        let certificate = contents("client-certificate", data.as_deref(), file.as_deref(), folder)?;
        let (data, file) = (&self.client_key_data, &self.client_key);
        let key = contents("client-key", data.as_deref(), file.as_deref(), folder)?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(Pem { certificate, key })),
            (None, None) => Ok(None),
            _ => Err("a user's client-certificate and client-key belong together".into()),
        }
    }
}

/// Data in base 64, or else the contents of a file.
fn contents(
    word: &str,
    data: Option<&str>,
    file: Option<&Path>,
    folder: &Path,
) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let decoded = STANDARD.decode(data);
        return decoded
            .map(Some)
            .map_err(|error| format!("{word}-data is not base 64: {error}"));
    }
    let Some(file) = file.filter(|file| !file.as_os_str().is_empty()) else {
        return Ok(None);
    };
    let file = folder.join(file);
    let read = std::fs::read(&file);
    read.map(Some)
        .map_err(|error| format!("{word} {}: {error}", file.display()))
}
