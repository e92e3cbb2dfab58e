//! A real artifact registry, with TLS and a password, and ways to write to it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::Process;
use super::sigstore::BUNDLE;
use super::{address, tools, until};

/// What [`Registry::start`] needs.
pub const TOOLS: &[&str] = &["docker-registry", "openssl", "curl"];

/// `user` with the password `secret`, as `htpasswd -B` writes it.
const PASSWORDS: &str = "user:$2y$05$oOKO63KieJCdMfFVyYWDxOdtF/fhvNMEcrcsFdulNLKtH2jH2qbXi\n";

/// The same in base 64, as in docker's `config.json`.
pub const AUTH: &str = "dXNlcjpzZWNyZXQ=";

/// The media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an index of manifests.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a module's configuration.
pub const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// The media type of a module.
pub const LAYER: &str = "application/wasm";

/// A running registry with its own folder.
pub struct Registry {
    /// Its address.
    pub address: SocketAddr,
    /// The server.
    pub process: Process,
    folder: tempfile::TempDir,
}

impl Registry {
    /// Starts a registry, and waits until it listens.
    pub fn start() -> Registry {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = address::fresh_socket();
        certify(folder.path(), &address.ip().to_string());
        fs::write(folder.path().join("htpasswd"), PASSWORDS).expect("a file");
        let config = serde_json::json!({
            "version": 0.1,
            "log": { "level": "error", "accesslog": { "disabled": true } },
            "storage": { "filesystem": { "rootdirectory": folder.path().join("data") } },
            "http": {
                "addr": address.to_string(), "secret": "none",
                "tls": { "certificate": folder.path().join("server.pem"), "key": folder.path().join("server.key") },
            },
            "auth": { "htpasswd": { "realm": "tests", "path": folder.path().join("htpasswd") } },
        });
        fs::write(folder.path().join("config.yml"), config.to_string()).expect("a file");
        let auths = serde_json::json!({ "auths": { address.to_string(): { "auth": AUTH } } });
        fs::write(folder.path().join("auth.json"), auths.to_string()).expect("a file");
        let process = launch(folder.path());
        let registry = Registry {
            address,
            process,
            folder,
        };
        registry.await_listening();
        registry
    }

    /// Restarts it with its data.
    pub fn restart(&mut self) {
        self.process.stop();
        self.process = launch(self.folder.path());
        self.await_listening();
    }

    fn await_listening(&self) {
        until("the registry to listen", || {
            std::net::TcpStream::connect(self.address).is_ok()
        });
    }

    /// Returns the path of its authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Returns the path of its credentials, as in docker's `config.json`.
    pub fn credentials(&self) -> PathBuf {
        self.folder.path().join("auth.json")
    }

    /// Returns its section of a configuration, with more in the same block.
    pub fn section(&self, more: &str) -> String {
        let (credentials, ca) = (self.credentials(), self.ca());
        format!(
            "registries {{ credentials \"{}\"; ca \"{}\"; {more} }}\n",
            credentials.display(),
            ca.display()
        )
    }

    /// Returns its options for the program's commands.
    pub fn options(&self) -> [String; 4] {
        let (credentials, ca) = (self.credentials(), self.ca());
        [
            "--credentials".into(),
            credentials.display().to_string(),
            "--ca".into(),
            ca.display().to_string(),
        ]
    }

    /// Returns a reference to one of its artifacts.
    pub fn reference(&self, name: &str) -> String {
        format!("oci://{}/{name}", self.address)
    }

    /// Uploads an artifact whose layers have these media types and contents, and returns the digest of its
    /// manifest.
    pub fn put(&self, name: &str, tag: &str, config: &str, layers: &[(&str, &[u8])]) -> String {
        let described = |media_type: &str, octets: &[u8]| {
            let (digest, size) = (self.put_blob(name, octets), octets.len());
            serde_json::json!({ "mediaType": media_type, "digest": digest, "size": size })
        };
        let layers: Vec<_> = layers
            .iter()
            .map(|(media_type, octets)| described(media_type, octets))
            .collect();
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": described(config, b"{}"), "layers": layers,
        });
        self.put_manifest(name, tag, manifest.to_string().as_bytes())
    }

    /// Signs one of its artifacts as cosign does, with simple signing.
    pub fn sign(&self, name: &str, digest: &str, key: &Signer) {
        let payload = serde_json::json!({ "critical": {
            "identity": { "docker-reference": name }, "image": { "docker-manifest-digest": digest },
            "type": "cosign container image signature",
        }, "optional": null })
        .to_string();
        let layer = serde_json::json!({
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": self.put_blob(name, payload.as_bytes()), "size": payload.len(),
            "annotations": { "dev.cosignproject.cosign/signature": key.sign(payload.as_bytes()) },
        });
        let config = serde_json::json!({
            "mediaType": "application/vnd.oci.image.config.v1+json", "digest": self.put_blob(name, b"{}"), "size": 2,
        });
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
        });
        let tag = format!("{}.sig", digest.replace(':', "-"));
        self.put_manifest(name, &tag, manifest.to_string().as_bytes());
    }

    /// Attaches a bundle to one of its artifacts, as cosign does in a registry without the referrers API: an
    /// index, tagged with the artifact's digest, which states the type of the bundle.
    pub fn attach(&self, name: &str, digest: &str, bundle: &str, said: Option<&str>) {
        let described = |media_type: &str, octets: &[u8]| {
            let (digest, size) = (self.put_blob(name, octets), octets.len());
            serde_json::json!({ "mediaType": media_type, "digest": digest, "size": size })
        };
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE,
            "config": described("application/vnd.oci.empty.v1+json", b"{}"),
            "layers": [described(BUNDLE, bundle.as_bytes())],
        })
        .to_string();
        let referrer = self.put_manifest(name, "referrer", manifest.as_bytes());
        let index = serde_json::json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [{
            "mediaType": MANIFEST, "digest": referrer, "size": manifest.len(), "artifactType": said,
        }] });
        let tag = digest.replace(':', "-");
        self.put_typed(name, &tag, INDEX, index.to_string().as_bytes());
    }

    fn put_blob(&self, name: &str, octets: &[u8]) -> String {
        let (file, digest) = self.file(octets);
        let url = format!("https://{}/v2/{name}/blobs/uploads/", self.address);
        let begun = tools::output(
            self.curl()
                .args(["-X", "POST", "-D", "-", "-o", "/dev/null", &url]),
        );
        let mut lines = begun.lines();
        let location = lines
            .find_map(|line| line.strip_prefix("Location: "))
            .expect("a location");
        let url = format!("{}&digest={digest}", location.trim());
        tools::output(self.curl().args([
            "-X",
            "PUT",
            "-H",
            "Content-Type: application/octet-stream",
            "--data-binary",
            &file,
            &url,
        ]));
        digest
    }

    fn put_manifest(&self, name: &str, tag: &str, octets: &[u8]) -> String {
        self.put_typed(name, tag, MANIFEST, octets)
    }

    fn put_typed(&self, name: &str, tag: &str, media_type: &str, octets: &[u8]) -> String {
        let (file, digest) = self.file(octets);
        let url = format!("https://{}/v2/{name}/manifests/{tag}", self.address);
        let kind = format!("Content-Type: {media_type}");
        tools::output(
            self.curl()
                .args(["-X", "PUT", "-H", &kind, "--data-binary", &file, &url]),
        );
        digest
    }

    /// Writes a file with these bytes. Returns it as an argument of curl, and its digest.
    fn file(&self, octets: &[u8]) -> (String, String) {
        let path = self.folder.path().join("upload");
        fs::write(&path, octets).expect("a file");
        let printed = tools::output(Command::new("sha256sum").arg(&path));
        let digits = printed.split_whitespace().next().expect("a digest");
        (format!("@{}", path.display()), format!("sha256:{digits}"))
    }

    fn curl(&self) -> Command {
        let mut command = tools::command("curl");
        command
            .args([
                "-sS",
                "--http1.1",
                "--fail-with-body",
                "-u",
                "user:secret",
                "--cacert",
            ])
            .arg(self.ca());
        command
    }
}

fn launch(folder: &Path) -> Process {
    Process::start(
        tools::command("docker-registry")
            .arg("serve")
            .arg(folder.join("config.yml")),
    )
}

fn openssl(folder: &Path, arguments: &str) {
    tools::output(
        tools::command("openssl")
            .current_dir(folder)
            .args(arguments.split(' ')),
    );
}

/// Creates an authority, and a certificate for this address.
fn certify(folder: &Path, ip: &str) {
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    openssl(
        folder,
        &format!("{new} -keyout ca.key -out ca.pem -subj /CN=tests"),
    );
    openssl(
        folder,
        &format!(
            "{new} -keyout server.key -out server.pem -subj /CN=registry -CA ca.pem -CAkey ca.key \
             -addext subjectAltName=IP:{ip} -addext basicConstraints=critical,CA:FALSE"
        ),
    );
}

/// A signer with an ECDSA P-256 key.
pub struct Signer(tempfile::TempDir);

impl Signer {
    /// Creates a signer with a new key.
    pub fn new() -> Signer {
        let folder = tempfile::tempdir().expect("a temporary folder");
        openssl(
            folder.path(),
            "ecparam -name prime256v1 -genkey -noout -out key.pem",
        );
        openssl(folder.path(), "ec -in key.pem -pubout -out key.pub");
        Signer(folder)
    }

    /// Returns the path of the public key.
    pub fn key(&self) -> PathBuf {
        self.0.path().join("key.pub")
    }

    /// Returns a signature in base 64.
    fn sign(&self, message: &[u8]) -> String {
        fs::write(self.0.path().join("message"), message).expect("a file");
        openssl(self.0.path(), "dgst -sha256 -sign key.pem -out signature message");
        let encoded = tools::output(
            tools::command("base64")
                .arg("-w0")
                .arg(self.0.path().join("signature")),
        );
        encoded.trim().to_owned()
    }
}

impl Default for Signer {
    fn default() -> Signer {
        Signer::new()
    }
}
