//! Every plugin and option of CoreDNS, and how it is translated.

/// How a word of a Corefile is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Translated to this.
    Written(&'static str),
    /// Nothing to write: dnsweir behaves like this anyway.
    Noted(&'static str),
    /// An error, with advice on what to do.
    Refused(&'static str),
}

use Fate::{Noted, Refused, Written};

/// A plugin, or an option of one.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    /// The plugin.
    pub plugin: &'static str,
    /// The option; empty for the plugin itself.
    pub option: &'static str,
    /// How it is translated.
    pub fate: Fate,
}

const fn plugin(plugin: &'static str, fate: Fate) -> Word {
    option(plugin, "", fate)
}

const fn option(plugin: &'static str, option: &'static str, fate: Fate) -> Word {
    Word { plugin, option, fate }
}

const ENCRYPTED: &str = "ask the upstream over tls:// or https://";
const KEEP: &str = "keep CoreDNS for these names, and `forward` them to it";
const DEBUGGING: &str = "remove it; `dnsweir explain` and `--log-level debug` show what happens to a query";
const REMOVE: &str = "remove it: dnsweir has nothing like it";
const TAP: &str = "remove it, and write `dnstap \"unix:PATH\"` at the top of the configuration, where it applies to all zones";
const ONE_WATCH: &str = "each kind of object is listed once and then watched, independently of queries";
const UPSTREAM: &str = "names outside the cluster are always resolved, as in CoreDNS since 1.3";
const RESYNC: &str = "changes are watched, as in CoreDNS since 1.5";
const KUBECONFIG: &str = "write a kubeconfig and name it: kubeconfig FILE";
const FILTER: &str = "remove it, or write a filter that does the same: docs/languages.md";

/// All words, grouped by plugin.
pub const WORDS: &[Word] = &[
    plugin("acl", Written("`use` of `builtin:acl`")),
    plugin(
        "any",
        Written("`forward` without `any`: ANY is answered with HINFO (RFC 8482)"),
    ),
    plugin("auto", Refused(KEEP)),
    plugin(
        "autopath",
        Written("`autopath` in `kubernetes`, which is then above `cache`"),
    ),
    plugin("azure", Refused(KEEP)),
    plugin(
        "bind",
        Written(
            "`listen`, with the addresses that an interface has now, and `on` in the zone where not all zones are on the same addresses",
        ),
    ),
    option(
        "bind",
        "except",
        Written("addresses that are left out of `listen`"),
    ),
    plugin("bufsize", Written("`udp-size` in `listen`")),
    plugin("cache", Written("`cache`")),
    option(
        "cache",
        "success",
        Written("`success`; all zones share one cache of the size `cache-memory`"),
    ),
    option(
        "cache",
        "denial",
        Written("`denial`; all zones share one cache of the size `cache-memory`"),
    ),
    option(
        "cache",
        "prefetch",
        Written("`prefetch`; hits count however far apart they are"),
    ),
    option(
        "cache",
        "serve_stale",
        Written("`serve-stale`, with a TTL of at least 1 s (RFC 8767)"),
    ),
    option(
        "cache",
        "serve_stale_policy",
        Noted("a failure never replaces a stale answer"),
    ),
    option("cache", "servfail", Written("`failure`, at least 1 s (RFC 9520)")),
    option(
        "cache",
        "disable",
        Written(
            "`store=#false` of `success` or `denial`; for both, no `cache`; in a separate zone if it names zones",
        ),
    ),
    option(
        "cache",
        "keepttl",
        Refused("remove it: TTLs count down while an answer is cached (RFC 2181)"),
    ),
    plugin(
        "cancel",
        Refused("remove it: `deadline` in `forward` limits how long a query may take"),
    ),
    plugin(
        "chaos",
        Noted("dnsweir does not reveal its version, its authors or the name of its host"),
    ),
    plugin("clouddns", Refused(KEEP)),
    plugin(
        "debug",
        Noted("a trap in a filter fails one query, and the process continues; `--log-level debug` logs more"),
    ),
    plugin("dns64", Written("`use` of `builtin:dns64`")),
    option("dns64", "allow_ipv4", Written("no `only-ipv6-clients`")),
    option("dns64", "prefix", Written("`prefix`")),
    option("dns64", "translate_all", Written("`always`")),
    plugin("dnssec", Refused(KEEP)),
    plugin("dnstap", Refused(TAP)),
    plugin("dynupdate", Refused(KEEP)),
    plugin("erratic", Refused(REMOVE)),
    plugin("errors", Written("`use` of `builtin:log` with `class \"error\"`")),
    option(
        "errors",
        "consolidate",
        Noted("each failed query is logged separately"),
    ),
    option("errors", "stacktrace", Noted("a failure has no stack trace")),
    plugin("etcd", Refused(KEEP)),
    plugin("file", Written("`file`")),
    option("file", "fallthrough", Written("`fallthrough`")),
    option(
        "file",
        "reload",
        Noted("a changed file is loaded at once, whatever its serial"),
    ),
    option(
        "file",
        "reload_by_mtime",
        Noted("a changed file is loaded at once, whatever its serial"),
    ),
    option(
        "file",
        "upstream",
        Noted("an alias is followed through the zone that owns its target"),
    ),
    plugin("forward", Written("`forward`")),
    option("forward", "doh_method", Written("`https-method`")),
    option("forward", "except", Written("`except`")),
    option("forward", "expire", Written("`idle`")),
    option(
        "forward",
        "failfast_all_unhealthy_upstreams",
        Refused("remove it: when all upstreams are out of use, dnsweir still tries one"),
    ),
    option(
        "forward",
        "failover",
        Noted("after SERVFAIL and REFUSED, other upstreams are always asked"),
    ),
    option("forward", "force_tcp", Written("`protocol \"tcp\"`")),
    option("forward", "health_check", Written("`probe`")),
    option("forward", "max_age", Written("`max-age`")),
    option("forward", "max_concurrent", Written("`concurrent`")),
    option(
        "forward",
        "max_connect_attempts",
        Written("`attempts`, at most 10"),
    ),
    option("forward", "max_fails", Written("`max-fails`")),
    option("forward", "max_idle_conns", Written("`connections`")),
    option("forward", "next", Written("`next`")),
    option("forward", "next_on_nodata", Written("`next \"NODATA\"`")),
    option("forward", "policy", Written("`policy`")),
    option("forward", "prefer_udp", Written("`protocol \"udp\"`")),
    option("forward", "read_timeout", Written("`timeout`")),
    option("forward", "resolver", Refused("write the upstreams' addresses")),
    option(
        "forward",
        "source_address",
        Refused("remove it; a route with `src` has the same effect"),
    ),
    option("forward", "tls", Written("`tls { … }`")),
    option(
        "forward",
        "tls_servername",
        Written("the name in the upstreams: `tls://192.0.2.1%dns.example`"),
    ),
    plugin("geoip", Refused(REMOVE)),
    plugin("grpc", Refused(ENCRYPTED)),
    plugin("grpc_server", Refused(REMOVE)),
    plugin("header", Refused(FILTER)),
    plugin("health", Written("`admin`, at /health")),
    option(
        "health",
        "lameduck",
        Noted(
            "after SIGTERM, queries in flight are answered for up to 5 s, and a successor on the node takes over without a gap",
        ),
    ),
    plugin("hosts", Written("`use` of `builtin:hosts`")),
    option("hosts", "fallthrough", Written("no `unlisted`")),
    option(
        "hosts",
        "fallthrough_unsupported",
        Refused("remove it: a listed name has no other types"),
    ),
    option("hosts", "no_reverse", Written("`reverse #false`")),
    option("hosts", "reload", Noted("a changed file is loaded at once")),
    option("hosts", "ttl", Written("`ttl`")),
    plugin("https", Refused(REMOVE)),
    plugin("https3", Refused(REMOVE)),
    plugin(
        "k8s_external",
        Written("`external` in `kubernetes`, in a separate zone"),
    ),
    option("k8s_external", "apex", Written("`apex` of `external`")),
    option("k8s_external", "fallthrough", Written("`fallthrough`")),
    option("k8s_external", "headless", Written("`headless` of `external`")),
    option("k8s_external", "ttl", Written("`ttl`")),
    option("k8s_external", "upstream", Noted(UPSTREAM)),
    plugin("kubernetes", Written("`kubernetes`")),
    option("kubernetes", "apiserver_burst", Noted(ONE_WATCH)),
    option("kubernetes", "apiserver_max_inflight", Noted(ONE_WATCH)),
    option("kubernetes", "apiserver_qps", Noted(ONE_WATCH)),
    option("kubernetes", "endpoint", Refused(KUBECONFIG)),
    option(
        "kubernetes",
        "endpoint_pod_names",
        Written("`endpoint-pod-names`"),
    ),
    option("kubernetes", "fallthrough", Written("`fallthrough`")),
    option("kubernetes", "ignore", Written("`ignore-empty-services`")),
    option("kubernetes", "kubeconfig", Written("`kubeconfig`")),
    option("kubernetes", "labels", Written("`labels`")),
    option("kubernetes", "multicluster", Written("`multicluster`")),
    option("kubernetes", "namespace_labels", Written("`namespace-labels`")),
    option("kubernetes", "namespaces", Written("`namespaces`")),
    option(
        "kubernetes",
        "noendpoints",
        Refused("remove it: dnsweir always watches endpoints"),
    ),
    option("kubernetes", "pods", Written("`pods`")),
    option("kubernetes", "resyncperiod", Noted(RESYNC)),
    option("kubernetes", "startup_timeout", Written("`wait`")),
    option("kubernetes", "tls", Refused(KUBECONFIG)),
    option("kubernetes", "ttl", Written("`ttl`")),
    option("kubernetes", "upstream", Noted(UPSTREAM)),
    option(
        "kubernetes",
        "zonal",
        Refused("remove it: dnsweir has no names of zones"),
    ),
    plugin("loadbalance", Written("`use` of `builtin:rotation`")),
    option(
        "loadbalance",
        "prefer",
        Refused("remove it, or write a filter that orders answers like this"),
    ),
    plugin("local", Written("`use` of `builtin:template`")),
    option(
        "local",
        "localhost_prefix",
        Written("a template for names that begin with `localhost.`"),
    ),
    plugin("log", Written("`use` of `builtin:log`")),
    option("log", "class", Written("`class`")),
    plugin(
        "loop",
        Noted("every `forward` detects loops, and does not use an upstream that loops"),
    ),
    plugin("metadata", Refused(REMOVE)),
    plugin("minimal", Written("`use` of `builtin:minimal`")),
    plugin("multisocket", Written("`workers`: each has its own sockets")),
    plugin("nodecache", Written("`node`")),
    plugin("nomad", Refused(KEEP)),
    plugin("nsid", Noted("replies do not identify the server (RFC 5001)")),
    plugin("on", Refused(REMOVE)),
    plugin("pprof", Refused(DEBUGGING)),
    plugin("prometheus", Written("`admin`, at /metrics")),
    plugin(
        "proxy",
        Refused("write `forward`, which replaced it in CoreDNS 1.5"),
    ),
    plugin("proxyproto", Refused(REMOVE)),
    plugin(
        "quic",
        Refused("remove it: a QUIC connection has at most 100 queries at a time"),
    ),
    plugin("ready", Written("`admin`, at /ready")),
    option("ready", "monitor", Noted("/ready always shows the current state")),
    plugin(
        "reload",
        Noted("a changed file is loaded at once, and a file with mistakes changes nothing"),
    ),
    plugin("rewrite", Written("`use` of `builtin:rewrite`")),
    plugin(
        "root",
        Written("complete paths: without it, they are relative to the folder where `dnsweir import` runs"),
    ),
    plugin("route53", Refused(KEEP)),
    plugin("secondary", Written("`secondary`")),
    option("secondary", "catalog", Refused(KEEP)),
    option("secondary", "fallthrough", Written("`fallthrough`")),
    option("secondary", "transfer", Written("the addresses of `secondary`")),
    option("secondary", "upstream", Noted(UPSTREAM)),
    plugin(
        "shed",
        Refused("remove it: `waiting-queries` limits how many may wait"),
    ),
    plugin("sign", Refused(KEEP)),
    plugin("siit", Refused(REMOVE)),
    plugin("template", Written("`use` of `builtin:template`")),
    option("template", "additional", Written("`additional`")),
    option("template", "answer", Written("`answer`")),
    option("template", "authority", Written("`authority`")),
    option("template", "ederror", Written("`error`")),
    option("template", "expr", Refused("write a filter that does the same")),
    option("template", "fallthrough", Written("no `otherwise`")),
    option("template", "match", Written("`match`")),
    option("template", "rcode", Written("`rcode`")),
    option(
        "template",
        "upstream",
        Noted("the target of an alias is always looked up"),
    ),
    option("template", "var", Refused("write a filter that does the same")),
    plugin(
        "timeouts",
        Written("`tcp-read`, `tcp-write` and `tcp-idle` in `listen`"),
    ),
    option("timeouts", "read", Written("`tcp-read`")),
    option("timeouts", "write", Written("`tcp-write`")),
    option("timeouts", "idle", Written("`tcp-idle`")),
    plugin(
        "tls",
        Written("`certificate` in `listen`, with addresses behind `tls://`, `https://` and `quic://`"),
    ),
    option(
        "tls",
        "client_auth",
        Noted(
            "`nocert` is the default, and anything else is refused: `clients` defines which networks may ask",
        ),
    ),
    option("tls", "keylog", Refused(REMOVE)),
    plugin("trace", Refused(DEBUGGING)),
    plugin(
        "transfer",
        Written("`transfer` of `file`, `kubernetes` or `secondary` in the same block"),
    ),
    option(
        "transfer",
        "source",
        Refused("remove it; a route with `src` has the same effect"),
    ),
    option(
        "transfer",
        "to",
        Written("`to`, and `notify` with the addresses in it"),
    ),
    plugin("tsig", Refused(KEEP)),
    plugin("upstream", Noted(UPSTREAM)),
    plugin(
        "view",
        Written("`from` in the zone; the smallest network that contains the client decides"),
    ),
    option(
        "view",
        "expr",
        Written("`from`, for `incidr(client_ip(), …)` and several of them with `||`"),
    ),
    plugin("whoami", Written("`use` of `builtin:whoami`")),
];

/// The translation of a plugin or option; `None` if the word is unknown.
pub fn fate(plugin: &str, option: &str) -> Option<Fate> {
    let found = WORDS
        .iter()
        .find(|word| word.plugin == plugin && word.option == option);
    found.map(|word| word.fate)
}

/// The table for the documentation, in Markdown.
pub fn table() -> String {
    let mut text = String::from("| in the Corefile | in dnsweir |\n|---|---|\n");
    for Word { plugin, option, fate } in WORDS {
        let word = match *option {
            "" => format!("`{plugin}`"),
            option => format!("`{plugin}`: `{option}`"),
        };
        let becomes = match fate {
            Written(text) => (*text).to_owned(),
            Noted(text) => format!("nothing to write: {text}"),
            Refused(text) => format!("**refused**: {text}"),
        };
        text.push_str(&format!("| {word} | {becomes} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_there_once_and_in_order() {
        let words: Vec<_> = WORDS.iter().map(|word| (word.plugin, word.option)).collect();
        let mut plugins: Vec<_> = words.iter().map(|(plugin, _)| *plugin).collect();
        assert!(plugins.is_sorted(), "by plugin");
        plugins.dedup();
        for plugin in plugins {
            assert_eq!(
                words.iter().filter(|word| **word == (plugin, "")).count(),
                1,
                "{plugin}"
            );
        }
        let mut once = words.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), words.len());
    }
}
