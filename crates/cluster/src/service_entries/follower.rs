//! The thread that follows the objects, and its interface to the workers.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::entry::{Entry, GROUP, ServiceEntry, VERSIONS};
use super::rules::Rules;
use super::table::Table;
use crate::api_server::{Change, Client, Collection, Followed, Groups, Reflector, keep_connected};
use crate::background::{Arrival, Background};
use crate::config;
use crate::kubernetes::known::Known;

/// How many changes are queued for the table; after that, the sender waits.
const WAITING: usize = 1024;

/// How long before asking the API server again when it has no supported version.
const PAUSE: Duration = Duration::from_secs(5);

/// What is known of the objects and of the API server.
pub struct State {
    /// The table that queries are answered from.
    pub table: ArcSwap<Table>,
    /// The state of following the objects.
    pub followed: Followed,
    /// Approximate bytes of the objects.
    pub octets: AtomicUsize,
    /// Whether everything has been listed once.
    pub(super) arrival: Arrival,
    failure: Notify,
}

/// Follows the objects of a configuration.
pub struct Follower {
    config: config::ServiceEntries,
    /// The published state.
    pub state: Arc<State>,
    thread: Mutex<Option<Background>>,
}

impl Follower {
    /// Starts without any known objects.
    pub fn new(config: &config::ServiceEntries) -> Follower {
        Follower {
            config: config.clone(),
            state: Arc::new(State {
                table: ArcSwap::from_pointee(Table::new(&config.ranges)),
                followed: Followed::new("serviceentries"),
                octets: AtomicUsize::new(0),
                arrival: Arrival::default(),
                failure: Notify::new(),
            }),
            thread: Mutex::new(None),
        }
    }

    /// Starts following.
    pub fn begin(&self) {
        let (config, state) = (self.config.clone(), Arc::clone(&self.state));
        match Background::start("service-entries", async move || keep(&config, &state).await) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => {
                tracing::error!(%error, "service-entries: cannot start a thread to watch the API server");
            }
        }
    }
}

/// Keeps the table up to date; never returns.
async fn keep(config: &config::ServiceEntries, state: &State) {
    let (news, heard) = mpsc::channel(WAITING);
    // Neither ends: `follow` holds the sender.
    tokio::join!(write(config, state, heard), follow(config, state, news));
}

/// Applies changes to the table in batches.
async fn write(config: &config::ServiceEntries, state: &State, mut heard: mpsc::Receiver<Change<Entry>>) {
    let (mut known, mut table) = (Known::default(), Table::new(&config.ranges));
    let mut news = Vec::with_capacity(WAITING);
    while heard.recv_many(&mut news, WAITING).await > 0 {
        let mut complete = false;
        for change in news.drain(..) {
            complete |= matches!(change, Change::ListEnds);
            let room = config.memory.saturating_sub(known.octets());
            if let Err(full) = known.change(change, &mut table, room) {
                state.followed.refuse(&full.to_string());
            }
        }
        for problem in table.refused.drain(..) {
            state.followed.refuse(&problem);
        }
        state.followed.objects.store(known.count(), Relaxed);
        state.octets.store(known.octets(), Relaxed);
        state.table.store(Arc::new(table.clone()));
        if complete {
            state.arrival.come();
        }
    }
}

/// Follows the objects, and reconnects when the credentials have changed.
async fn follow(config: &config::ServiceEntries, state: &State, news: mpsc::Sender<Change<Entry>>) {
    let failed = |problem: &str| state.followed.failed(problem.to_owned());
    let rules = Rules::of(config);
    let mut version = None;
    keep_connected(
        config.kubeconfig.as_ref(),
        &state.failure,
        failed,
        async |client, is_other| {
            if is_other {
                version = None;
            }
            let reflector = Reflector {
                collection: collection(&client, state).await,
                labels: config.labels.as_deref(),
                fields: None,
                followed: &state.followed,
                failure: &state.failure,
                news: news.clone(),
                read: |object| Entry::read(object, &rules, |problem| state.followed.refuse(problem)),
                tell: |change| change,
            };
            reflector.run(&mut version).await;
        },
    )
    .await;
}

/// The objects in the server's preferred version, or else in the newest supported one; waits until there is one.
async fn collection(client: &Client, state: &State) -> Collection<ServiceEntry> {
    let mut session = client.session();
    loop {
        let problem = match session.get::<Groups>("/apis").await {
            Ok(groups) => {
                let group = groups.groups.into_iter().find(|group| group.name == GROUP);
                match group.and_then(|group| chosen(&group.versions())) {
                    Some(version) => {
                        let path = format!("/apis/{GROUP}/{version}/serviceentries");
                        return Collection::new(client, &path);
                    }
                    None => format!(
                        "it has no {GROUP} in a supported version: {}",
                        VERSIONS.join(", ")
                    ),
                }
            }
            Err(error) => error.to_string(),
        };
        state.followed.failed(problem);
        state.failure.notify_one();
        sleep(PAUSE).await;
    }
}

/// The preferred version, which comes first in `served`, if supported, or else the newest supported one.
pub fn chosen(served: &[String]) -> Option<&'static str> {
    let preferred = served
        .first()
        .and_then(|first| VERSIONS.iter().find(|known| *known == first));
    let newest = || {
        VERSIONS
            .iter()
            .find(|known| served.iter().any(|version| version == *known))
    };
    preferred.or_else(newest).copied()
}
