//! Follows the objects of one kind: lists them once, then receives changes only.
//!
//! A broken connection resumes where it ended, unless the API server turns out to be at an older version.
//! Everything is listed again in that case; if the API server no longer remembers the version, sent something
//! unreadable, or went back in time; and periodically, in case something was missed.

use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use url::form_urlencoded;

use super::client::{Client, Error, Session};
use super::followed::Followed;
use super::objects::{Event, HasMetadata, List};

/// Objects per page of a list.
const PAGE: u32 = 500;

/// How long the API server should keep a watch open. One that it ends sooner did not end because of its time.
const WATCH: Duration = Duration::from_secs(290);

/// How much sooner its clock may say so.
const CLOCKS: Duration = Duration::from_secs(1);

/// A watch that is silent for this long is dead: the API server sends bookmarks every minute.
const SILENCE: Duration = Duration::from_secs(150);

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

/// The code for what the user may not ask.
const FORBIDDEN: u16 = 403;

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

/// All objects of a kind in an API server.
pub(crate) struct Collection<K> {
    client: Client,
    path: Box<str>,
    of: PhantomData<fn() -> K>,
}

impl<K> Collection<K> {
    /// The collection at a path of the API.
    pub fn new(client: &Client, path: &str) -> Collection<K> {
        Collection {
            client: client.clone(),
            path: path.into(),
            of: PhantomData,
        }
    }
}

/// Which objects to follow and where changes go: `read` reads an object, `tell` turns that into a message.
pub(crate) struct Reflector<'a, K, N, R, T> {
    /// The objects of the kind.
    pub collection: Collection<K>,
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
    #[error("{0}")]
    Client(#[from] Error),
    #[error("the watch was silent for {} s", SILENCE.as_secs())]
    Dead,
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
    K: HasMetadata + DeserializeOwned,
    R: Fn(K) -> Result<Reading<Object>, Malformed>,
    T: Fn(Change<Object>) -> N,
    Malformed: Display,
{
    /// Runs until the receiver is gone. `version` is the last one received, and outlives this call.
    pub async fn run(&self, version: &mut Option<String>) {
        let mut session = self.collection.client.session();
        let mut failures = 0;
        let mut list_by = next_list();
        // A version from an earlier call was left behind by a failure.
        let mut doubtful = true;
        loop {
            if Instant::now() >= list_by {
                *version = None;
            }
            if version.is_none() {
                list_by = next_list();
            }
            // Boxed, since some reflectors run side by side in one future, which is moved into those around it. Unoptimized,
            // each of them has it on the stack once more.
            let followed = Box::pin(self.follow(&mut session, version, doubtful, &mut failures)).await;
            doubtful = !matches!(followed, Ok(open) if open + CLOCKS >= WATCH);
            let failure = match followed {
                // The API server closes watches after minutes; one that ends immediately has failed.
                Ok(open) if open < SHORTEST => Failure::Short,
                Ok(_) => continue,
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

    /// Lists if necessary, then watches until the watch ends. A `doubtful` version is checked before. Returns how
    /// long the watch was open.
    async fn follow(
        &self,
        session: &mut Session,
        version: &mut Option<String>,
        doubtful: bool,
        failures: &mut u32,
    ) -> Result<Duration, Failure> {
        if doubtful {
            self.check(session, version).await?;
        }
        let from = match version {
            Some(version) => version.clone(),
            None => {
                let listed = self.list(session).await?;
                version.insert(listed).clone()
            }
        };
        let path = self.path(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &WATCH.as_secs().to_string()),
            ("resourceVersion", &from),
        ]);
        let mut watch = answered(session.watch(&path)).await?;
        let begun = Instant::now();
        let mut patience = SHORTEST;
        loop {
            match timeout(patience, watch.next()).await {
                Ok(Ok(Some(event))) => self.event(event, version).await?,
                Ok(Ok(None)) => return Ok(begun.elapsed()),
                Ok(Err(error)) => return Err(error.into()),
                // A watch that stays open for this long works.
                Err(_) if patience == SHORTEST => {}
                Err(_) => return Err(Failure::Dead),
            }
            patience = SILENCE;
            *failures = 0;
            self.followed.heard();
        }
    }

    /// Forgets a version that the API server has not reached, since it was restored from a backup. A watch
    /// would not tell: the API server withholds everything that is not newer than the version it begins with.
    async fn check(&self, session: &mut Session, version: &mut Option<String>) -> Result<(), Failure> {
        let Some(known) = version else { return Ok(()) };
        if is_older(&self.newest(session).await?, known) {
            self.followed.failed(Failure::WentBack.to_string());
            *version = None;
        }
        Ok(())
    }

    /// The version that the API server's store has now.
    async fn newest(&self, session: &mut Session) -> Result<String, Failure> {
        // Without selectors: with them, an API server may have to read all objects to find one.
        let path = format!("{}?limit=1", self.collection.path);
        let page: List<IgnoredAny> = match answered(session.get(&path)).await {
            // Whoever may only list what they select.
            Err(Error::Refused(status)) if status.code == FORBIDDEN => {
                answered(session.get(&self.path(&[("limit", "1")]))).await?
            }
            page => page?,
        };
        given(page.metadata.resource_version)
    }

    async fn event(&self, event: Event<K>, version: &mut Option<String>) -> Result<(), Failure> {
        self.followed.events.fetch_add(1, Relaxed);
        match event {
            Event::Added(object) | Event::Modified(object) => {
                let is_now = object.metadata().resource_version.clone();
                self.object(object).await?;
                advance(version, is_now)?;
            }
            Event::Deleted(object) => {
                let metadata = object.metadata();
                self.send(Change::Gone(metadata.key())).await?;
                advance(version, metadata.resource_version.clone())?;
            }
            Event::Bookmark(bookmark) => advance(version, bookmark.metadata.resource_version)?,
            Event::Error(status) => return Err(Error::Refused(status).into()),
        }
        Ok(())
    }

    /// Lists all objects, and returns the list's version.
    async fn list(&self, session: &mut Session) -> Result<String, Failure> {
        self.send(Change::ListBegins).await?;
        let (mut next, mut limit) = (None, PAGE);
        loop {
            let objects = limit.to_string();
            let mut words = vec![("limit", &*objects)];
            words.extend(next.as_deref().map(|token| ("continue", token)));
            let path = self.path(&words);
            let page: List<K> = match answered(session.get(&path)).await {
                Err(Error::Http(dnsweir_http::Error::TooLarge(_))) if limit > 1 => {
                    limit /= 2;
                    continue;
                }
                page => page?,
            };
            for object in page.items.into_iter().flatten() {
                self.object(object).await?;
            }
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_some() {
                continue;
            }
            let version = given(page.metadata.resource_version)?;
            self.followed.listed();
            self.send(Change::ListEnds).await?;
            return Ok(version);
        }
    }

    /// The path of a request about the selected objects.
    fn path(&self, words: &[(&str, &str)]) -> String {
        let selectors = [("labelSelector", self.labels), ("fieldSelector", self.fields)];
        let selectors = selectors
            .into_iter()
            .filter_map(|(word, selector)| Some((word, selector?)));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(words).extend_pairs(selectors);
        format!("{}?{}", self.collection.path, query.finish())
    }

    async fn object(&self, object: K) -> Result<(), Failure> {
        let key = object.metadata().key();
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

/// Waits for an answer, but not for ever.
async fn answered<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(ANSWER_LIMIT, answer)
        .await
        .unwrap_or(Err(Error::Silent(ANSWER_LIMIT)))
}

/// When the next list is due. Ten thousand proxies that started together do not list together.
fn next_list() -> Instant {
    Instant::now() + LISTED_AGAIN.mul_f64(rand::random_range(0.5..1.0))
}

/// The version of a list, which must have one.
fn given(version: Option<String>) -> Result<String, Failure> {
    let version = version.filter(|version| !version.is_empty());
    version.ok_or(Failure::Versionless)
}

/// Records a received version, which grows unless the store was restored from a backup.
fn advance(version: &mut Option<String>, heard: Option<String>) -> Result<(), Failure> {
    let Some(heard) = heard else { return Ok(()) };
    if version.as_deref().is_some_and(|known| is_older(&heard, known)) {
        return Err(Failure::WentBack);
    }
    *version = Some(heard);
    Ok(())
}

/// Returns whether a version is older than another. Versions are growing numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
fn is_older(version: &str, than: &str) -> bool {
    let number = |version: &str| version.parse::<u128>().ok();
    let both = number(version).zip(number(than));
    both.is_some_and(|(version, than)| version < than)
}

impl Failure {
    /// Returns whether changes may have been missed, so that everything has to be listed again.
    fn forgets(&self) -> bool {
        match self {
            Failure::Client(Error::Refused(status)) => status.code == GONE,
            Failure::Client(Error::Unread(_)) | Failure::Versionless | Failure::WentBack => true,
            _ => false,
        }
    }

    /// How long the API server asks us to wait.
    fn retry_after(&self) -> Duration {
        match self {
            Failure::Client(Error::Refused(status)) => status.retry_after().min(ANSWER_LIMIT),
            _ => Duration::ZERO,
        }
    }
}
