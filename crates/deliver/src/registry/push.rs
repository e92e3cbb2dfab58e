//! Pushes a module to a registry, in the layout in which it is pulled.

use bytes::Bytes;
use oci_client::client::{Config, ImageLayer};
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference as Image, RegistryOperation};
use serde::Serialize;

use super::artifact::{self, CONFIG, LARGEST_MODULE, LAYER};
use super::job::{host, way};
use crate::config::{Reference, Registries, spell_size};
use crate::plain_text::with_causes;

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
        return Err("what is pushed needs a tag and takes no digest: oci://REGISTRY/NAME:TAG".into());
    };
    if module.len() > LARGEST_MODULE {
        return Err(format!("it is larger than {}", spell_size(LARGEST_MODULE)));
    }
    let host = host(&reference.registry, reference, registries)?;
    let (client, auth) = (host.client(&way(registries)?)?, host.auth());
    let image = Image::with_tag(host.name.clone(), reference.repository.clone(), tag);
    let pushed = push_as(&client, &image, &auth, module);
    pushed.await.map_err(|error| with_causes(&error))
}

async fn push_as(
    client: &Client,
    image: &Image,
    auth: &RegistryAuth,
    module: Bytes,
) -> Result<String, oci_client::errors::OciDistributionError> {
    client.auth(image, auth, RegistryOperation::Push).await?;
    let configuration = Configuration {
        architecture: "wasm",
        os: "wasip2",
        layer_digests: vec![artifact::digest(&module)],
    };
    let configuration = serde_json::to_vec(&configuration).unwrap_or_default();
    let configuration = Config::new(configuration, CONFIG.to_owned(), None);
    let layers = [ImageLayer::new(module, LAYER.to_owned(), None)];
    let mut manifest = OciImageManifest::build(&layers, &configuration, None);
    manifest.media_type = Some(OCI_IMAGE_MEDIA_TYPE.to_owned());
    client
        .push(image, &layers, configuration, auth, Some(manifest))
        .await?;
    client.fetch_manifest_digest(image, auth).await
}
