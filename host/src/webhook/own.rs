//! A self-signed certificate that the webhook creates and gives to the API server.
//!
//! All replicas share it in a Secret. A replica that finds no certificate, or one that will expire, writes a
//! new one, conditional on the version of the Secret that it has read: only one of several succeeds, and the
//! others read its result. The API server trusts the certificates in `caBundle`. Each replica makes sure that
//! this contains the new certificate and the previous one, waits until every API server knows, and only then
//! serves the new one. So whatever a replica serves is trusted at any time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::served::Served;
use crate::tls::{Identity, certificates, self_signed};

/// How often to check the Secret and the webhook configuration.
const CHECK: Duration = Duration::from_secs(30);

/// The delay before retrying a failed check.
const RETRY: Duration = Duration::from_secs(3);

/// Timeout of a request to the API server.
const ANSWER: Duration = Duration::from_secs(10);

/// How long a certificate is valid.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Seconds before expiry at which a new certificate is made.
const EARLY: i64 = 120 * 24 * 3600;

/// The time until every replica has checked a changed `caBundle` and every API server knows it.
const KNOWN: Duration = Duration::from_secs(60);

/// Keys in the Secret: those of type `kubernetes.io/tls`, and the previous certificate.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BEFORE: &str = "before.crt";

/// How many times to read and change an object if another replica changes it first.
const ATTEMPTS: usize = 4;

/// HTTP status of a conflicting change.
const CONFLICT: u16 = 409;

/// Keeps the certificate current.
pub struct Own {
    client: Client,
    namespace: String,
    /// The name of the Service, the Secret and the MutatingWebhookConfiguration.
    name: String,
    served: Served,
    /// The certificate being served.
    shown: Option<Kept>,
}

/// The contents of the Secret.
struct Kept {
    certificate: String,
    identity: Identity,
    before: String,
}

impl Own {
    /// Makes one for the objects with this name, in the namespace of this pod.
    ///
    /// # Errors
    /// When this is not a pod with a service account.
    pub fn new(name: String, served: Served) -> Result<Own, String> {
        let mut config = kube::Config::incluster().map_err(|error| {
            format!("there is no service account ({error}): run in a pod that has one, or name files with --certificate and --key")
        })?;
        config.connect_timeout = Some(ANSWER);
        config.read_timeout = Some(ANSWER);
        // This module decides when to retry.
        config.default_retry = false;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| error.to_string())?;
        Ok(Own {
            client,
            namespace,
            name,
            served,
            shown: None,
        })
    }

    /// Keeps the certificate current forever.
    pub async fn keep(mut self) {
        loop {
            let pause = match self.check().await {
                Ok(()) => CHECK,
                Err(problem) => {
                    self.served.failed(&problem);
                    RETRY
                }
            };
            sleep(pause).await;
        }
    }

    /// Makes sure that the Secret has a certificate, that the API server trusts it, and that it is served.
    async fn check(&mut self) -> Result<(), String> {
        let kept = self.kept().await?;
        self.make_trusted(&kept).await?;
        match &self.shown {
            Some(shown) if shown.identity == kept.identity => return Ok(()),
            Some(_) => sleep(KNOWN).await,
            None => {}
        }
        self.served.serve(&kept.identity)?;
        self.shown = Some(kept);
        Ok(())
    }

    fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// Reads the Secret; writes a certificate if there is no usable one.
    async fn kept(&self) -> Result<Kept, String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let about = |error: &kube::Error| format!("secret {}/{}: {error}", self.namespace, self.name);
        for _ in 0..ATTEMPTS {
            let secret = secrets.get(&self.name).await.map_err(|error| about(&error))?;
            let now = now();
            let known = match Kept::read(&secret) {
                Some(kept) if kept.is_good(&self.host(), now) => return Ok(kept),
                known => known,
            };
            // Replicas still serve the current one if it was removed from the Secret.
            let before = known.as_ref().or(self.shown.as_ref());
            let before = before.map_or("", |kept| &kept.certificate);
            let (certificate, key) = self_signed(&[self.host()], now, LIFETIME)?;
            let encoded = |text: &str| STANDARD.encode(text);
            let patch = json!({
                "metadata": {"resourceVersion": secret.resource_version()},
                "data": {CERTIFICATE: encoded(&certificate), KEY: encoded(&key), BEFORE: encoded(before)},
            });
            let params = PatchParams::default();
            match secrets.patch(&self.name, &params, &Patch::Merge(patch)).await {
                Ok(_) => tracing::info!(host = self.host(), "created a certificate"),
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                Err(error) => return Err(about(&error)),
            }
        }
        Err(format!(
            "secret {}/{}: another client keeps changing it",
            self.namespace, self.name
        ))
    }

    /// Makes the API server trust exactly this certificate and the previous one.
    async fn make_trusted(&self, kept: &Kept) -> Result<(), String> {
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let about = |error: kube::Error| format!("mutatingwebhookconfiguration {}: {error}", self.name);
        for _ in 0..ATTEMPTS {
            let configuration = configurations.get(&self.name).await.map_err(about)?;
            let Some(patch) = kept.correction(&configuration) else {
                return Ok(());
            };
            let params = PatchParams::default();
            match configurations
                .patch(&self.name, &params, &Patch::Strategic(patch))
                .await
            {
                Ok(_) => tracing::info!(
                    configuration = self.name,
                    "registered the certificate with the API server"
                ),
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                Err(error) => return Err(about(error)),
            }
        }
        Err(format!(
            "mutatingwebhookconfiguration {}: another client keeps changing it",
            self.name
        ))
    }
}

impl Kept {
    /// Reads the Secret; `None` if there is nothing usable in it.
    fn read(secret: &Secret) -> Option<Kept> {
        let data = secret.data.as_ref()?;
        let text = |part: &str| Some(data.get(part)?.0.as_slice());
        let certificate = text(CERTIFICATE)?;
        let identity = Identity::from_pem(certificate, text(KEY)?)
            .inspect_err(|(_, problem)| {
                tracing::warn!("the certificate in the secret {problem}: making another")
            })
            .ok()?;
        // If invalid, it would prevent the API server from using the other.
        let before = text(BEFORE).filter(|pem| certificates(pem).is_ok());
        Some(Kept {
            certificate: String::from_utf8(certificate.to_vec()).ok()?,
            identity,
            before: String::from_utf8_lossy(before.unwrap_or_default()).into_owned(),
        })
    }

    /// Whether it is for this host, and valid long enough.
    fn is_good(&self, host: &str, now: i64) -> bool {
        let expires = self.identity.expires.unwrap_or(i64::MIN);
        self.identity.name.as_deref() == Some(host) && expires.saturating_sub(EARLY) > now
    }

    /// The certificates that the API server must trust.
    fn bundle(&self) -> String {
        format!("{}{}", self.certificate, self.before)
    }

    /// The patch for a configuration that trusts anything else; `None` if it is correct.
    fn correction(&self, configuration: &MutatingWebhookConfiguration) -> Option<Value> {
        let bundle = self.bundle();
        let webhooks = configuration.webhooks.iter().flatten();
        let wrong = webhooks.filter(|webhook| {
            let known = webhook.client_config.ca_bundle.as_ref();
            known.is_none_or(|known| known.0 != bundle.as_bytes())
        });
        // Entries are merged by name; their other fields are kept.
        let corrected: Vec<Value> = wrong
            .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": STANDARD.encode(&bundle)}}))
            .collect();
        (!corrected.is_empty()).then(|| {
            json!({
                "metadata": {"resourceVersion": configuration.resource_version()},
                "webhooks": corrected,
            })
        })
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, WebhookClientConfig};

    use super::*;

    const HOST: &str = "dnsweir-webhook.kube-system.svc";

    fn secret(parts: &[(&str, &str)]) -> Secret {
        let data = parts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), ByteString(text.as_bytes().to_vec())));
        Secret {
            data: Some(data.collect()),
            ..Secret::default()
        }
    }

    fn made(at: i64) -> (String, String) {
        self_signed(&[HOST.to_owned()], at, LIFETIME).unwrap()
    }

    #[test]
    fn a_certificate_is_kept_until_it_is_time() {
        let (certificate, key) = made(now());
        let kept = Kept::read(&secret(&[(CERTIFICATE, &certificate), (KEY, &key)])).unwrap();
        assert!(kept.is_good(HOST, now()));
        assert!(!kept.is_good("other.kube-system.svc", now()));
        let end = now() + i64::try_from(LIFETIME.as_secs()).unwrap();
        assert!(kept.is_good(HOST, end - EARLY - 60));
        assert!(!kept.is_good(HOST, end - EARLY + 60));
    }

    #[test]
    fn what_cannot_be_used_is_as_good_as_nothing() {
        let ((certificate, key), (other, _)) = (made(now()), made(now()));
        for parts in [
            vec![],
            vec![(CERTIFICATE, &*certificate)],
            vec![(CERTIFICATE, &*other), (KEY, &*key)],
            vec![(CERTIFICATE, "x"), (KEY, &*key)],
            vec![(CERTIFICATE, &*certificate), (KEY, "")],
        ] {
            assert!(Kept::read(&secret(&parts)).is_none(), "{parts:?}");
        }
        assert!(Kept::read(&Secret::default()).is_none());
        // It would prevent the API server from reading the rest.
        let broken = [(CERTIFICATE, &*certificate), (KEY, &*key), (BEFORE, "x")];
        assert_eq!(Kept::read(&secret(&broken)).unwrap().bundle(), certificate);
    }

    #[test]
    fn the_api_server_is_told_of_both_where_it_does_not_know() {
        let ((certificate, key), (before, _)) = (made(now()), made(now()));
        let parts = [(CERTIFICATE, &*certificate), (KEY, &*key), (BEFORE, &*before)];
        let kept = Kept::read(&secret(&parts)).unwrap();
        let webhook = |name: &str, bundle: Option<&str>| MutatingWebhook {
            name: name.into(),
            client_config: WebhookClientConfig {
                ca_bundle: bundle.map(|bundle| ByteString(bundle.as_bytes().to_vec())),
                ..WebhookClientConfig::default()
            },
            ..MutatingWebhook::default()
        };
        let both = certificate.clone() + &before;
        let knowing = webhook("knows", Some(&both));
        let mut configuration = MutatingWebhookConfiguration {
            webhooks: Some(vec![
                knowing.clone(),
                webhook("empty", None),
                webhook("half", Some(&before)),
            ]),
            ..MutatingWebhookConfiguration::default()
        };
        let correction = kept.correction(&configuration).unwrap();
        let bundle = STANDARD.encode(&both);
        let told = |name: &str| json!({"name": name, "clientConfig": {"caBundle": bundle}});
        assert_eq!(correction["webhooks"], json!([told("empty"), told("half")]));
        configuration.webhooks = Some(vec![knowing]);
        assert_eq!(kept.correction(&configuration), None);
    }
}
