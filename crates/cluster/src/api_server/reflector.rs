//! Follows the objects of one kind: lists them once, then receives changes only.
//!
//! A broken connection resumes where it ended. Everything is listed again if the API server no longer
//! remembers that version, sent something unreadable, or went back in time; and periodically, in case
//! something was missed.

use std::fmt::{Debug, Display};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, pin_mut};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Error, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::followed::Followed;

/// Objects per page of a list.
const PAGE: u32 = 500;

/// How long the API server should keep a watch open, in seconds.
const WATCH_SECONDS: u32 = 290;

/// A watch that has not ended by then is dead.
const WATCH_LIMIT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// A watch that ends sooner has failed.
const SHORTEST: Duration = Duration::from_millis(500);

/// The deadline for any other response.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// The pause after a first failure; it doubles with each further one, up to a limit.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The longest time between two lists of everything.
const LISTED_AGAIN: Duration = Duration::from_secs(3600);

/// The code for a version that the API server no longer remembers.
const GONE: u16 = 410;

/// The client's code for a message that is neither an event nor an error.
const UNREAD: u16 = 0;

/// A change to the objects of a kind.
#[derive(Debug)]
pub enum Change<T> {
    /// A list of all objects begins.
    ListBegins,
    /// This object exists: it was listed, added or changed.
    Object(Box<str>, Reading<T>),
    /// This one is gone.
    Gone(Box<str>),
    /// The list is complete: objects it did not name are gone.
    ListEnds,
}

/// What an object says.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// This.
    Present(T),
    /// Nothing of interest.
    Nothing,
    /// Nothing new: what was known of it stays.
    Unchanged,
}

/// Which objects to follow and where changes go: `read` reads an object, `tell` turns that into a message.
pub(crate) struct Reflector<'a, K, N, R, T> {
    /// The API of the objects' kind.
    pub api: Api<K>,
    /// Label selector, if any.
    pub labels: Option<&'a str>,
    /// Field selector, if any.
    pub fields: Option<&'a str>,
    /// Counters and health.
    pub followed: &'a Followed,
    /// Notified of each failure.
    pub failure: &'a Notify,
    /// Receives the changes.
    pub news: mpsc::Sender<N>,
    /// Reads an object. After an error, its last valid version stays.
    pub read: R,
    /// Turns a change into a message.
    pub tell: T,
}

/// Why following has to be retried.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{}", words(.0))]
    Client(#[from] Error),
    #[error("no answer within a minute")]
    Silent(#[from] tokio::time::error::Elapsed),
    #[error("what it listed has no version")]
    Versionless,
    /// The API server was restored from a backup, so changes since then are undone.
    #[error("its resource versions went back: listing everything again")]
    WentBack,
    #[error("the watch ended at once")]
    Short,
    /// The receiver is gone.
    #[error("the proxy goes on without it")]
    Unwanted,
}

impl<K, N, R, T, Object, Malformed> Reflector<'_, K, N, R, T>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    R: Fn(K) -> Result<Reading<Object>, Malformed>,
    T: Fn(Change<Object>) -> N,
    Malformed: Display,
{
    /// Runs until the receiver is gone. `version` is the last one received, and outlives this call.
    pub async fn run(&self, version: &mut Option<String>) {
        let mut failures = 0;
        let mut list_by = next_list();
        loop {
            let begun = Instant::now();
            if begun >= list_by {
                *version = None;
            }
            if version.is_none() {
                list_by = next_list();
            }
            let failure = match self.follow(version, &mut failures).await {
                // The API server closes watches after minutes; one that ends immediately has failed.
                Ok(()) if begun.elapsed() < SHORTEST => Failure::Short,
                Ok(()) => continue,
                Err(failure) => failure,
            };
            if let Failure::Unwanted = failure {
                return;
            }
            if failure.forgets() {
                *version = None;
            }
            failures += 1;
            self.followed.failed(failure.to_string());
            self.failure.notify_one();
            let pause = FIRST_PAUSE
                .saturating_mul(1 << (failures - 1).min(10))
                .min(LONGEST_PAUSE);
            // Jitter: ten thousand proxies that lost the same API server must not return at once.
            let pause = pause.mul_f64(rand::random_range(0.5..1.0));
            tokio::time::sleep(pause.max(failure.retry_after())).await;
        }
    }

    /// Lists if necessary, then watches until the watch ends.
    async fn follow(&self, version: &mut Option<String>, failures: &mut u32) -> Result<(), Failure> {
        let from = match version {
            Some(version) => version.clone(),
            None => {
                let listed = self.list().await?;
                version.insert(listed).clone()
            }
        };
        let parameters = WatchParams {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.fields.map(str::to_owned),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        };
        let events = timeout(ANSWER_LIMIT, self.api.watch(&parameters, &from)).await??;
        pin_mut!(events);
        let mut patience = SHORTEST;
        loop {
            match timeout(patience, events.next()).await {
                Ok(Some(event)) => self.event(event?, version).await?,
                // A watch that stays open for this long works.
                Err(_) if patience == SHORTEST => {}
                Ok(None) | Err(_) => return Ok(()),
            }
            patience = WATCH_LIMIT;
            *failures = 0;
            self.followed.heard();
        }
    }

    async fn event(&self, event: WatchEvent<K>, version: &mut Option<String>) -> Result<(), Failure> {
        self.followed.events.fetch_add(1, Relaxed);
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let is_now = object.resource_version();
                self.object(object).await?;
                advance(version, is_now)?;
            }
            WatchEvent::Deleted(object) => {
                self.send(Change::Gone(key(&object))).await?;
                advance(version, object.resource_version())?;
            }
            WatchEvent::Bookmark(bookmark) => advance(version, Some(bookmark.metadata.resource_version))?,
            WatchEvent::Error(status) => return Err(Error::Api(status).into()),
        }
        Ok(())
    }

    /// Lists all objects, and returns the list's version.
    async fn list(&self) -> Result<String, Failure> {
        self.send(Change::ListBegins).await?;
        let mut parameters = ListParams {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.fields.map(str::to_owned),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        loop {
            let page = timeout(ANSWER_LIMIT, self.api.list(&parameters)).await??;
            for object in page.items {
                self.object(object).await?;
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => {
                    let version = page
                        .metadata
                        .resource_version
                        .filter(|version| !version.is_empty());
                    let version = version.ok_or(Failure::Versionless)?;
                    self.followed.listed();
                    self.send(Change::ListEnds).await?;
                    return Ok(version);
                }
            }
        }
    }

    async fn object(&self, object: K) -> Result<(), Failure> {
        let key = key(&object);
        let reading = match (self.read)(object) {
            Ok(reading) => reading,
            Err(malformed) => {
                let stays = format!("{key}: {malformed}: its last valid version is kept");
                self.followed.refuse(&stays);
                Reading::Unchanged
            }
        };
        self.send(Change::Object(key, reading)).await
    }

    async fn send(&self, change: Change<Object>) -> Result<(), Failure> {
        let sent = self.news.send((self.tell)(change)).await;
        sent.map_err(|_| Failure::Unwanted)
    }
}

/// When the next list is due. Ten thousand proxies that started together do not list together.
fn next_list() -> Instant {
    Instant::now() + LISTED_AGAIN.mul_f64(rand::random_range(0.5..1.0))
}

/// Records a received version. Versions are growing numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>), unless the store was
/// restored from a backup.
fn advance(version: &mut Option<String>, heard: Option<String>) -> Result<(), Failure> {
    let Some(heard) = heard else { return Ok(()) };
    let number = |version: &str| version.parse::<u128>().ok();
    let known = version.as_deref().and_then(number);
    if number(&heard)
        .zip(known)
        .is_some_and(|(heard, known)| heard < known)
    {
        return Err(Failure::WentBack);
    }
    *version = Some(heard);
    Ok(())
}

impl Failure {
    /// Returns whether changes may have been missed, so that everything has to be listed again.
    fn forgets(&self) -> bool {
        match self {
            Failure::Client(Error::Api(status)) => status.code == GONE || status.code == UNREAD,
            Failure::Client(Error::SerdeError(_) | Error::FromUtf8(_))
            | Failure::Versionless
            | Failure::WentBack => true,
            _ => false,
        }
    }

    /// How long the API server asks us to wait.
    fn retry_after(&self) -> Duration {
        let Failure::Client(Error::Api(status)) = self else {
            return Duration::ZERO;
        };
        let details = status.details.as_ref();
        let seconds = details.map_or(0, |details| details.retry_after_seconds);
        Duration::from_secs(seconds.into()).min(ANSWER_LIMIT)
    }
}

fn key<K: ResourceExt>(object: &K) -> Box<str> {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()).into(),
        None => object.name_any().into(),
    }
}

/// The API server's message, or an error with its causes.
fn words(error: &Error) -> String {
    match error {
        Error::Api(status) if status.code == UNREAD => {
            "it sent something that is not a Kubernetes event".into()
        }
        Error::Api(status) => format!("{} {}: {}", status.code, status.reason, status.message),
        error => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                let more = error.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                cause = error.source();
            }
            text
        }
    }
}
