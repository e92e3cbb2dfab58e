//! The flags of `dnsweir webhook`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use dnsweir_wire::dns::name::is_subdomain;

use super::log::LogFlags;

/// System namespaces, on whose pods others depend.
pub const SYSTEM: [&str; 2] = ["kube-system", "kube-public"];

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
    pub local_address: Vec<IpAddr>,
    /// Addresses of the cluster's DNS, which pods use when the node does not answer, separated by commas
    /// [default: that in KUBE_DNS_SERVICE_HOST].
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    /// Domain of the cluster, for the search lists.
    #[arg(long, value_name = "NAME", default_value = "cluster.local", value_parser = domain)]
    pub domain: String,
    /// Number of dots from which a name is first looked up without a search domain [default: 5; with --options-only, unset].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(..=15))]
    pub ndots: Option<u8>,
    /// Another option of resolv.conf, such as use-vc, single-request-reopen or timeout:1; may be repeated.
    #[arg(long, value_name = "NAME[:VALUE]", value_parser = option)]
    pub option: Vec<DnsOption>,
    /// Add options only, and leave `dnsPolicy`, name servers and search lists alone.
    #[arg(long, conflicts_with_all = ["local_address", "cluster_dns"])]
    pub options_only: bool,
    /// Label with which a pod opts out, and its value.
    #[arg(long, value_name = "LABEL=VALUE", default_value = "node-local-dns-injection=disabled", value_parser = label)]
    pub opt_out: (String, String),
    /// System namespace that is not excluded; may be repeated.
    #[arg(long, value_name = "NAMESPACE", value_parser = PossibleValuesParser::new(SYSTEM))]
    pub include_namespace: Vec<String>,
    /// Change nothing; log what would be changed.
    #[arg(long)]
    pub dry_run: bool,
    /// Address to listen on for the API server [default: port 8443 of all].
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Address to serve /health, /ready and /metrics on [default: port 9253 of all].
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
    /// Certificate in PEM, which is reloaded when it changes. Without it, one is created, and kept current in the API.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Key of the certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Authorities in PEM of the API server's client certificate. Without it, anyone who can connect may send requests.
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// Name of the Service, and of the Secret and MutatingWebhookConfiguration in which the created certificate is kept.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "dnsweir-webhook",
        conflicts_with = "certificate"
    )]
    pub name: String,
    /// What is logged.
    #[command(flatten)]
    pub log: LogFlags,
}

/// An option of resolv.conf.
#[derive(Debug, Clone)]
pub struct DnsOption {
    /// Its name.
    pub name: String,
    /// Its value, if it has one.
    pub value: Option<String>,
}

impl DnsOption {
    /// Makes an option.
    pub fn new(name: &str, value: Option<&str>) -> DnsOption {
        DnsOption {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        }
    }
}

/// Whether this is a valid cluster domain: lowercase labels (RFC 1123 section 2.1), short enough that with a
/// namespace before it, it has at most 253 bytes.
fn is_domain(text: &str) -> bool {
    const BEFORE: usize = 63 + ".svc.".len();
    text.len() <= 253 - BEFORE && is_subdomain(text)
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

#[cfg(test)]
mod tests {
    use super::is_domain;

    #[test]
    fn domains_leave_room_for_a_namespace() {
        for good in ["cluster.local", "local", "a-1.b"] {
            assert!(is_domain(good), "{good}");
        }
        let long = ["x".repeat(63), "y".repeat(63), "z".repeat(63)].join(".");
        for bad in ["", ".", "a..b", "-a", "a-", "A", "a b", "a_b", &long] {
            assert!(!is_domain(bad), "{bad}");
        }
    }
}
