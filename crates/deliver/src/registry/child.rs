//! The child process that pulls: it asks hosts, and writes what they send to standard output.
//!
//! It reads what strangers send. So it runs in a process with limits, which knows the passwords of these hosts only,
//! and whose output is not trusted: the parent checks it against digests and signatures.

use std::io::{self, Read, Write};

use bytes::Bytes;

use super::artifact::{
    Artifact, BUNDLE, Descriptor, Form, LARGEST_SIGNATURE, MOST_SIGNATURES, SIMPLE, SIMPLE_SIGNATURE,
    Signature, UNCHANGED, checked, digest, layer, layers,
};
use super::client::{Client, Host};
use super::error::Error;
use super::job::Job;
use super::referrers::referrers;
use crate::confine::{Confinement, Reach, confine};

/// Does the job on standard input for the process `parent`, and writes the artifact to standard output, or an
/// error to standard error. Returns the exit code. Must be called before this process does anything else.
#[expect(clippy::print_stderr, reason = "the parent reads it there")]
pub fn serve(parent: u32, confinement: Confinement) -> u8 {
    let done = confine(parent, confinement, Reach::Servers)
        .and_then(|()| {
            let mut job = Vec::new();
            io::stdin().read_to_end(&mut job)?;
            let job: Job = serde_json::from_slice(&job)?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            Ok(runtime.block_on(pull(&job)))
        })
        .map_err(|error| error.to_string())
        .and_then(|pulled| pulled)
        .and_then(|parts| {
            let mut output = io::stdout();
            let written = parts.iter().try_for_each(|part| output.write_all(part));
            written
                .and_then(|()| output.flush())
                .map_err(|error| error.to_string())
        });
    match done {
        Ok(()) => 0,
        Err(said) => {
            eprintln!("{said}");
            1
        }
    }
}

/// Pulls from the first host that has the artifact.
async fn pull(job: &Job) -> Result<Vec<Bytes>, String> {
    let mut errors = Vec::new();
    for host in &job.hosts {
        match pull_from(host, job).await {
            Ok(parts) => return Ok(parts),
            Err(error) => errors.push(format!("{}: {error}", host.name)),
        }
    }
    Err(errors.join("; "))
}

async fn pull_from(host: &Host, job: &Job) -> Result<Vec<Bytes>, Error> {
    let written = Some(job.written()?);
    let mut client = Client::begin(host, &job.way, &job.repository, "pull", written).await?;
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
