//! Pulls: asks hosts, and returns what they send.
//!
//! The result is not trusted: the parent checks it against digests and signatures.

use bytes::Bytes;

use super::client::{self, Client};
use super::error::Error;
use super::referrers::{BUNDLE, referrers};
use crate::artifact::{
    Artifact, Descriptor, Form, LARGEST_SIGNATURE, MOST_SIGNATURES, Signature, UNCHANGED, checked, digest,
    layer, layers,
};
use crate::job::{Host, Job};

/// The media type of a simple signature, and the annotation that holds it.
const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIMPLE_SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// Pulls from the first host that has the artifact of a job. Returns its parts.
///
/// # Errors
/// What each host said.
pub async fn pull(job: &[u8]) -> Result<Vec<Bytes>, String> {
    let job: Job = serde_json::from_slice(job).map_err(|error| error.to_string())?;
    let mut errors = Vec::new();
    for host in &job.hosts {
        match pull_from(host, &job).await {
            Ok(parts) => return Ok(parts),
            Err(error) => errors.push(format!("{}: {error}", host.name)),
        }
    }
    Err(errors.join("; "))
}

async fn pull_from(host: &Host, job: &Job) -> Result<Vec<Bytes>, Error> {
    let written = written(&job.hosts)?;
    let mut client = Client::begin(host, &job.way, &job.repository, "pull", Some(written)).await?;
    let reference = job.digest.as_ref().or(job.tag.as_ref());
    let reference = reference.map_or("", String::as_str);
    if let Some(known) = &job.known
        && client.digest(reference).await? == *known
    {
        return Ok(vec![Bytes::from_static(UNCHANGED)]);
    }
    let manifest = client.manifest(reference).await?;
    let layer = layer(&manifest)?;
    // Within the limit of a module.
    let module = client.blob(&layer.digest, layer.size as usize).await?;
    let mut signatures = Vec::new();
    if job.signatures {
        let digest = digest(&manifest);
        signatures = simple_signatures(&mut client, &digest).await?;
        signatures.extend(bundles(&mut client, &digest).await?);
    }
    Ok(Artifact::new(manifest, module, signatures)?.write())
}

/// Returns the names and addresses of the hosts, as in URLs.
fn written(hosts: &[Host]) -> Result<Vec<String>, String> {
    let written = hosts.iter().map(|host| {
        let url = client::url(host)?;
        Ok(url.host_str().unwrap_or_default().to_owned())
    });
    written.collect()
}

/// Returns the signatures that cosign has stored under the tag of an artifact's digest.
async fn simple_signatures(client: &mut Client, digest: &str) -> Result<Vec<Signature>, Error> {
    let tag = format!("{}.sig", digest.replace(':', "-"));
    let mut signatures = Vec::new();
    for layer in layers_of(client, &tag).await?.iter().take(MOST_SIGNATURES) {
        let signature = layer.annotation(SIMPLE_SIGNATURE);
        if let (SIMPLE, Some(signature)) = (layer.media_type.as_str(), signature) {
            let octets = small_blob(client, layer).await?;
            let form = Form::Simple(signature.to_owned());
            signatures.push(Signature { form, octets });
        }
    }
    Ok(signatures)
}

/// Returns the bundles that refer to an artifact. Some of them are listed with another type than the manifest has: the
/// manifests decide.
async fn bundles(client: &mut Client, digest: &str) -> Result<Vec<Signature>, Error> {
    let mut signatures = Vec::new();
    for referrer in referrers(client, digest).await? {
        // What others attached does not stand in the way of signatures.
        let Ok(digest) = checked(&referrer.digest) else {
            continue;
        };
        let layers = match layers_of(client, digest).await {
            Err(Error::Refused(_) | Error::Other(_)) => continue,
            layers => layers?,
        };
        if let Some(layer) = layers.iter().find(|layer| layer.media_type == BUNDLE) {
            let octets = small_blob(client, layer).await?;
            let form = Form::Bundle;
            signatures.push(Signature { form, octets });
        }
    }
    Ok(signatures)
}

/// Returns the layers of a manifest; none if there is no such manifest.
async fn layers_of(client: &mut Client, reference: &str) -> Result<Vec<Descriptor>, Error> {
    match client.manifest(reference).await {
        Ok(manifest) => Ok(layers(&manifest)?),
        Err(error) if error.is_missing() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn small_blob(client: &mut Client, layer: &Descriptor) -> Result<Bytes, Error> {
    let size = layer.size;
    if size > LARGEST_SIGNATURE as u64 {
        let problem = format!("a signature has {size} bytes, but at most {LARGEST_SIGNATURE} are read");
        return Err(problem.into());
    }
    client.blob(&layer.digest, size as usize).await
}
