//! Turns references in a configuration into modules: at the start, on a reload, and when a tag moves.
//!
//! Nothing here is on the query path. A kept module is used without asking the registry; only for a missing
//! one does a start or reload wait. Tags are polled in the background. A pulled module is used only after its
//! digests and signatures are verified. It is then handled like a changed file; until it answers queries, the
//! tag on disk stands for the one that did last.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::artifact::Artifact;
use super::kept::Kept;
use super::policy::{self, Policy};
use super::process::Error;
use super::pull::{Pulled, pull};
use crate::config::{
    Config, Delivered, Diagnostic, Module, Reference, Registries, Report, SignedBy, Signer, TrustRoot,
};
use crate::metrics::Metrics;
use crate::private_folder::PrivateFolder;

/// Advice when a registry's name is not found.
const RESOLVER: &str = "registries are found by the resolver in /etc/resolv.conf, which must not be dnsweir alone: name another one there, or write the registry into /etc/hosts, or a `mirror` by its address";

/// Advice when a trust root cannot be used.
const ROOT: &str = "name a trusted root of sigstore in JSON, as `cosign trusted-root create` writes it";

/// Outcomes of tag checks and pulls.
#[derive(Debug, Default)]
struct Counters {
    unchanged: AtomicU64,
    pulled: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// Delivers modules, and polls tags.
#[derive(Debug)]
pub struct Deliveries {
    kept: Kept,
    /// The newest artifact known for each reference.
    newest: Mutex<HashMap<Reference, Artifact>>,
    /// The digests of the artifacts that answer queries. The newest ones may have been refused since.
    accepted: Mutex<Vec<String>>,
    /// Why the last check of a tag failed.
    errors: Mutex<HashMap<Reference, String>>,
    /// The tags to poll.
    tags: watch::Sender<Arc<Tags>>,
    /// A tag has moved.
    moved: Notify,
    counters: Counters,
}

/// The tags of a configuration, and how to poll them.
#[derive(Debug, Default)]
struct Tags {
    registries: Registries,
    policy: Policy,
    /// References, each with the signers that every filter using it requires.
    wanted: Vec<(Reference, Vec<SignedBy>)>,
}

/// Why there is no artifact.
enum Failure {
    /// It could not be pulled, or not be verified.
    Pull(String),
    /// It was pulled, and refused.
    Refused(String),
}

/// An artifact, and for every filter that wants a signature who gave it.
type Signed = (Artifact, Vec<Option<Signer>>);

/// Returns whether a configuration has filters whose modules are artifacts.
pub(super) fn has_artifacts(config: &Config) -> bool {
    let mut filters = config.filters.iter();
    filters.any(|filter| matches!(filter.module, Module::Artifact(_)))
}

/// Describes that signatures cannot be verified on this machine.
fn unverified(why: &str) -> String {
    format!("its signatures cannot be verified: {why}")
}

/// Returns the mistake of a configuration whose trust root is not usable.
fn mistake(root: &TrustRoot, error: Error) -> Diagnostic {
    match error {
        Error::Failed(problem) => Diagnostic::new(root.span, problem).help(ROOT),
        Error::Machine(problem) => {
            Diagnostic::new(root.span, format!("the trust root cannot be checked: {problem}"))
        }
    }
}

impl Deliveries {
    /// Keeps artifacts in `folder`.
    pub fn new(folder: Option<PrivateFolder>) -> Arc<Deliveries> {
        Arc::new(Deliveries {
            kept: Kept::new(folder),
            newest: Mutex::default(),
            accepted: Mutex::default(),
            errors: Mutex::default(),
            tags: watch::Sender::default(),
            moved: Notify::new(),
            counters: Counters::default(),
        })
    }

    /// Loads the code of each filter of `config` whose module is an artifact. Dropping the future cancels it.
    ///
    /// # Errors
    /// One for each module that cannot be had, or is refused.
    pub async fn deliver(&self, config: &mut Config) -> Result<(), Report> {
        if !has_artifacts(config) {
            return Ok(());
        }
        let policy = Policy::from(&config.signatures);
        let mut mistakes = policy::mistakes(&config.signatures);
        if let (Some(root), Err(error)) = (
            &config.signatures.trust_root,
            policy.check(&config.registries).await,
        ) {
            mistakes.push(mistake(root, error));
        }
        if !mistakes.is_empty() {
            return Err(config.report(mistakes));
        }
        for filter in &mut config.filters {
            let Module::Artifact(reference) = &filter.module else {
                continue;
            };
            match self
                .artifact(reference, &config.registries, &policy, &filter.signed_by)
                .await
            {
                Ok((artifact, signer)) => {
                    filter.code = artifact.module;
                    let digest = artifact.digest;
                    filter.artifact = Some(Delivered { digest, signer });
                }
                Err(problem) => {
                    let unknown = problem.contains("dns error");
                    let wrong = Diagnostic::new(filter.module_span, format!("{reference}: {problem}"));
                    mistakes.push(match unknown {
                        true => wrong.help(RESOLVER),
                        false => wrong,
                    });
                }
            }
        }
        match mistakes.is_empty() {
            true => Ok(()),
            false => Err(config.report(mistakes)),
        }
    }

    /// Returns the artifact that a reference names, and who signed it.
    async fn artifact(
        &self,
        reference: &Reference,
        registries: &Registries,
        policy: &Policy,
        wants: &SignedBy,
    ) -> Result<(Artifact, Option<Signer>), String> {
        let known = self.newest.lock().get(reference).cloned();
        let known = known.or_else(|| self.kept.find(reference));
        let wanted = std::slice::from_ref(wants);
        let mut refused = None;
        if let Some(artifact) = known {
            let signers = policy.signers(&artifact, wanted, &reference.repository, registries);
            match signers.await {
                Ok(signers) => {
                    self.newest.lock().insert(reference.clone(), artifact.clone());
                    return Ok((artifact, signers.into_iter().next().flatten()));
                }
                // It may have been signed since.
                Err(Error::Failed(why)) => refused = Some(why),
                Err(Error::Machine(why)) => return Err(unverified(&why)),
            }
        }
        match self.pull_new(reference, registries, policy, wanted, None).await {
            Ok(Some((artifact, signers))) => Ok((artifact, signers.into_iter().next().flatten())),
            Ok(None) => Err("the registry has nothing new".into()),
            Err(Failure::Refused(why)) => Err(why),
            Err(Failure::Pull(why)) => Err(match refused {
                Some(refused) => format!("{refused}; and it cannot be pulled again: {why}"),
                None => format!("it cannot be pulled: {why}"),
            }),
        }
    }

    /// Pulls what a reference names unless that is `known`, and keeps it if its signers satisfy all of
    /// `wanted`.
    async fn pull_new(
        &self,
        reference: &Reference,
        registries: &Registries,
        policy: &Policy,
        wanted: &[SignedBy],
        known: Option<&str>,
    ) -> Result<Option<Signed>, Failure> {
        let counters = &self.counters;
        let failed = |why: String| {
            counters.failed.fetch_add(1, Ordering::Relaxed);
            Failure::Pull(why)
        };
        let pulled = pull(reference, registries, known, policy.asks()).await;
        let pulled = pulled.map_err(|error| failed(error.to_string()))?;
        let Pulled::New(artifact) = pulled else {
            counters.unchanged.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        let signers = policy.signers(&artifact, wanted, &reference.repository, registries);
        let signers = signers.await.map_err(|error| match error {
            Error::Failed(why) => {
                counters.refused.fetch_add(1, Ordering::Relaxed);
                Failure::Refused(why)
            }
            Error::Machine(why) => failed(unverified(&why)),
        })?;
        counters.pulled.fetch_add(1, Ordering::Relaxed);
        let digest = &artifact.digest;
        tracing::info!(%reference, digest, octets = artifact.module.len(), "pulled a module");
        if let Err(error) = self.kept.store(&artifact, registries.keep, &self.used(known)) {
            tracing::warn!(%reference, %error, "cannot keep a module: the next start will pull it again");
        }
        self.newest.lock().insert(reference.clone(), artifact.clone());
        Ok(Some((artifact, signers)))
    }

    /// Returns the digests of the artifacts that must stay on disk: those that answer queries, those that
    /// will, and the one that is `known`.
    fn used(&self, known: Option<&str>) -> Vec<String> {
        let mut used = self.accepted.lock().clone();
        let newest = self.newest.lock();
        used.extend(newest.values().map(|artifact| artifact.digest.clone()));
        used.extend(known.map(str::to_owned));
        used
    }

    /// Marks `config` as the one that answers queries: its tags stand for its artifacts, and are polled.
    pub fn accept(&self, config: &Config) {
        let mut wanted: Vec<(Reference, Vec<SignedBy>)> = Vec::new();
        let (mut references, mut digests) = (Vec::new(), Vec::new());
        for filter in &config.filters {
            let (Module::Artifact(reference), Some(artifact)) = (&filter.module, &filter.artifact) else {
                continue;
            };
            references.push(reference);
            digests.push(artifact.digest.clone());
            if !reference.is_movable() {
                continue;
            }
            if let Err(error) = self.kept.point(reference, &artifact.digest) {
                tracing::warn!(%reference, %error, "cannot store which module a tag names");
            }
            match wanted.iter_mut().find(|(known, _)| known == reference) {
                Some((_, all)) => all.push(filter.signed_by.clone()),
                None => wanted.push((reference.clone(), vec![filter.signed_by.clone()])),
            }
        }
        // Without tags of its own, a configuration adds none.
        if !wanted.is_empty()
            && let Err(error) = self.kept.forget_others(&references)
        {
            tracing::warn!(%error, "cannot remove tags that are no longer in use");
        }
        *self.accepted.lock() = digests;
        self.newest
            .lock()
            .retain(|reference, _| references.contains(&reference));
        self.errors
            .lock()
            .retain(|reference, _| references.contains(&reference));
        self.tags.send_replace(Arc::new(Tags {
            registries: config.registries.clone(),
            policy: Policy::from(&config.signatures),
            wanted,
        }));
    }

    /// Resolves when a tag has moved and the new artifact is ready.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Polls the tags of the configuration that answers queries, first immediately and then every `interval`.
    /// Never ends.
    pub async fn look(&self) {
        let mut changes = self.tags.subscribe();
        let mut last: Option<Instant> = None;
        loop {
            let tags = Arc::clone(&changes.borrow_and_update());
            let due = last.map_or_else(Instant::now, |last| last + tags.registries.interval);
            let is_due = async {
                match tags.wanted.is_empty() {
                    true => std::future::pending().await,
                    false => sleep_until(due).await,
                }
            };
            tokio::select! {
                () = is_due => {}
                changed = changes.changed() => match changed {
                    Ok(()) => continue,
                    // Cannot happen: `self` holds the sender.
                    Err(_) => return,
                },
            }
            for (reference, wanted) in &tags.wanted {
                self.look_at(reference, wanted, &tags).await;
            }
            last = Some(Instant::now());
        }
    }

    async fn look_at(&self, reference: &Reference, wanted: &[SignedBy], tags: &Tags) {
        let known = self
            .newest
            .lock()
            .get(reference)
            .map(|artifact| artifact.digest.clone());
        let pulled = self.pull_new(
            reference,
            &tags.registries,
            &tags.policy,
            wanted,
            known.as_deref(),
        );
        let problem = match pulled.await {
            Ok(new) => {
                self.errors.lock().remove(reference);
                if new.is_some() {
                    self.moved.notify_one();
                }
                return;
            }
            Err(Failure::Pull(why)) => format!("the tag cannot be checked: {why}"),
            Err(Failure::Refused(why)) => {
                format!("the tag has moved, but the new module is not accepted: {why}")
            }
        };
        tracing::warn!("{reference}: {problem}");
        self.errors.lock().insert(reference.clone(), problem);
    }

    /// Returns why the last check of a reference's tag failed, if it did.
    pub fn error(&self, reference: &Reference) -> Option<String> {
        self.errors.lock().get(reference).cloned()
    }

    /// Adds the metrics.
    pub fn show(&self, metrics: &mut Metrics) {
        let help = "Requests to a registry for a module, by result";
        let pulls = metrics.counter("module_pulls", help);
        let counters = &self.counters;
        for (result, count) in [
            ("unchanged", &counters.unchanged),
            ("pulled", &counters.pulled),
            ("refused", &counters.refused),
            ("failed", &counters.failed),
        ] {
            pulls.add(&[("result", result)], count.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::artifact::tests::artifact;
    use super::*;

    /// Neither of two newer ones has answered a query: the first was refused by the reload, the second by its
    /// signature.
    #[test]
    fn what_answers_queries_is_in_use_whatever_was_pulled_since() {
        let text = "listen \"127.0.0.1\"\nfilter \"f\" { module \"oci://r.example/a:1\" }\n\
                    zone \".\" { use \"f\"; forward \"192.0.2.1\" }";
        let mut config = crate::config::parse("test.kdl", text, Path::new("/"), &[]).unwrap();
        let [answering, newer, newest] = [artifact(b"one"), artifact(b"two"), artifact(b"six")];
        config.filters[0].artifact = Some(Delivered {
            digest: answering.digest.clone(),
            signer: None,
        });
        let deliveries = Deliveries::new(None);
        deliveries.accept(&config);
        let reference = Reference::parse("oci://r.example/a:1").unwrap().unwrap();
        deliveries.newest.lock().insert(reference, newest.clone());
        let used = deliveries.used(Some(&newer.digest));
        for artifact in [answering, newer, newest] {
            assert!(used.contains(&artifact.digest), "{:?}", artifact.module);
        }
    }
}
