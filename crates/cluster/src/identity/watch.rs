//! The thread that follows the pods of a node, and what the workers see of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::objects::{read_namespace, read_pod};
use super::roster::{News, Roster};
use super::state::State;
use crate::api_server::{Reflector, keep_connected};
use crate::background::{Background, learnt};
use crate::config;
use dnsweir_answer::identity::Identity;

/// What is heard before it is taken in; more waits.
const WAITING: usize = 256;

/// The pods of a node: who has which address. It outlives a reload that changes nothing that is written about it.
pub struct NodePods {
    pub(super) config: config::NodePods,
    pub(super) state: Arc<State>,
    pub(super) begun: OnceLock<Instant>,
    thread: Mutex<Option<Background>>,
}

impl NodePods {
    /// Nobody is known yet.
    pub fn new(config: &config::NodePods) -> Arc<NodePods> {
        Arc::new(NodePods {
            config: config.clone(),
            state: Arc::new(State::new()),
            begun: OnceLock::new(),
            thread: Mutex::new(None),
        })
    }

    /// Whether it is what [`NodePods::new`] would make of this.
    pub fn is_for(&self, config: &config::NodePods) -> bool {
        self.config == *config
    }

    /// Who has an address.
    pub fn identify(&self, address: IpAddr) -> Identity {
        self.state.table.load().identify(address)
    }

    /// Counts a query.
    pub fn count(&self, identity: &Identity) {
        self.state.counters.count(identity);
    }

    /// Begins to follow. Only the first call does anything.
    pub fn begin(&self) {
        self.begun.get_or_init(|| {
            self.start_thread();
            Instant::now()
        });
    }

    /// The same, and waits until everybody is known, but no longer than it should since it began.
    pub async fn bring_up(&self) {
        self.begin();
        let mut complete = self.state.complete.subscribe();
        let known = complete.wait_for(|complete| *complete);
        learnt(self.begun.get(), self.config.wait, known).await;
    }

    fn start_thread(&self) {
        let (config, state) = (self.config.clone(), Arc::clone(&self.state));
        match Background::start("pods", async move || keep(&config, &state).await) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => tracing::error!(%error, "pods: cannot start a thread to watch the API server"),
        }
    }
}

/// Keeps the table for good.
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
    // Neither ends: the news come from here.
    tokio::join!(write, follow(config, state, news));
}

/// Follows pods and namespaces, anew whenever other credentials are to be used.
async fn follow(config: &config::NodePods, state: &Arc<State>, news: mpsc::Sender<News>) {
    let fields = format!("spec.nodeName={}", config.node);
    let failed = |problem: &str| state.pods.failed(problem.to_owned());
    let mut version = None;
    keep_connected(
        config.kubeconfig.as_ref(),
        &state.failure,
        failed,
        async |client| {
            let pods = Reflector {
                api: Api::<core::Pod>::all(client.clone()),
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

/// Follows each of the namespaces with pods here for as long as there are any.
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
        // The sender is here.
        let _ = wanted.changed().await;
    }
}

/// Follows one namespace.
async fn follow_namespace(client: Client, state: Arc<State>, news: mpsc::Sender<News>, name: Box<str>) {
    let fields = format!("metadata.name={name}");
    let namespace = Reflector {
        api: Api::<core::Namespace>::all(client),
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
