//! Answers the first name of a pod's search list with the result of the whole list.
//!
//! A pod with `ndots:5` looks up `api.example.com` as `api.example.com.NS.svc.CLUSTER` first, then with each
//! other domain of its search list, and finally alone, each time for A and AAAA. The proxy can make all these
//! lookups when it sees the first one.

use dnsweir_filter::{
    Class, Filter, Identity, Invalid, Manifest, Name, NameBuf, NameError, Query, Setup, Transport, Verdict,
};

/// The maximum number of search domains: a verdict's limit less the three of the cluster and the plain name.
const SEARCH_MAX: usize = 29;

/// The filter.
pub struct SearchPath {
    /// The suffix of the first name of every search list: `svc.CLUSTER`.
    services: NameBuf,
    cluster: NameBuf,
    /// The search list of the nodes, which all pods inherit.
    search: Vec<NameBuf>,
    /// The minimum number of labels before the namespace.
    labels: usize,
    /// Whether only the search list of the client's own namespace is applied.
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
        // The proxy's own queries may be for names of this filter's verdicts.
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
    /// The names that a resolver tries one after the other, beginning with this one; `None` if it is not the
    /// first of a search list, or of another client's list.
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
        // Like a resolver, skips names that would be too long.
        let others = others.filter_map(|domain| below(domain.as_name()).ok());
        let mut candidates = vec![NameBuf::from(asked)];
        candidates.extend(others);
        candidates.extend(below(Name::ROOT));
        Some(candidates)
    }
}

dnsweir_filter::export!(SearchPath);
