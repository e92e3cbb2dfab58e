//! Programs that print credentials, as a kubeconfig's `exec` names them
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::kubeconfig::{Exec, Pem};
use crate::plain_text::one_line;

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The most bytes that are read of what it prints.
const MOST: u64 = 1 << 20;

/// A program that prints credentials.
pub(super) struct Plugin {
    program: PathBuf,
    exec: Exec,
    /// What the program learns of the cluster, as JSON, if it wants to.
    cluster: Option<serde_json::Value>,
}

/// What a program prints.
pub(super) struct Printed {
    pub token: Option<String>,
    pub certificate: Option<Pem>,
    /// When both expire, if it says so.
    pub expires: Option<SystemTime>,
}

/// An `ExecCredential`.
#[derive(Deserialize)]
struct Credential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    expiration_timestamp: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Plugin {
    /// The program that a kubeconfig in this folder names.
    ///
    /// # Errors
    /// If it would need a terminal.
    pub fn new(exec: Exec, folder: &Path, cluster: serde_json::Value) -> Result<Plugin, String> {
        if exec.interactive_mode.as_deref() == Some("Always") {
            return Err(format!(
                "{} needs a terminal (interactiveMode Always)",
                exec.command
            ));
        }
        let named = Path::new(&exec.command);
        // A bare name is searched for in PATH; a path is relative to the file that names it.
        let program = match named.components().count() {
            0 | 1 => named.to_owned(),
            _ => folder.join(named),
        };
        let cluster = exec.provide_cluster_info.then_some(cluster);
        Ok(Plugin {
            program,
            exec,
            cluster,
        })
    }

    /// Runs the program.
    ///
    /// # Errors
    /// If it fails, takes too long, or prints something else.
    pub async fn run(&self) -> Result<Printed, String> {
        let about = |problem: String| format!("{}: {problem}", self.exec.command);
        let mut spec = json!({"interactive": false});
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        let asked = json!({"apiVersion": self.exec.api_version, "kind": "ExecCredential", "spec": spec});
        let mut command = Command::new(&self.program);
        command
            .args(self.exec.args.iter().flatten())
            .env("KUBERNETES_EXEC_INFO", asked.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for variable in self.exec.env.iter().flatten() {
            command.env(&variable.name, &variable.value);
        }
        let mut child = command.spawn().map_err(|error| about(error.to_string()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let finished = timeout(LIMIT, async {
            let (printed, complaint) = tokio::join!(read(stdout), read(stderr));
            let status = child.wait().await;
            (printed, complaint, status)
        });
        let Ok((printed, complaint, status)) = finished.await else {
            return Err(about(format!("did not finish within {} s", LIMIT.as_secs())));
        };
        let status = status.map_err(|error| about(error.to_string()))?;
        if !status.success() {
            let complaint = one_line(String::from_utf8_lossy(&complaint).trim(), 200);
            return Err(about(format!("{status}: {complaint}")));
        }
        let credential: Credential =
            serde_json::from_slice(&printed).map_err(|_| about("did not print an ExecCredential".into()))?;
        let status = credential.status.ok_or_else(|| self.without("credentials"))?;
        let expires = status
            .expiration_timestamp
            .map(|time| time.parse::<jiff::Timestamp>());
        let expires = expires.transpose().map_err(|error| about(error.to_string()))?;
        let certificate = status.client_certificate_data.zip(status.client_key_data);
        Ok(Printed {
            token: status.token,
            expires: expires.map(SystemTime::from),
            certificate: certificate.map(|(certificate, key)| Pem {
                certificate: certificate.into_bytes(),
                key: key.into_bytes(),
            }),
        })
    }

    /// A complaint that it did not print this.
    pub fn without(&self, what: &str) -> String {
        format!("{}: printed an ExecCredential without {what}", self.exec.command)
    }
}

async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> Vec<u8> {
    let mut octets = Vec::new();
    if let Some(stream) = stream {
        // What can be read counts; the rest is a program that failed.
        let _ = stream.take(MOST).read_to_end(&mut octets).await;
    }
    octets
}
