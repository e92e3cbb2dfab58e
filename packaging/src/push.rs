//! Pushes image and chart, each with all that belongs to it, by skopeo. What is there already under this version is not replaced.

use std::path::Path;
use std::process::Command;

use crate::layout::Layout;
use crate::source::Source;
use crate::{Failure, output, provenance};

/// The layouts of a release, and the repositories that they go to: helm and containers would otherwise find each other's.
pub fn repositories(registry: &str) -> [(&'static str, String); 2] {
    [
        ("oci/image", format!("{registry}/dnsweir")),
        ("oci/chart", format!("{registry}/charts/dnsweir")),
    ]
}

/// Pushes what a folder has, and says under which names.
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
        // The version last: whoever finds it finds its signature.
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

/// A command of skopeo's. What is copied is ours, so that no policy has to allow it; and there is no TLS on loopback, as docker has it.
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
