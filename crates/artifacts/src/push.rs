//! Pushes a module to a registry, in the layout in which it is pulled.

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::client::Client;
use super::error::Error;
use crate::artifact::{CONFIG, LAYER, MANIFEST, digest};
use crate::job::Destination;

/// The configuration of an artifact: <https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/>.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    architecture: &'static str,
    os: &'static str,
    layer_digests: Vec<String>,
}

/// Pushes a module to a destination, which comes before it, in a line of its own. Returns the digest of its manifest.
///
/// # Errors
/// As text.
pub async fn push(input: Bytes) -> Result<Vec<Bytes>, String> {
    let end = input
        .iter()
        .position(|&octet| octet == b'\n')
        .unwrap_or(input.len());
    let destination: Destination =
        serde_json::from_slice(&input[..end]).map_err(|error| error.to_string())?;
    let module = input.slice(input.len().min(end + 1)..);
    let pushed = push_to(&destination, module).await;
    let digest = pushed.map_err(|error| error.to_string())?;
    Ok(vec![digest.into()])
}

async fn push_to(destination: &Destination, module: Bytes) -> Result<String, Error> {
    let Destination {
        host,
        way,
        repository,
        tag,
    } = destination;
    // Whoever pushes chose the registry, and where it leads to.
    let mut client = Client::begin(host, way, repository, "pull,push", None).await?;
    let configuration = Configuration {
        architecture: "wasm",
        os: "wasip2",
        layer_digests: vec![digest(&module)],
    };
    let configuration = Bytes::from(serde_json::to_vec(&configuration).unwrap_or_default());
    let described = |media_type: &str, octets: &Bytes| {
        let (digest, size) = (digest(octets), octets.len());
        json!({ "mediaType": media_type, "digest": digest, "size": size })
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(CONFIG, &configuration),
        "layers": [described(LAYER, &module)],
    });
    let manifest = Bytes::from(manifest.to_string());
    client.upload(module).await?;
    client.upload(configuration).await?;
    client.store(tag, manifest.clone()).await?;
    Ok(digest(&manifest))
}
