//! A followed cluster: one thread beside the workers keeps its index.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::TryStreamExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::imports::{Import, ImportedSlice, SERVICE_OF_SLICE};
use super::index::Index;
use super::known::{Full, Indexed, Known};
use super::objects::{Interest, Malformed, Namespace, Pod, Service, Slice};
use super::state::{Kind, News, State};
use crate::api_server::{Change, Client, Collection, Reading, Reflector, keep_connected};
use crate::background::Background;
use crate::config::{Kubeconfig, Kubernetes, Pods};

/// How many changes are queued for the index; after that, the sender waits.
const WAITING: usize = 1024;

/// Pods that have ended have no address.
const RUNNING: &str = "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Unknown";

/// The part of a configuration that decides what is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scope {
    kubeconfig: Option<Kubeconfig>,
    namespaces: Vec<String>,
    namespace_labels: Option<String>,
    labels: Option<String>,
    endpoint_pod_names: bool,
    pods: bool,
    imports: bool,
    memory: usize,
}

/// A cluster in use.
pub struct Cluster {
    scope: Scope,
    /// What is known of the cluster.
    pub state: Arc<State>,
    thread: Mutex<Option<Background>>,
}

/// The clusters in use. Zones, and successive configurations, with the same scope share one.
static CLUSTERS: Mutex<Vec<Weak<Cluster>>> = Mutex::new(Vec::new());

impl Cluster {
    /// The cluster for a configuration, shared if it is in use already.
    pub fn of(config: &Kubernetes) -> Arc<Cluster> {
        let scope = Scope {
            kubeconfig: config.kubeconfig.clone(),
            namespaces: config.namespaces.clone(),
            namespace_labels: config.namespace_labels.clone(),
            labels: config.labels.clone(),
            endpoint_pod_names: config.endpoint_pod_names,
            pods: config.pods == Pods::Verified,
            imports: !config.multicluster.is_empty(),
            memory: config.memory,
        };
        let mut clusters = CLUSTERS.lock();
        clusters.retain(|known| known.strong_count() > 0);
        if let Some(known) = clusters
            .iter()
            .filter_map(Weak::upgrade)
            .find(|known| known.scope == scope)
        {
            return known;
        }
        let is_wanted = |kind: &Kind| match kind {
            Kind::Pods => scope.pods,
            kind => scope.imports || !kind.is_imported(),
        };
        let kinds = Kind::ALL.into_iter().filter(is_wanted);
        let cluster = Arc::new(Cluster {
            state: Arc::new(State::new(kinds.collect())),
            scope,
            thread: Mutex::new(None),
        });
        clusters.push(Arc::downgrade(&cluster));
        cluster
    }

    /// Starts following it. Only the first call has an effect.
    pub fn begin(&self) {
        if !self.state.begins() {
            return;
        }
        let (scope, state) = (self.scope.clone(), Arc::clone(&self.state));
        match Background::start("kubernetes", async move || keep(&scope, &state).await) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => {
                tracing::error!(%error, "kubernetes: cannot start a thread to watch the API server");
            }
        }
    }
}

/// Keeps the index up to date; never returns.
async fn keep(scope: &Scope, state: &State) {
    let (news, heard) = mpsc::channel(WAITING);
    let interest = Interest {
        namespaces: scope.namespaces.clone(),
        endpoint_pod_names: scope.endpoint_pod_names,
    };
    let writer = Writer::new(state, scope.memory);
    let own = scope.labels.iter().map(String::as_str);
    let follower = Follower {
        scope,
        imported: [SERVICE_OF_SLICE]
            .into_iter()
            .chain(own)
            .collect::<Vec<_>>()
            .join(","),
        interest: &interest,
        state,
        news,
    };
    // The writer never ends either: this future holds the sender.
    tokio::join!(writer.run(heard), follower.run());
}

/// Follows the objects of one kind; `R` reads a `T` from each.
type Follows<'a, K, T, R> = Reflector<'a, K, News, R, fn(Change<T>) -> News>;

/// Follows all kinds of objects.
struct Follower<'a> {
    scope: &'a Scope,
    /// The label selector for slices of multi-cluster services.
    imported: String,
    interest: &'a Interest,
    state: &'a State,
    news: mpsc::Sender<News>,
}

impl Follower<'_> {
    /// Runs forever.
    async fn run(&self) {
        let mut versions = [const { None }; Kind::ALL.len()];
        let failed = |problem: &str| {
            let kinds = self.state.kinds.iter();
            kinds.for_each(|&kind| self.state.of(kind).failed(problem.to_owned()));
        };
        let kubeconfig = self.scope.kubeconfig.as_ref();
        keep_connected(
            kubeconfig,
            &self.state.failure,
            failed,
            async |client, is_other| {
                if is_other {
                    versions.fill(None);
                }
                match addresses().await {
                    Ok(addresses) => self.state.hosts.store(Arc::new(addresses)),
                    Err(error) => tracing::warn!(%error, "kubernetes: this host's addresses cannot be read"),
                }
                self.reflect(&client, &mut versions).await;
            },
        )
        .await;
    }

    /// Follows each kind from its last known version.
    async fn reflect(&self, client: &Client, versions: &mut [Option<String>; Kind::ALL.len()]) {
        let [namespaces, services, slices, pods, imports, imported] = versions;
        let of_namespaces = self.reflector(client, Kind::Namespaces, Interest::namespace, News::Namespace);
        let of_services = self.reflector(client, Kind::Services, Interest::service, News::Service);
        let of_slices = self.reflector(client, Kind::EndpointSlices, Interest::slice, News::Slice);
        let of_pods = self.reflector(client, Kind::Pods, Interest::pod, News::Pod);
        let of_imports = self.reflector(client, Kind::ServiceImports, Interest::import, News::Import);
        let of_imported = self.reflector(
            client,
            Kind::ImportedSlices,
            Interest::imported_slice,
            News::ImportedSlice,
        );
        tokio::join!(
            of_namespaces.run(namespaces),
            of_services.run(services),
            of_slices.run(slices),
            async {
                if self.scope.pods {
                    of_pods.run(pods).await;
                }
            },
            async {
                if self.scope.imports {
                    tokio::join!(of_imports.run(imports), of_imported.run(imported));
                }
            },
        );
    }

    fn reflector<K, T>(
        &self,
        client: &Client,
        kind: Kind,
        read: fn(&Interest, K) -> Result<Reading<T>, Malformed>,
        tell: fn(Change<T>) -> News,
    ) -> Follows<'_, K, T, impl Fn(K) -> Result<Reading<T>, Malformed>> {
        Reflector {
            collection: Collection::new(client, kind.path()),
            labels: match kind {
                Kind::Namespaces => self.scope.namespace_labels.as_deref(),
                Kind::ImportedSlices => Some(&self.imported),
                _ => self.scope.labels.as_deref(),
            },
            fields: (kind == Kind::Pods).then_some(RUNNING),
            followed: self.state.of(kind),
            failure: &self.state.failure,
            news: self.news.clone(),
            read: move |object| read(self.interest, object),
            tell,
        }
    }
}

/// The addresses of this host that others can reach.
async fn addresses() -> std::io::Result<Vec<IpAddr>> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let connection = tokio::spawn(connection);
    let messages = handle.address().get().execute().try_collect::<Vec<_>>().await;
    connection.abort();
    let messages = messages.map_err(std::io::Error::other)?;
    let attributes = messages.into_iter().flat_map(|message| message.attributes);
    let mut addresses: Vec<IpAddr> = attributes
        .filter_map(|attribute| match attribute {
            rtnetlink::packet_route::address::AddressAttribute::Address(address) => Some(address),
            _ => None,
        })
        .filter(|address| !address.is_loopback() && !is_link_local(address))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Returns whether an address is only unique per link.
fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

/// Builds the index from what is reported.
struct Writer<'a> {
    state: &'a State,
    memory: usize,
    index: Index,
    namespaces: Known<Namespace>,
    services: Known<Service>,
    slices: Known<Slice>,
    pods: Known<Pod>,
    imports: Known<Import>,
    imported: Known<ImportedSlice>,
    /// The kinds that have not been listed yet.
    missing: Vec<Kind>,
}

impl<'a> Writer<'a> {
    fn new(state: &'a State, memory: usize) -> Writer<'a> {
        Writer {
            state,
            memory,
            index: Index::default(),
            namespaces: Known::default(),
            services: Known::default(),
            slices: Known::default(),
            pods: Known::default(),
            imports: Known::default(),
            imported: Known::default(),
            missing: state.kinds.clone(),
        }
    }

    /// Applies changes in batches, until there is no sender.
    async fn run(mut self, mut heard: mpsc::Receiver<News>) {
        let mut news = Vec::with_capacity(WAITING);
        while heard.recv_many(&mut news, WAITING).await > 0 {
            let mut changed = false;
            for news in news.drain(..) {
                changed |= self.take(news);
            }
            self.publish(changed);
        }
    }

    /// Applies a change. Returns whether any answer may change.
    fn take(&mut self, news: News) -> bool {
        let room = self.memory.saturating_sub(self.octets());
        let taking = Taking {
            index: &mut self.index,
            missing: &mut self.missing,
            room,
        };
        let (kind, changed) = match news {
            News::Namespace(change) => taking.of(Kind::Namespaces, &mut self.namespaces, change),
            News::Service(change) => taking.of(Kind::Services, &mut self.services, change),
            News::Slice(change) => taking.of(Kind::EndpointSlices, &mut self.slices, change),
            News::Pod(change) => taking.of(Kind::Pods, &mut self.pods, change),
            News::Import(change) => taking.of(Kind::ServiceImports, &mut self.imports, change),
            News::ImportedSlice(change) => taking.of(Kind::ImportedSlices, &mut self.imported, change),
        };
        for problem in self.index.refused.drain(..) {
            self.state.of(kind).refuse(&problem);
        }
        changed.unwrap_or_else(|full| {
            self.state.of(kind).refuse(&full.to_string());
            false
        })
    }

    fn octets(&self) -> usize {
        let cluster = self.namespaces.octets() + self.services.octets() + self.slices.octets();
        cluster + self.pods.octets() + self.imports.octets() + self.imported.octets()
    }

    fn publish(&mut self, changed: bool) {
        let counts = [
            self.namespaces.count(),
            self.services.count(),
            self.slices.count(),
            self.pods.count(),
            self.imports.count(),
            self.imported.count(),
        ];
        for (kind, count) in Kind::ALL.into_iter().zip(counts) {
            self.state.of(kind).objects.store(count, Ordering::Relaxed);
        }
        self.state.octets.store(self.octets(), Ordering::Relaxed);
        let has = |imported: bool| !self.missing.iter().any(|kind| kind.is_imported() == imported);
        let (complete, imports_complete) = (has(false), has(true));
        let completed = (complete, imports_complete) != (self.index.complete, self.index.imports_complete);
        if complete && (changed || completed) {
            self.index.complete = complete;
            self.index.imports_complete = imports_complete;
            self.index.serial = next_serial(self.index.serial);
            self.state.publish(self.index.clone());
        }
    }
}

/// The parts that a change is applied to.
struct Taking<'a> {
    index: &'a mut Index,
    missing: &'a mut Vec<Kind>,
    room: usize,
}

impl Taking<'_> {
    /// Applies a change to the known objects of one kind. Returns whether any answer may change.
    fn of<T: Indexed<Index> + PartialEq>(
        self,
        kind: Kind,
        known: &mut Known<T>,
        change: Change<T>,
    ) -> (Kind, Result<bool, Full>) {
        if let Change::ListEnds = change {
            self.missing.retain(|missing| *missing != kind);
        }
        (kind, known.change(change, self.index, self.room))
    }
}

/// The current time, or the previous serial plus one if the time is not larger (RFC 1982).
fn next_serial(before: u32) -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() as u32).max(before.wrapping_add(1))
}
