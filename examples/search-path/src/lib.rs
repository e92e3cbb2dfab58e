//! Answers the first name of a pod's search list with what the whole list would come to.
//!
//! A pod with `ndots:5` asks for `api.example.com` as `api.example.com.NS.svc.CLUSTER` first, then with
//! each other domain of its search list, and last for the name itself: each time for A and for AAAA.
//! The proxy can ask all of that by itself when it sees the first.

use dnsweir_filter::{
    Class, Filter, Identity, Invalid, Manifest, Name, NameBuf, NameError, Query, Setup, Transport, Verdict,
};

/// Names that one verdict may list, without the three of the cluster and the name alone.
const SEARCH_MAX: usize = 29;

/// The filter.
pub struct SearchPath {
    /// What ends the first name of every search list: `svc.CLUSTER`.
    services: NameBuf,
    cluster: NameBuf,
    /// The search list of the nodes, which every pod inherits.
    search: Vec<NameBuf>,
    /// Labels that a name must have in front of its namespace.
    labels: usize,
    /// Whether only a pod's own search list is tried.
    own: bool,
}

impl Filter for SearchPath {
    fn configure(setup: Setup<'_>) -> Result<(SearchPath, Manifest), Invalid> {
        let config = setup.config();
        #[expect(clippy::expect_used, reason = "this is a name")]
        let cluster_local = "cluster.local".parse().expect("this is a name");
        let cluster: NameBuf = config.setting_or("cluster", cluster_local);
        let mut search = Vec::new();
        for node in config.nodes(&["search"]) {
            search.extend(node.arguments::<NameBuf>(0).unwrap_or_default());
            if search.len() > SEARCH_MAX {
                let many = node.mistake(format!("{} domains are too many to try", search.len()));
                return Err(many.help(format!("at most {SEARCH_MAX}")).report());
            }
        }
        let own = config.node("own")?.is_some();
        let dots = config.setting_or("dots", 1u8);
        let Ok(services) = cluster.as_name().child("svc") else {
            return Err(config.mistake("the cluster's name is too long").report());
        };
        let filter = SearchPath {
            cluster,
            search,
            labels: usize::from(dots) + 1,
            services,
            own,
        };
        let manifest = Manifest::new().queries().at_or_below([&filter.services]);
        let manifest = if own { manifest.identity() } else { manifest };
        Ok((filter, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        // What the proxy asks itself may be what this filter told it to ask.
        if query.transport() == Transport::Internal || query.class() != Class::IN {
            return Verdict::pass();
        }
        match self.candidates(query.name(), query.identity()) {
            Some(candidates) => {
                dnsweir_filter::count("searched", 1);
                Verdict::first_of(candidates)
            }
            None => Verdict::pass(),
        }
    }
}

impl SearchPath {
    /// The names that a resolver would try one after the other which begins with this one; none if it
    /// is not the first of a search list, or of another one than the client has.
    fn candidates(&self, asked: Name<'_>, client: Identity<'_>) -> Option<Vec<NameBuf>> {
        let labels: Vec<&[u8]> = asked.strip_suffix(&self.services)?.collect();
        let (namespace, name) = labels.split_last()?;
        let is_clients = || matches!(client, Identity::Pod(pod) if pod.namespace.as_bytes() == *namespace);
        if name.len() < self.labels || self.own && !is_clients() {
            return None;
        }
        let below =
            |domain: Name<'_>| -> Result<NameBuf, NameError> { NameBuf::join(name.iter().copied(), domain) };
        let others = [&self.services, &self.cluster].into_iter().chain(&self.search);
        // What would be too long for a name, a resolver leaves out.
        let others = others.filter_map(|domain| below(domain.as_name()).ok());
        let mut candidates = vec![NameBuf::from(asked)];
        candidates.extend(others);
        candidates.extend(below(Name::ROOT));
        Some(candidates)
    }
}

dnsweir_filter::export!(SearchPath);
