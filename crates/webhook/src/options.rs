//! The options, from the flags of the command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use dnsweir_flags::{DnsOption, WebhookFlags};

use super::files::Files;
use super::injection::{Injection, Resolvers};

/// The environment variable with the cluster DNS address, which Kubernetes sets for pods in `kube-system`.
const CLUSTER_DNS: &str = "KUBE_DNS_SERVICE_HOST";

/// The `ndots` that the kubelet gives a pod's resolver.
const NDOTS: u8 = 5;

/// The options from the command line.
#[derive(Debug)]
pub struct Options {
    /// The settings for pods.
    pub injection: Injection,
    /// Whether to log changes instead of making them.
    pub dry_run: bool,
    /// The address to listen on; `None`: port 8443 of all addresses.
    pub listen: Option<SocketAddr>,
    /// The address for health checks and metrics; `None`: port 9253 of all addresses.
    pub admin: Option<SocketAddr>,
    /// Where the certificate comes from.
    pub certificate: Certificate,
    /// File with the authorities of client certificates; `None`: clients need none.
    pub client_ca: Option<PathBuf>,
}

/// The source of the certificate.
#[derive(Debug)]
pub enum Certificate {
    /// From files.
    Files(Files),
    /// Created here, kept in the Secret and set in the MutatingWebhookConfiguration of this name.
    Own(String),
}

impl Options {
    /// Converts the flags to options.
    ///
    /// # Errors
    /// What to write instead.
    pub fn new(flags: WebhookFlags) -> Result<Options, String> {
        let ndots = match flags.options_only {
            true => flags.ndots,
            false => Some(flags.ndots.unwrap_or(NDOTS)),
        };
        let ndots = ndots.map(|ndots| DnsOption::new("ndots", Some(&ndots.to_string())));
        let options: Vec<DnsOption> = ndots.into_iter().chain(flags.option).collect();
        let twice = |at: &usize| options[..*at].iter().any(|one| one.name == options[*at].name);
        if let Some(at) = (0..options.len()).find(twice) {
            return Err(format!("the option {} is given twice", options[at].name));
        }
        if options.is_empty() {
            return Err("with --options-only, write --ndots or --option".into());
        }
        let resolvers = match flags.options_only {
            true => None,
            false => Some(Resolvers {
                nameservers: nameservers(flags.local_address, flags.cluster_dns)?,
                domain: flags.domain,
            }),
        };
        Ok(Options {
            injection: Injection {
                resolvers,
                options,
                opt_out: flags.opt_out,
                included: flags.include_namespace,
            },
            dry_run: flags.dry_run,
            listen: flags.listen,
            admin: flags.admin,
            certificate: match (flags.certificate, flags.key) {
                (Some(certificate), Some(key)) => Certificate::Files(Files { certificate, key }),
                _ => Certificate::Own(flags.name),
            },
            client_ca: flags.client_ca,
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
