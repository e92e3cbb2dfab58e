//! The arguments of `dnsweir webhook`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;

use crate::webhook::{Certificate, DnsOption, Files, Injection, Options, Resolvers, SYSTEM, is_domain};

/// The environment variable with the cluster DNS address, which Kubernetes sets for pods in `kube-system`.
const CLUSTER_DNS: &str = "KUBE_DNS_SERVICE_HOST";

/// The `ndots` that the kubelet gives a pod's resolver.
const NDOTS: u8 = 5;

/// How pods are pointed at their node's address.
#[derive(Debug, clap::Args)]
pub struct WebhookFlags {
    /// Addresses of the node that pods should use for DNS, separated by commas.
    #[arg(
        long,
        value_name = "ADDRESSES",
        value_delimiter = ',',
        required_unless_present = "options_only"
    )]
    local_address: Vec<IpAddr>,
    /// Addresses of the cluster's DNS, which pods use when the node does not answer, separated by commas
    /// [default: that in KUBE_DNS_SERVICE_HOST].
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    cluster_dns: Vec<IpAddr>,
    /// Domain of the cluster, for the search lists.
    #[arg(long, value_name = "NAME", default_value = "cluster.local", value_parser = domain)]
    domain: String,
    /// Number of dots from which a name is first looked up without a search domain [default: 5; with --options-only, unset].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(..=15))]
    ndots: Option<u8>,
    /// Another option of resolv.conf, such as use-vc, single-request-reopen or timeout:1; may be repeated.
    #[arg(long, value_name = "NAME[:VALUE]", value_parser = option)]
    option: Vec<DnsOption>,
    /// Add options only, and leave `dnsPolicy`, name servers and search lists alone.
    #[arg(long, conflicts_with_all = ["local_address", "cluster_dns"])]
    options_only: bool,
    /// Label with which a pod opts out, and its value.
    #[arg(long, value_name = "LABEL=VALUE", default_value = "node-local-dns-injection=disabled", value_parser = label)]
    opt_out: (String, String),
    /// System namespace that is not excluded; may be repeated.
    #[arg(long, value_name = "NAMESPACE", value_parser = PossibleValuesParser::new(SYSTEM))]
    include_namespace: Vec<String>,
    /// Change nothing; log what would be changed.
    #[arg(long)]
    dry_run: bool,
    /// Address to listen on for the API server [default: port 8443 of all].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address to serve /health, /ready and /metrics on [default: port 9253 of all].
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Certificate in PEM, which is reloaded when it changes. Without it, one is created, and kept current in the API.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Key of the certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Authorities in PEM of the API server's client certificate. Without it, anyone who can connect may send requests.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Name of the Service, and of the Secret and MutatingWebhookConfiguration in which the created certificate is kept.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "dnsweir-webhook",
        conflicts_with = "certificate"
    )]
    name: String,
}

impl WebhookFlags {
    /// Converts the flags to options.
    ///
    /// # Errors
    /// What to write instead.
    pub fn options(self) -> Result<Options, String> {
        let ndots = match self.options_only {
            true => self.ndots,
            false => Some(self.ndots.unwrap_or(NDOTS)),
        };
        let ndots = ndots.map(|ndots| DnsOption::new("ndots", Some(&ndots.to_string())));
        let options: Vec<DnsOption> = ndots.into_iter().chain(self.option).collect();
        let twice = |at: &usize| options[..*at].iter().any(|one| one.name == options[*at].name);
        if let Some(at) = (0..options.len()).find(twice) {
            return Err(format!("the option {} is given twice", options[at].name));
        }
        if options.is_empty() {
            return Err("with --options-only, write --ndots or --option".into());
        }
        let resolvers = match self.options_only {
            true => None,
            false => Some(Resolvers {
                nameservers: nameservers(self.local_address, self.cluster_dns)?,
                domain: self.domain,
            }),
        };
        Ok(Options {
            injection: Injection {
                resolvers,
                options,
                opt_out: self.opt_out,
                included: self.include_namespace,
            },
            dry_run: self.dry_run,
            listen: self.listen,
            admin: self.admin,
            certificate: match (self.certificate, self.key) {
                (Some(certificate), Some(key)) => Certificate::Files(Files { certificate, key }),
                _ => Certificate::Own(self.name),
            },
            client_ca: self.client_ca,
        })
    }
}

/// The node's addresses followed by those of the cluster DNS.
fn nameservers(local: Vec<IpAddr>, cluster: Vec<IpAddr>) -> Result<Vec<IpAddr>, String> {
    let known = || {
        let address = std::env::var(CLUSTER_DNS).ok()?;
        Some(vec![address.parse().ok()?])
    };
    let cluster = match cluster.is_empty() {
        true => known().ok_or_else(|| {
            format!(
                "write --cluster-dns: there is no address in {CLUSTER_DNS}, which pods in kube-system have"
            )
        })?,
        false => cluster,
    };
    match local.len() {
        1 | 2 => Ok(local.into_iter().chain(cluster).collect()),
        many => Err(format!(
            "{many} addresses of the node leave no room for the cluster's DNS: a pod has at most 3 name servers"
        )),
    }
}

fn domain(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('.');
    match is_domain(text) {
        true => Ok(text.to_owned()),
        false => Err("write a name such as cluster.local, in lowercase".into()),
    }
}

fn option(text: &str) -> Result<DnsOption, String> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
    };
    match is_word(name) && value.is_none_or(is_word) {
        true => Ok(DnsOption::new(name, value)),
        false => Err("write an option such as use-vc or timeout:1".into()),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((label, value)) if !label.is_empty() => Ok((label.to_owned(), value.to_owned())),
        _ => Err("write a label and its value, such as node-local-dns-injection=disabled".into()),
    }
}
