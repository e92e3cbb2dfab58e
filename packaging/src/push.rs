//! Pushes image and chart with everything attached to them, by skopeo. Existing versions are not replaced.

use std::path::Path;
use std::process::Command;

use crate::layout::Layout;
use crate::source::Source;
use crate::{Failure, output, provenance};

/// The layouts of a release and their repositories, separate so that helm and container tools do not mix up
/// tags.
pub fn repositories(registry: &str) -> [(&'static str, String); 2] {
    [
        ("oci/image", format!("{registry}/dnsweir")),
        ("oci/chart", format!("{registry}/charts/dnsweir")),
    ]
}

/// Pushes the layouts in a folder, and returns their names.
pub fn pack(source: &Source, registry: &str, folder: &Path) -> Result<Vec<String>, Failure> {
    let mut made = Vec::new();
    for (part, name) in repositories(registry) {
        let part = folder.join(part);
        let layout = Layout::open(&part)?;
        let released = provenance::released(source, &layout);
        let released = released.ok_or_else(|| format!("{}: nothing of this version", part.display()))?;
        let version = format!("{name}:{}", source.version);
        let content = layout.content(&released)?;
        match there(&version) {
            Some(other) if other.as_bytes() != content => {
                return Err(format!("{version} is there already, and is something else"));
            }
            _ => {}
        }
        // The version comes last: when it appears, its signature is already there.
        let others = layout.tags().filter(|tag| *tag != source.version);
        for tag in others.chain([source.version]) {
            let mut copy = skopeo("copy", "--dest-tls-verify", registry);
            copy.args(["--quiet", "--all", "--preserve-digests"]);
            copy.arg(format!("oci:{}:{tag}", part.display()));
            output(copy.arg(format!("docker://{name}:{tag}")))?;
        }
        made.push(format!(
            "{version} {}",
            released["digest"].as_str().unwrap_or_default()
        ));
    }
    Ok(made)
}

/// The manifest that a registry has under a name.
fn there(name: &str) -> Option<String> {
    let mut inspect = skopeo("inspect", "--tls-verify", name);
    output(inspect.args(["--raw", &format!("docker://{name}")])).ok()
}

/// A skopeo command. The content is ours, so no policy needs to allow it. As in docker, no TLS on loopback.
fn skopeo(what: &str, tls: &str, host: &str) -> Command {
    let mut command = Command::new("skopeo");
    command.args(["--insecure-policy", what]);
    if ["127.", "localhost:", "[::1]:"]
        .iter()
        .any(|name| host.starts_with(name))
    {
        command.arg(format!("{tls}=false"));
    }
    command
}
