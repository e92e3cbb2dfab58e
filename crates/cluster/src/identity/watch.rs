//! The thread that follows the pods of a node, and its interface to the workers.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::objects::{read_namespace, read_pod};
use super::roster::{News, Roster};
use super::state::State;
use crate::api_server::{Client, Collection, Reflector, keep_connected, resources};
use crate::background::{Background, Loading};
use crate::config;
use dnsweir_answer::identity::Identity;

/// How many changes are queued for the roster; after that, the sender waits.
const WAITING: usize = 256;

/// The pods of a node by address. Survives a reload that does not change its configuration.
pub struct NodePods {
    pub(super) config: config::NodePods,
    pub(super) state: Arc<State>,
    pub(super) loading: Loading,
    thread: Mutex<Option<Background>>,
}

impl NodePods {
    /// Starts without any known pods.
    pub fn new(config: &config::NodePods) -> Arc<NodePods> {
        Arc::new(NodePods {
            config: config.clone(),
            state: Arc::new(State::new()),
            loading: Loading::new(config.wait),
            thread: Mutex::new(None),
        })
    }

    /// Returns whether [`NodePods::new`] would create the same from this configuration.
    pub fn is_for(&self, config: &config::NodePods) -> bool {
        self.config == *config
    }

    /// The owner of an address. The addresses that the proxy listens on, `own`, may change while this stays.
    pub fn identify(&self, address: IpAddr, own: &[SocketAddr]) -> Identity {
        self.state.table.load().identify(address, own)
    }

    /// Counts a query.
    pub fn count(&self, identity: &Identity) {
        self.state.counters.count(identity);
    }

    /// Starts following. Only the first call has an effect.
    pub fn begin(&self) {
        if self.loading.begins() {
            self.start_thread();
        }
    }

    /// Starts following, and waits until all pods are known, but at most the configured time since the start.
    pub async fn bring_up(&self) {
        self.begin();
        self.loading.wait_for(self.state.arrival.wait()).await;
    }

    fn start_thread(&self) {
        let (config, state) = (self.config.clone(), Arc::clone(&self.state));
        match Background::start("pods", async move || keep(&config, &state).await) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => tracing::error!(%error, "pods: cannot start a thread to watch the API server"),
        }
    }
}

/// Keeps the table up to date; never returns.
async fn keep(config: &config::NodePods, state: &Arc<State>) {
    let (news, mut heard) = mpsc::channel(WAITING);
    let write = async {
        let mut roster = Roster::new(state, config.memory);
        let mut news = Vec::with_capacity(WAITING);
        while heard.recv_many(&mut news, WAITING).await > 0 {
            news.drain(..).for_each(|news| roster.take(news));
            roster.publish();
        }
    };
    // Neither ends: `follow` holds the sender.
    tokio::join!(write, follow(config, state, news));
}

/// Follows pods and namespaces, and reconnects when the credentials have changed.
async fn follow(config: &config::NodePods, state: &Arc<State>, news: mpsc::Sender<News>) {
    let fields = format!("spec.nodeName={}", config.node);
    let failed = |problem: &str| state.pods.failed(problem.to_owned());
    let mut version = None;
    keep_connected(
        config.kubeconfig.as_ref(),
        &state.failure,
        failed,
        async |client, is_other| {
            if is_other {
                version = None;
            }
            let pods = Reflector {
                collection: Collection::new(&client, resources::PODS),
                labels: None,
                fields: Some(&fields),
                followed: &state.pods,
                failure: &state.failure,
                news: news.clone(),
                read: read_pod,
                tell: News::Pod,
            };
            tokio::join!(pods.run(&mut version), follow_namespaces(&client, state, &news));
        },
    )
    .await;
}

/// Follows each namespace for as long as it has pods here.
async fn follow_namespaces(client: &Client, state: &Arc<State>, news: &mpsc::Sender<News>) {
    let mut wanted = state.wanted.subscribe();
    let mut following = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let names = wanted.borrow_and_update().clone();
        following.retain(|name, task: &mut tokio::task::AbortHandle| {
            let stays = names.contains(name);
            if !stays {
                task.abort();
            }
            stays
        });
        for name in names {
            following.entry(name.clone()).or_insert_with(|| {
                tasks.spawn(follow_namespace(
                    client.clone(),
                    Arc::clone(state),
                    news.clone(),
                    name,
                ))
            });
        }
        while tasks.try_join_next().is_some() {}
        // Never fails: `state` holds the sender.
        let _ = wanted.changed().await;
    }
}

/// Follows one namespace.
async fn follow_namespace(client: Client, state: Arc<State>, news: mpsc::Sender<News>, name: Box<str>) {
    let fields = format!("metadata.name={name}");
    let namespace = Reflector {
        collection: Collection::new(&client, resources::NAMESPACES),
        labels: None,
        fields: Some(&fields),
        followed: &state.namespaces,
        failure: &state.failure,
        news,
        read: read_namespace,
        tell: |change| News::Namespace(name.clone(), change),
    };
    namespace.run(&mut None).await;
}
