//! Which manifests refer to an artifact: its signatures, and other statements about it.

use super::client::Client;
use super::error::Error;
use super::signature::SIGNED;
use crate::artifact::{Descriptor, MOST_SIGNATURES};

/// The media type of a bundle.
pub const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// The annotation with the type of a bundle's statement, which a registry repeats in its list of referrers.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";

/// The most pages of a list that are read.
const MOST_PAGES: usize = 16;

/// Returns the manifests that refer to an artifact and are most likely its signatures, at most [`MOST_SIGNATURES`].
///
/// # Errors
/// When the registry cannot be asked, or refuses.
pub async fn referrers(client: &mut Client, digest: &str) -> Result<Vec<Descriptor>, Error> {
    let bundles = listed(client, digest, Some(BUNDLE)).await?;
    if !bundles.is_empty() {
        return Ok(bundles);
    }
    listed(client, digest, None).await
}

/// Returns the best referrers of a type, or of all types.
async fn listed(
    client: &mut Client,
    digest: &str,
    artifact_type: Option<&str>,
) -> Result<Vec<Descriptor>, Error> {
    let mut url = client.url(&format!("referrers/{digest}"))?;
    if let Some(artifact_type) = artifact_type {
        url.query_pairs_mut().append_pair("artifactType", artifact_type);
    }
    let mut best = Vec::new();
    for page in 0..MOST_PAGES {
        let (found, next) = match client.index(&url).await {
            // The registry has no list, but signing tools write one.
            Err(error) if error.is_missing() && page == 0 => {
                (tagged(client, digest, artifact_type).await?, None)
            }
            answer => answer.map_err(|error| format!("who refers to it: {error}"))?,
        };
        best.extend(found);
        best.sort_by_key(rank);
        best.truncate(MOST_SIGNATURES);
        match next {
            Some(next) => url = next,
            None => break,
        }
    }
    Ok(best)
}

/// Returns the referrers in the index under the tag of an artifact's digest, which is not filtered:
/// <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#referrers-tag-schema>.
async fn tagged(
    client: &mut Client,
    digest: &str,
    artifact_type: Option<&str>,
) -> Result<Vec<Descriptor>, Error> {
    let url = client.url(&format!("manifests/{}", digest.replace(':', "-")))?;
    let mut found = match client.index(&url).await {
        Ok((found, _)) => found,
        Err(error) if error.is_missing() => Vec::new(),
        Err(error) => return Err(error),
    };
    if artifact_type.is_some() {
        found.retain(|entry| entry.artifact_type.as_deref() == artifact_type);
    }
    Ok(found)
}

/// Returns the rank of a referrer among those of an artifact, which may have any number: the lowest are read.
/// Signatures come before bundles that do not say what they state, and other statements last. Not every
/// registry filters by type.
fn rank(entry: &Descriptor) -> (u8, bool) {
    let stated = match entry.annotation(PREDICATE) {
        Some(SIGNED) => 0,
        None => 1,
        Some(_) => 2,
    };
    (stated, entry.artifact_type.as_deref() != Some(BUNDLE))
}

#[cfg(test)]
mod tests {
    use super::super::client::tests::begin;
    use super::*;
    use crate::artifact::{self, MANIFEST};
    use crate::web::{WebServer, page};

    fn entry(digest: &str, artifact_type: &str, predicate: Option<&str>) -> Descriptor {
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

    /// A list of as many bundles as a page has, each of them a statement about parts.
    fn list(count: usize) -> String {
        let parts = serde_json::json!({ PREDICATE: "https://spdx.dev/Document" });
        let entry = serde_json::json!({
            "mediaType": MANIFEST, "digest": artifact::digest(b"parts"), "size": 2, "artifactType": BUNDLE,
            "annotations": parts,
        });
        serde_json::json!({ "manifests": vec![entry; count] }).to_string()
    }

    #[tokio::test]
    async fn all_pages_of_a_list_are_read() {
        let registry = WebServer::plain();
        let digest = artifact::digest(b"manifest");
        let signature = artifact::digest(b"signature");
        let last = serde_json::json!({ "manifests": [{
            "mediaType": MANIFEST, "digest": signature, "size": 2, "artifactType": BUNDLE,
            "annotations": { PREDICATE: SIGNED },
        }] });
        registry.answer(move |request| match request.contains("last=x") {
            true => page("200 OK", "", &last.to_string()),
            false => page("200 OK", "link: <?last=x>; rel=\"next\"\r\n", &list(50)),
        });
        let mut client = begin(&registry, "pull").await.unwrap();
        let found = referrers(&mut client, &digest).await.unwrap();
        assert_eq!((found.len(), &found[0].digest), (MOST_SIGNATURES, &signature));
        let asked = registry.requests();
        let first = format!("get /v2/team/a/referrers/{digest}?artifacttype=");
        assert!(asked[1].starts_with(&first), "{asked:?}");
        // One after the other, without end.
        registry.answer(|_| page("200 OK", "link: <?last=y>; rel=\"next\"\r\n", &list(1)));
        referrers(&mut client, &digest).await.unwrap();
        assert_eq!(registry.requests().len(), asked.len() + MOST_PAGES);
    }

    #[tokio::test]
    async fn a_registry_without_lists_has_a_tag() {
        let registry = WebServer::plain();
        let digest = artifact::digest(b"manifest");
        let tag = format!("get /v2/team/a/manifests/{} ", digest.replace(':', "-"));
        let mut client = begin(&registry, "pull").await.unwrap();
        assert!(referrers(&mut client, &digest).await.unwrap().is_empty());
        registry.answer(move |request| match request.starts_with(&tag) {
            true => page("200 OK", "", &list(2)),
            false => page("404 Not Found", "", ""),
        });
        assert_eq!(referrers(&mut client, &digest).await.unwrap().len(), 2);
        registry.answer(|_| page("500 Internal Server Error", "", "no"));
        let problem = referrers(&mut client, &digest).await.unwrap_err().to_string();
        assert!(problem.starts_with("who refers to it: "), "{problem}");
        // As Go writes a list of nothing.
        registry.answer(|_| page("200 OK", "", "{\"manifests\":null}"));
        assert!(referrers(&mut client, &digest).await.unwrap().is_empty());
    }
}
