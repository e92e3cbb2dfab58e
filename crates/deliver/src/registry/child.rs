//! The child process that pulls: it asks hosts, and writes what they send to standard output.
//!
//! The registry client reads everything a host sends into memory, without limit, and follows it anywhere but
//! where a [guard] stops it. So it runs in a process with limits, which knows the passwords of these hosts
//! only, and whose output is not trusted: the parent checks it against digests and signatures.

use std::io::{self, Read, Write};

use bytes::Bytes;
use futures_util::StreamExt as _;
use oci_client::manifest::{ImageIndexEntry, OciDescriptor, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};

use super::artifact::{
    self, Artifact, BUNDLE, Form, LARGEST_SIGNATURE, MANIFEST, MOST_SIGNATURES, SIGNED, SIMPLE,
    SIMPLE_SIGNATURE, Signature, UNCHANGED,
};
use super::client::{Host, Way, is_missing};
use super::guard::Guard;
use super::job::Job;
use crate::confine::{Confinement, Reach, confine};
use crate::plain_text::with_causes;

/// The annotation with the type of a bundle's statement, which a registry repeats in its list of referrers.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";

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
        let guard = guard(job).await.map_err(|error| error.to_string())?;
        match pull_from(host, job, guard.as_ref()).await {
            Ok(parts) => return Ok(parts),
            Err(error) => {
                let why = guard.and_then(|guard| guard.problem());
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                errors.push(format!("{}: {error}{why}", host.name));
            }
        }
    }
    Err(errors.join("; "))
}

/// Starts what keeps a registry from making us contact arbitrary hosts, unless a configured proxy decides
/// that.
async fn guard(job: &Job) -> io::Result<Option<Guard>> {
    if job.way.proxy.is_some() {
        return Ok(None);
    }
    // Without ports, as in a URL.
    let written = job.hosts.iter().map(|host| match host.name.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name.to_owned(),
        _ => host.name.clone(),
    });
    Guard::start(written.collect()).await.map(Some)
}

async fn pull_from(host: &Host, job: &Job, guard: Option<&Guard>) -> Result<Vec<Bytes>, String> {
    let client = host.client(&Way {
        ca: job.way.ca.clone(),
        proxy: job.way.proxy.clone().or(guard.map(Guard::url)),
    })?;
    let auth = host.auth();
    let reference = match (&job.digest, &job.tag) {
        (Some(digest), _) => {
            Reference::with_digest(host.name.clone(), job.repository.clone(), digest.clone())
        }
        (None, tag) => {
            let tag = tag.clone().unwrap_or_default();
            Reference::with_tag(host.name.clone(), job.repository.clone(), tag)
        }
    };
    let asked = client.auth(&reference, &auth, RegistryOperation::Pull).await;
    asked.map_err(|error| with_causes(&error))?;
    if let Some(known) = &job.known {
        let digest = client.fetch_manifest_digest(&reference, &auth).await;
        if digest.map_err(|error| with_causes(&error))? == *known {
            return Ok(vec![Bytes::from_static(UNCHANGED)]);
        }
    }
    let pulled = client.pull_manifest_raw(&reference, &auth, &[MANIFEST]).await;
    let (manifest, digest) = pulled.map_err(|error| with_causes(&error))?;
    let layer = artifact::layer(&manifest)?;
    let module = blob(&client, &reference, &layer.digest, layer.size).await?;
    let mut signatures = Vec::new();
    if job.signatures {
        let artifact = reference.clone_with_digest(digest);
        signatures = simple_signatures(&client, &artifact, &auth).await?;
        signatures.extend(bundles(&client, &artifact, &auth).await?);
    }
    Ok(Artifact::new(manifest, module, signatures)?.write())
}

/// Downloads a blob, and checks its size and digest against its descriptor.
async fn blob(client: &Client, image: &Reference, digest: &str, size: u64) -> Result<Bytes, String> {
    let descriptor = OciDescriptor {
        digest: digest.to_owned(),
        size: i64::try_from(size).map_err(|_| "a size that is none")?,
        ..OciDescriptor::default()
    };
    let opened = client.pull_blob_stream(image, &descriptor).await;
    let mut stream = opened.map_err(|error| with_causes(&error))?.stream;
    // This process has a memory limit, and the size has been checked.
    let mut octets = Vec::with_capacity(size as usize);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| error.to_string())?;
        if (octets.len() + chunk.len()) as u64 > size {
            return Err(format!("{digest} has more than the {size} bytes in its manifest"));
        }
        octets.extend_from_slice(&chunk);
    }
    Ok(octets.into())
}

/// Returns the signatures that cosign has stored under the tag of an artifact's digest.
async fn simple_signatures(
    client: &Client,
    artifact: &Reference,
    auth: &RegistryAuth,
) -> Result<Vec<Signature>, String> {
    let tag = format!("{}.sig", artifact.digest().unwrap_or_default().replace(':', "-"));
    let (registry, repository) = (artifact.registry().to_owned(), artifact.repository().to_owned());
    let reference = Reference::with_tag(registry, repository, tag);
    let Some(manifest) = manifest(client, &reference, auth).await? else {
        return Ok(Vec::new());
    };
    let mut signatures = Vec::new();
    for layer in manifest.layers.iter().take(MOST_SIGNATURES) {
        let annotations = layer.annotations.iter().flatten();
        let signature = annotations
            .into_iter()
            .find(|(name, _)| *name == SIMPLE_SIGNATURE);
        if let (SIMPLE, Some((_, signature))) = (layer.media_type.as_str(), signature) {
            let octets = small_blob(client, artifact, layer).await?;
            signatures.push(Signature {
                form: Form::Simple(signature.clone()),
                octets,
            });
        }
    }
    Ok(signatures)
}

/// Returns the bundles that refer to an artifact. If a registry has no referrers API, signing tools write an
/// index instead, some with another type than the manifest has: then the manifests decide.
async fn bundles(
    client: &Client,
    artifact: &Reference,
    auth: &RegistryAuth,
) -> Result<Vec<Signature>, String> {
    let mut referrers = Vec::new();
    for wanted in [Some(BUNDLE), None] {
        if referrers.is_empty() {
            let index = client.pull_referrers(artifact, wanted).await;
            let index = index.map_err(|error| format!("who refers to it: {}", with_causes(&error)))?;
            referrers = index.manifests;
        }
    }
    referrers.sort_by_key(rank);
    let mut signatures = Vec::new();
    for entry in referrers.iter().take(MOST_SIGNATURES) {
        let Some(manifest) =
            manifest(client, &artifact.clone_with_digest(entry.digest.clone()), auth).await?
        else {
            continue;
        };
        for layer in manifest
            .layers
            .iter()
            .filter(|layer| layer.media_type == BUNDLE)
            .take(1)
        {
            let octets = small_blob(client, artifact, layer).await?;
            signatures.push(Signature {
                form: Form::Bundle,
                octets,
            });
        }
    }
    Ok(signatures)
}

/// Returns the rank of a referrer among those of an artifact, which may have any number: the lowest are read.
/// Signatures come before bundles that do not say what they state, and other statements last. Not every
/// registry filters by type.
fn rank(entry: &ImageIndexEntry) -> (u8, bool) {
    let annotations = entry.annotations.as_ref();
    let stated = match annotations.and_then(|all| all.get(PREDICATE)) {
        Some(predicate) if predicate == SIGNED => 0,
        None => 1,
        Some(_) => 2,
    };
    (stated, entry.artifact_type.as_deref() != Some(BUNDLE))
}

/// Returns a manifest, if there is one.
async fn manifest(
    client: &Client,
    reference: &Reference,
    auth: &RegistryAuth,
) -> Result<Option<OciImageManifest>, String> {
    match client.pull_manifest_raw(reference, auth, &[MANIFEST]).await {
        Ok((octets, _)) => serde_json::from_slice(&octets)
            .map(Some)
            .map_err(|error| error.to_string()),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(with_causes(&error)),
    }
}

async fn small_blob(client: &Client, image: &Reference, layer: &OciDescriptor) -> Result<Bytes, String> {
    let size = u64::try_from(layer.size).unwrap_or(u64::MAX);
    if size > LARGEST_SIGNATURE as u64 {
        return Err(format!(
            "a signature has {size} bytes, but at most {LARGEST_SIGNATURE} are read"
        ));
    }
    blob(client, image, &layer.digest, size).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(digest: &str, artifact_type: &str, predicate: Option<&str>) -> ImageIndexEntry {
        let annotations = predicate.map(|predicate| serde_json::json!({ PREDICATE: predicate }));
        serde_json::from_value(serde_json::json!({
            "mediaType": MANIFEST, "digest": digest, "size": 2, "artifactType": artifact_type,
            "annotations": annotations,
        }))
        .unwrap()
    }

    /// Any number of statements, such as lists of parts, hide no signature.
    #[test]
    fn signatures_come_before_other_statements() {
        let parts = Some("https://spdx.dev/Document");
        let mut referrers = vec![entry("parts", BUNDLE, parts); 2 * MOST_SIGNATURES];
        referrers.push(entry("other", "application/vnd.example", None));
        referrers.push(entry("unsaid", BUNDLE, None));
        referrers.push(entry("untyped", "application/vnd.example", Some(SIGNED)));
        referrers.push(entry("signed", BUNDLE, Some(SIGNED)));
        referrers.sort_by_key(rank);
        let first: Vec<&str> = referrers
            .iter()
            .map(|entry| entry.digest.as_str())
            .take(5)
            .collect();
        assert_eq!(first, ["signed", "untyped", "unsaid", "other", "parts"]);
    }
}
