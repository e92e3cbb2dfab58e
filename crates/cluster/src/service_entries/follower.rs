//! The thread that follows the objects, and what the workers see of it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arc_swap::ArcSwap;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::entry::{Entry, GROUP, ServiceEntry, VERSIONS, Version};
use super::rules::Rules;
use super::table::Table;
use crate::api_server::{Change, Followed, Reflector, keep_connected};
use crate::background::Background;
use crate::config;
use crate::kubernetes::known::Known;

/// What is heard before it is made part of the table; more waits.
const WAITING: usize = 1024;

/// How long until the API server is asked again for a version that it does not have.
const PAUSE: Duration = Duration::from_secs(5);

/// What is known, and of the API server.
pub struct State {
    /// What queries are answered from.
    pub table: ArcSwap<Table>,
    /// How the objects are doing.
    pub followed: Followed,
    /// About how many octets they take.
    pub octets: AtomicUsize,
    complete: watch::Sender<bool>,
    failure: Notify,
}

/// Those who are followed.
pub struct Follower {
    config: config::ServiceEntries,
    /// What is known of them.
    pub state: Arc<State>,
    thread: Mutex<Option<Background>>,
}

impl State {
    /// Whether everything has been listed once.
    pub(crate) fn is_complete(&self) -> bool {
        *self.complete.borrow()
    }

    /// Waits until then.
    pub async fn complete(&self) {
        // The sender is here.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }
}

impl Follower {
    /// Nothing is known yet.
    pub fn new(config: &config::ServiceEntries) -> Follower {
        Follower {
            config: config.clone(),
            state: Arc::new(State {
                table: ArcSwap::from_pointee(Table::new(&config.ranges)),
                followed: Followed::new("serviceentries"),
                octets: AtomicUsize::new(0),
                complete: watch::Sender::new(false),
                failure: Notify::new(),
            }),
            thread: Mutex::new(None),
        }
    }

    /// Begins to follow.
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

/// Keeps the table for good.
async fn keep(config: &config::ServiceEntries, state: &State) {
    let (news, heard) = mpsc::channel(WAITING);
    // Neither ends: the news come from here.
    tokio::join!(write(config, state, heard), follow(config, state, news));
}

/// Makes what comes together part of the table.
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
        state
            .complete
            .send_if_modified(|known| !std::mem::replace(known, *known || complete) && complete);
    }
}

/// Follows the objects, anew whenever other credentials are to be used.
async fn follow(config: &config::ServiceEntries, state: &State, news: mpsc::Sender<Change<Entry>>) {
    let failed = |problem: &str| state.followed.failed(problem.to_owned());
    let rules = Rules::of(config);
    let mut version = None;
    keep_connected(
        config.kubeconfig.as_ref(),
        &state.failure,
        failed,
        async |client| {
            let api = api(&client, state).await;
            let reflector = Reflector {
                api,
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

/// The objects in the version that the API server prefers, or else in the newest that it has; waits until it has one.
async fn api(client: &Client, state: &State) -> Api<ServiceEntry> {
    loop {
        let problem = match client.list_api_groups().await {
            Ok(groups) => {
                let group = groups.groups.into_iter().find(|group| group.name == GROUP);
                let group = group.into_iter();
                let served =
                    group.flat_map(|group| group.preferred_version.into_iter().chain(group.versions));
                let served: Vec<String> = served.map(|version| version.version).collect();
                match chosen(&served) {
                    Some(version) => return Api::all_with(client.clone(), &Version(version)),
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

/// The first of those that are served, the preferred one first, that is understood.
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
