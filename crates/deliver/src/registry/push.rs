//! Pushes a module to a registry, in the layout in which it is pulled.

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::artifact::{CONFIG, LARGEST_MODULE, LAYER, MANIFEST, digest};
use super::client::{Client, Host, Way};
use super::error::Error;
use super::job::{host, way};
use crate::config::{Reference, Registries, spell_size};

/// The configuration of an artifact: <https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/>.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    architecture: &'static str,
    os: &'static str,
    layer_digests: Vec<String>,
}

/// Pushes `module` as `reference`, which has a tag and no digest, and returns the digest of its manifest.
///
/// # Errors
/// As text.
pub async fn push(module: Bytes, reference: &Reference, registries: &Registries) -> Result<String, String> {
    let Some(tag) = reference.tag.clone().filter(|_| reference.is_movable()) else {
        return Err("the reference needs a tag and must not have a digest: oci://REGISTRY/NAME:TAG".into());
    };
    if module.len() > LARGEST_MODULE {
        return Err(format!("it is larger than {}", spell_size(LARGEST_MODULE)));
    }
    let host = host(&reference.registry, reference, registries)?;
    let way = way(registries)?;
    let pushed = push_to(&host, &way, reference, &tag, module).await;
    pushed.map_err(|error| error.to_string())
}

async fn push_to(
    host: &Host,
    way: &Way,
    reference: &Reference,
    tag: &str,
    module: Bytes,
) -> Result<String, Error> {
    // Whoever pushes chose the registry, and where it leads to.
    let mut client = Client::begin(host, way, &reference.repository, "pull,push", None).await?;
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
