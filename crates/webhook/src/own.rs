//! A self-signed certificate that the webhook creates and gives to the API server.
//!
//! All replicas share it in a Secret. A replica that finds no certificate, or one that will expire, writes a
//! new one, conditional on the version of the Secret that it has read: only one of several succeeds, and the
//! others read its result. The API server trusts the certificates in `caBundle`. Each replica makes sure that
//! this contains the new certificate and the previous one, waits until every API server knows, and only then
//! serves the new one. So whatever a replica serves is trusted at any time.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dnsweir_cluster::api_server::{Client, Error, Metadata, Session, Status};
use dnsweir_config::tls::{Identity, certificates, self_signed};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::served::Served;

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

/// The media types of patches (<https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply>).
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Keeps the certificate current.
pub struct Own {
    client: Client,
    /// The name of the Service, the Secret and the MutatingWebhookConfiguration.
    name: String,
    served: Rc<Served>,
    /// The certificate being served.
    shown: Option<Kept>,
}

/// The contents of the Secret.
struct Kept {
    certificate: String,
    identity: Identity,
    before: String,
}

/// A Secret, whose values are in base 64.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Secret {
    metadata: Metadata,
    data: Option<BTreeMap<String, String>>,
}

/// A `MutatingWebhookConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Configuration {
    metadata: Metadata,
    webhooks: Option<Vec<Webhook>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    name: String,
    client_config: ClientConfig,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientConfig {
    /// In base 64.
    ca_bundle: Option<String>,
}

impl Own {
    /// Makes one for the objects with this name, in the namespace of this pod.
    ///
    /// # Errors
    /// When this is not a pod with a service account.
    pub async fn new(name: String, served: Rc<Served>) -> Result<Own, String> {
        let client = Client::connect(None).await.map_err(|problem| {
            format!("{problem}: run in a pod that has one, or name files with --certificate and --key")
        })?;
        Ok(Own {
            client,
            name,
            served,
            shown: None,
        })
    }

    /// Keeps the certificate current forever.
    pub async fn keep(mut self) {
        loop {
            let mut checked = self.check().await;
            while let Err(problem) = checked {
                self.served.failed(&problem);
                sleep(RETRY).await;
                checked = self.check_again().await;
            }
            sleep(CHECK).await;
        }
    }

    /// Checks with another client: the authority of the API server may have changed.
    async fn check_again(&mut self) -> Result<(), String> {
        self.client = Client::connect(None).await?;
        self.check().await
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
        format!("{}.{}.svc", self.name, self.client.namespace())
    }

    /// Reads the Secret; writes a certificate if there is no usable one.
    async fn kept(&self) -> Result<Kept, String> {
        let (namespace, name) = (self.client.namespace(), &self.name);
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let about = |error: Error| format!("secret {namespace}/{name}: {error}");
        let mut session = self.client.session();
        for _ in 0..ATTEMPTS {
            let secret: Secret = get(&mut session, &path).await.map_err(about)?;
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
                "metadata": {"resourceVersion": secret.metadata.resource_version},
                "data": {CERTIFICATE: encoded(&certificate), KEY: encoded(&key), BEFORE: encoded(before)},
            });
            if change(&mut session, &path, MERGE, &patch).await.map_err(about)? {
                tracing::info!(host = self.host(), "created a certificate");
            }
        }
        Err(format!(
            "secret {namespace}/{name}: another client keeps changing it"
        ))
    }

    /// Makes the API server trust exactly this certificate and the previous one.
    async fn make_trusted(&self, kept: &Kept) -> Result<(), String> {
        let name = &self.name;
        let path = format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}");
        let about = |error: Error| format!("mutatingwebhookconfiguration {name}: {error}");
        let mut session = self.client.session();
        for _ in 0..ATTEMPTS {
            let configuration: Configuration = get(&mut session, &path).await.map_err(about)?;
            let Some(patch) = kept.correction(&configuration) else {
                return Ok(());
            };
            if change(&mut session, &path, STRATEGIC, &patch)
                .await
                .map_err(about)?
            {
                tracing::info!(
                    configuration = name,
                    "registered the certificate with the API server"
                );
            }
        }
        Err(format!(
            "mutatingwebhookconfiguration {name}: another client keeps changing it"
        ))
    }
}

async fn get<T: DeserializeOwned>(session: &mut Session, path: &str) -> Result<T, Error> {
    timeout(ANSWER, session.get(path))
        .await
        .unwrap_or(Err(Error::Silent(ANSWER)))
}

/// Changes an object. Returns whether that succeeded: otherwise another client has changed it first.
async fn change(session: &mut Session, path: &str, kind: &'static str, patch: &Value) -> Result<bool, Error> {
    let changed = timeout(ANSWER, session.patch(path, kind, patch)).await;
    match changed.unwrap_or(Err(Error::Silent(ANSWER))) {
        Ok(()) => Ok(true),
        Err(Error::Refused(Status { code: CONFLICT, .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Kept {
    /// Reads the Secret; `None` if there is nothing usable in it.
    fn read(secret: &Secret) -> Option<Kept> {
        let data = secret.data.as_ref()?;
        let text = |part: &str| STANDARD.decode(data.get(part)?).ok();
        let certificate = text(CERTIFICATE)?;
        let identity = Identity::from_pem(&certificate, &text(KEY)?)
            .inspect_err(|(_, problem)| {
                tracing::warn!("the certificate in the secret {problem}: making another")
            })
            .ok()?;
        // If invalid, it would prevent the API server from using the other.
        let before = text(BEFORE).filter(|pem| certificates(pem).is_ok());
        Some(Kept {
            certificate: String::from_utf8(certificate).ok()?,
            identity,
            before: String::from_utf8_lossy(&before.unwrap_or_default()).into_owned(),
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
    fn correction(&self, configuration: &Configuration) -> Option<Value> {
        let bundle = STANDARD.encode(self.bundle());
        let webhooks = configuration.webhooks.iter().flatten();
        let wrong = webhooks.filter(|webhook| webhook.client_config.ca_bundle.as_ref() != Some(&bundle));
        // Entries are merged by name; their other fields are kept.
        let corrected: Vec<Value> = wrong
            .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        (!corrected.is_empty()).then(|| {
            json!({
                "metadata": {"resourceVersion": configuration.metadata.resource_version},
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
    use super::*;

    const HOST: &str = "dnsweir-webhook.kube-system.svc";

    fn secret(parts: &[(&str, &str)]) -> Secret {
        let data = parts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), STANDARD.encode(text)));
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
        let webhook = |name: &str, bundle: Option<&str>| Webhook {
            name: name.into(),
            client_config: ClientConfig {
                ca_bundle: bundle.map(|bundle| STANDARD.encode(bundle)),
            },
        };
        let both = certificate.clone() + &before;
        let knowing = webhook("knows", Some(&both));
        let mut configuration = Configuration {
            webhooks: Some(vec![
                knowing.clone(),
                webhook("empty", None),
                webhook("half", Some(&before)),
            ]),
            ..Configuration::default()
        };
        let correction = kept.correction(&configuration).unwrap();
        let bundle = STANDARD.encode(&both);
        let told = |name: &str| json!({"name": name, "clientConfig": {"caBundle": bundle}});
        assert_eq!(correction["webhooks"], json!([told("empty"), told("half")]));
        configuration.webhooks = Some(vec![knowing]);
        assert_eq!(kept.correction(&configuration), None);
    }
}
