//! Fingerprints of what determines a cache's answers.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::config;

/// Fingerprint of what determines a filter's verdicts, computed once for all zones that use it: a module has
/// megabytes.
pub fn of_filter(filter: &config::Filter) -> u64 {
    let mut hasher = DefaultHasher::new();
    (
        &filter.name,
        format!(
            "{:?}{:?}{:?}{:?}",
            filter.on_error, filter.limits, filter.wasi, filter.refresh
        ),
    )
        .hash(&mut hasher);
    for node in &filter.config {
        let arguments = (&node.arguments, &node.properties);
        format!("{}{:?}{arguments:?}", node.name, node.parent).hash(&mut hasher);
    }
    filter.code.hash(&mut hasher);
    hasher.finish()
}

/// Fingerprint of what determines the answers of named sources, computed once for all zones.
pub(crate) fn of_named(sources: &[config::NamedSource]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for named in sources {
        (&named.name, named.source.fingerprint()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Fingerprint of what determines the answers in a zone's cache. `fingerprints` are those of all filters;
/// since filters may send queries to any named source, `named` counts, too.
pub(crate) fn of_cache(zone: &config::Zone, fingerprints: &[u64], named: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    let below = zone
        .stages
        .iter()
        .skip_while(|stage| !matches!(stage, config::Stage::Cache(_)));
    for stage in below {
        match stage {
            config::Stage::Filter(index) => (fingerprints[*index], named).hash(&mut hasher),
            config::Stage::Cache(cache) => cache.hash(&mut hasher),
            config::Stage::Source(source) => source.fingerprint().hash(&mut hasher),
        }
    }
    hasher.finish()
}
