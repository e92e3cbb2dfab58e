//! Replaces node-cache: translates its command line, Corefile template and kube-dns config map into a
//! configuration.
//!
//! [`template`] replaces the template's variables (`__PILLAR__…`); [`config_map`] has the stub domains and
//! upstreams. [`corefile`] translates the resulting Corefile.

mod config_map;
mod template;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::{self, Builtins, Config, Diagnostic, Report, Source, Span, read_source, spell_duration};
use crate::corefile::{self, Node};

use config_map::ConfigMap;
use template::Values;

/// The default folder of kube-dns's config map, if it exists.
const CONFIG_MAP: &str = "/etc/kube-dns";

/// How many times the config map could not be used.
pub static CONFIG_MAP_ERRORS: AtomicU64 = AtomicU64::new(0);

/// node-cache's command line.
#[derive(Debug)]
pub struct Options {
    /// `-localip`: the addresses to listen on.
    pub local_ips: Vec<IpAddr>,
    /// `-dns.port`
    pub port: u16,
    /// `-interfacename`, unless `-setupinterface=false`.
    pub interface: Option<String>,
    /// `-setupiptables`
    pub iptables: bool,
    /// `-skipteardown`
    pub skip_teardown: bool,
    /// `-syncinterval`
    pub interval: Duration,
    /// `-basecorefile`: the template.
    pub template: PathBuf,
    /// `-kubednscm`: the folder of kube-dns's config map.
    pub config_map: Option<PathBuf>,
    /// `-upstreamsvc`: the service whose address is in the environment.
    pub upstream_service: String,
    /// `-metrics-listen-address`
    pub metrics: String,
    /// `-prometheus-listen-address`
    pub prometheus: String,
}

impl Options {
    /// Whether it sets up the node's network.
    pub fn keeps_network(&self) -> bool {
        self.interface.is_some() || self.iptables
    }

    /// The environment variable with the address of the cluster DNS.
    fn upstream_variable(&self) -> String {
        let service = self.upstream_service.replace('-', "_").to_ascii_uppercase();
        format!("{service}_SERVICE_HOST")
    }

    fn config_map_folder(&self) -> &Path {
        self.config_map.as_deref().unwrap_or(Path::new(CONFIG_MAP))
    }

    /// The `node` section: what node-cache sets up.
    fn node(&self) -> Option<Node> {
        let mut node = Node::new("node");
        if let Some(interface) = &self.interface {
            node = node.child(Node::new("interface").text(interface));
        }
        if self.iptables {
            node = node.child(Node::new("iptables"));
        }
        node = node
            .child(Node::new("mode").text("bypass"))
            .child(Node::new("interval").text(&spell_duration(self.interval)));
        if self.skip_teardown {
            node = node.child(Node::new("skip-teardown"));
        }
        self.keeps_network().then_some(node)
    }

    /// Reads the current files and returns the configuration. An unusable config map is an error, except at
    /// the `start`: then it is ignored, as in node-cache.
    ///
    /// # Errors
    /// Mistakes in the template, the resulting Corefile, or the config map.
    pub fn load(&self, builtins: Builtins<'_>, start: bool) -> Result<Config, Report> {
        let files = self.files();
        let mut config = self
            .read(builtins, start)
            .map_err(|report| report.with_files(&files))?;
        config.files.extend(files);
        Ok(config)
    }

    /// The template and the files of the config map.
    fn files(&self) -> Vec<PathBuf> {
        let folder = self.config_map_folder();
        let of_map = config_map::FILES.map(|file| folder.join(file));
        [self.template.clone()].into_iter().chain(of_map).collect()
    }

    fn read(&self, builtins: Builtins<'_>, start: bool) -> Result<Config, Report> {
        let folder = self.config_map_folder();
        let config_map = match ConfigMap::read(folder) {
            Ok(config_map) => config_map,
            Err(report) if start => {
                // Loading repeats until no file changes meanwhile; count and log the mistake once.
                if CONFIG_MAP_ERRORS.swap(1, Ordering::Relaxed) == 0 {
                    tracing::error!("the config map is not used:\n{report}");
                }
                ConfigMap::default()
            }
            Err(report) => {
                CONFIG_MAP_ERRORS.fetch_add(1, Ordering::Relaxed);
                return Err(report);
            }
        };
        let source = read_source(&self.template)?;
        let cluster_dns = std::env::var(self.upstream_variable()).ok();
        let values = Values {
            local_ips: &self.local_ips,
            port: self.port,
            prometheus: &self.prometheus,
            cluster_dns: cluster_dns.as_deref(),
        };
        let text = template::filled(source.text(), &values, &config_map)
            .map_err(|missing| self.unknown_cluster_dns(&source, missing))?;
        let source = Source::new(
            format!("{}, with its variables replaced", self.template.display()),
            text,
        );
        let translated = corefile::translate(
            source,
            self.template.parent().unwrap_or(Path::new("")),
            &corefile::Options {
                port: self.port,
                cache_first: true,
                node: self.node(),
                admin: Some(self.metrics.clone()),
                folder: std::env::current_dir().unwrap_or(PathBuf::from("/")),
                awaits_files: true,
                ..corefile::Options::default()
            },
        )?;
        let name = format!("{}, as a configuration", self.template.display());
        let parsed = config::parse(&name, &translated.text, Path::new("/"), builtins);
        let mut config = parsed.map_err(|report| {
            let retold = translated.retold(&report);
            retold.with_files(report.files()).with_files(&translated.files)
        })?;
        config.files.extend(translated.files);
        Ok(config)
    }

    fn unknown_cluster_dns(&self, source: &Source, at: Span) -> Report {
        let variable = self.upstream_variable();
        let problem = format!(
            "the address of the service {:?} is not known",
            self.upstream_service
        );
        let unknown = Diagnostic::new(at, problem)
            .label(format!("the environment has no {variable}"))
            .help("create the service before the pod, or name another one with -upstreamsvc");
        Report::new(source.clone(), vec![unknown])
    }
}

/// Converts node-cache's command line to our parser's form: Go also allows one dash before a long flag.
/// `None` if this is not a command line of node-cache.
pub fn command_line(words: &[String]) -> Option<Vec<String>> {
    let (program, rest) = words.split_first()?;
    let called = Path::new(program)
        .file_name()
        .is_some_and(|name| name == "node-cache");
    let rest = match rest.split_first() {
        Some((first, rest)) if first == "node-cache" => rest,
        Some((first, _)) if called || is_flag(first) => rest,
        None if called => rest,
        _ => return None,
    };
    let long = |word: &String| match word.strip_prefix('-') {
        Some(name) if !name.starts_with('-') && name.len() > 1 => format!("-{word}"),
        _ => word.clone(),
    };
    let words = [program.clone(), "node-cache".to_owned()];
    Some(words.into_iter().chain(rest.iter().map(long)).collect())
}

/// Whether a word is a flag that only node-cache has, spelled as in its manifest.
fn is_flag(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    let name = name.split('=').next().unwrap_or(name);
    let known = [
        "localip",
        "conf",
        "upstreamsvc",
        "basecorefile",
        "kubednscm",
        "setupinterface",
        "setupiptables",
    ];
    word.starts_with('-') && known.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_of_the_manifest_is_known() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (written, ours) in [
            (
                "/dnsweir -localip 169.254.20.10,10.96.0.10 -conf /etc/Corefile -upstreamsvc kube-dns-upstream",
                "/dnsweir node-cache --localip 169.254.20.10,10.96.0.10 --conf /etc/Corefile --upstreamsvc kube-dns-upstream",
            ),
            ("/node-cache -p 5300", "/node-cache node-cache -p 5300"),
            (
                "dnsweir node-cache --localip=::1",
                "dnsweir node-cache --localip=::1",
            ),
            (
                "dnsweir -setupiptables=false",
                "dnsweir node-cache --setupiptables=false",
            ),
        ] {
            assert_eq!(command_line(&words(written)), Some(words(ours)), "{written}");
        }
        for ours in ["dnsweir run --config x", "dnsweir --version", "dnsweir"] {
            assert_eq!(command_line(&words(ours)), None, "{ours}");
        }
    }
}
