//! From references in a configuration to the modules that they name, at the start, with a reload, and when a tag moves.
//!
//! Nothing here is on the way of a query. A module that is kept is taken without asking anybody; only one that is not is
//! waited for, by the start or the reload that needs it. Tags are looked at aside. What is pulled counts only once it is
//! held against its digests and signatures; it then goes the way of a changed file, and the tag on disk
//! goes on standing for what answered queries last until the new one does.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::artifact::Artifact;
use super::kept::Kept;
use super::pull::{Pulled, pull};
use super::signature::Policy;
use crate::config::{Config, Delivered, Diagnostic, Module, Reference, Registries, Report, SignedBy, Signer};
use crate::figures::Figures;
use crate::private_folder::PrivateFolder;

/// What to do about a registry whose name is not found.
const RESOLVER: &str = "registries are found by the resolver in /etc/resolv.conf, which must not be dnsweir alone: name another one there, or write the registry into /etc/hosts, or a `mirror` by its address";

/// What looking at tags and pulling led to.
#[derive(Debug, Default)]
struct Counters {
    unchanged: AtomicU64,
    pulled: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// Delivers modules, and looks at tags.
#[derive(Debug)]
pub struct Deliveries {
    kept: Kept,
    /// The newest artifact that each reference is known to have named.
    newest: Mutex<HashMap<Reference, Artifact>>,
    /// Why a tag was last looked at in vain.
    errors: Mutex<HashMap<Reference, String>>,
    /// What is looked at.
    tags: watch::Sender<Arc<Tags>>,
    /// A tag has moved.
    moved: Notify,
    counters: Counters,
}

/// The tags of a configuration, and how they are looked at.
#[derive(Debug, Default)]
struct Tags {
    registries: Registries,
    policy: Policy,
    /// Each with what every filter that uses it wants of its signers.
    wanted: Vec<(Reference, Vec<SignedBy>)>,
}

/// Why there is no artifact.
enum Failure {
    /// It did not come.
    Pull(String),
    /// It came, and is not taken.
    Refused(String),
}

impl Deliveries {
    /// Keeps artifacts in `folder`.
    pub fn new(folder: Option<PrivateFolder>) -> Arc<Deliveries> {
        Arc::new(Deliveries {
            kept: Kept::new(folder),
            newest: Mutex::default(),
            errors: Mutex::default(),
            tags: watch::Sender::default(),
            moved: Notify::new(),
            counters: Counters::default(),
        })
    }

    /// Gives each filter of `config` whose module is an artifact its code. Dropped, it ends at once.
    ///
    /// # Errors
    /// For each that cannot be had or is not taken.
    pub async fn deliver(&self, config: &mut Config) -> Result<(), Report> {
        let policy = Policy::new(&config.signatures).map_err(|wrong| config.report(wrong))?;
        let mut mistakes = Vec::new();
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

    /// The artifact that a reference names, and who has signed it.
    async fn artifact(
        &self,
        reference: &Reference,
        registries: &Registries,
        policy: &Policy,
        wants: &SignedBy,
    ) -> Result<(Artifact, Option<Signer>), String> {
        let known = self.newest.lock().get(reference).cloned();
        let known = known.or_else(|| self.kept.find(reference));
        let mut refused = None;
        if let Some(artifact) = known {
            match policy.signer(&artifact, wants, &reference.repository) {
                Ok(signer) => {
                    self.newest.lock().insert(reference.clone(), artifact.clone());
                    return Ok((artifact, signer));
                }
                // It may have been signed since.
                Err(why) => refused = Some(why),
            }
        }
        match self
            .pull_new(reference, registries, policy, std::slice::from_ref(wants), None)
            .await
        {
            Ok(Some(artifact)) => {
                let signer = policy.signer(&artifact, wants, &reference.repository)?;
                Ok((artifact, signer))
            }
            Ok(None) => Err("the registry has nothing new".into()),
            Err(Failure::Refused(why)) => Err(why),
            Err(Failure::Pull(why)) => Err(match refused {
                Some(refused) => format!("{refused}; and it cannot be pulled again: {why}"),
                None => format!("it cannot be pulled: {why}"),
            }),
        }
    }

    /// Pulls what a reference names unless that is `known`, and keeps it if its signers are whom all of `wanted` want.
    async fn pull_new(
        &self,
        reference: &Reference,
        registries: &Registries,
        policy: &Policy,
        wanted: &[SignedBy],
        known: Option<&str>,
    ) -> Result<Option<Artifact>, Failure> {
        let counters = &self.counters;
        let pulled = pull(reference, registries, known, policy.asks())
            .await
            .map_err(|why| {
                counters.failed.fetch_add(1, Ordering::Relaxed);
                Failure::Pull(why)
            })?;
        let Pulled::New(artifact) = pulled else {
            counters.unchanged.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        if let Some(why) = wanted
            .iter()
            .find_map(|wants| policy.signer(&artifact, wants, &reference.repository).err())
        {
            counters.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Failure::Refused(why));
        }
        counters.pulled.fetch_add(1, Ordering::Relaxed);
        let digest = &artifact.digest;
        tracing::info!(%reference, digest, octets = artifact.module.len(), "pulled a module");
        let mut used: Vec<String> = self
            .newest
            .lock()
            .values()
            .map(|artifact| artifact.digest.clone())
            .collect();
        used.extend(known.map(str::to_owned));
        if let Err(error) = self.kept.store(&artifact, registries.keep, &used) {
            tracing::warn!(%reference, %error, "cannot keep a module: the next start will pull it again");
        }
        self.newest.lock().insert(reference.clone(), artifact.clone());
        Ok(Some(artifact))
    }

    /// From now on `config` answers queries: its tags stand for what it has, and are looked at.
    pub fn accept(&self, config: &Config) {
        let mut wanted: Vec<(Reference, Vec<SignedBy>)> = Vec::new();
        let mut references = Vec::new();
        for filter in &config.filters {
            let (Module::Artifact(reference), Some(artifact)) = (&filter.module, &filter.artifact) else {
                continue;
            };
            references.push(reference);
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
        self.newest
            .lock()
            .retain(|reference, _| references.contains(&reference));
        self.errors
            .lock()
            .retain(|reference, _| references.contains(&reference));
        // It has been read before, when these were delivered. Were it not to be read now, no tag would be followed.
        let (policy, wanted) = match Policy::new(&config.signatures) {
            Ok(policy) => (policy, wanted),
            Err(_) => (Policy::default(), Vec::new()),
        };
        self.tags.send_replace(Arc::new(Tags {
            registries: config.registries.clone(),
            policy,
            wanted,
        }));
    }

    /// Resolves when a tag has moved and what it names now is there.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Looks at the tags of the configuration that answers queries, at first at once and then every `interval`. Never ends.
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
                    // Whoever sends is ourselves.
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

    /// Why the tag of a reference was last looked at in vain, if it was.
    pub fn error(&self, reference: &Reference) -> Option<String> {
        self.errors.lock().get(reference).cloned()
    }

    /// Adds what happened.
    pub fn show(&self, figures: &mut Figures) {
        let help = "Requests to a registry for a module, by result";
        let pulls = figures.counter("module_pulls", help);
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
