//! Replaces the variables in the Corefile template.

use std::net::IpAddr;

use crate::config::Span;

use super::config_map::ConfigMap;

const LOCAL: &str = "__PILLAR__LOCAL__DNS__";
const SERVER: &str = "__PILLAR__DNS__SERVER__";
const CLUSTER: &str = "__PILLAR__CLUSTER__DNS__";
const UPSTREAMS: &str = "__PILLAR__UPSTREAM__SERVERS__";
const PROMETHEUS: &str = "__PROMETHEUS__ENDPOINT__";

/// The template's `forward` over TCP, and its replacement: upstreams from the config map are asked over UDP.
const OVER_TCP: &str = "\n    forward . __PILLAR__UPSTREAM__SERVERS__ {\n            force_tcp\n    }\n";
const OVER_UDP: &str = "\n    forward . __PILLAR__UPSTREAM__SERVERS__\n";

/// Values for the variables, besides those of the config map.
pub struct Values<'a> {
    /// The addresses to listen on.
    pub local_ips: &'a [IpAddr],
    /// The port to listen on.
    pub port: u16,
    /// The address that serves metrics.
    pub prometheus: &'a str,
    /// The address of the cluster DNS, if known.
    pub cluster_dns: Option<&'a str>,
}

/// Returns the Corefile: the template with its variables replaced, and a block for each stub domain.
///
/// # Errors
/// The span of the cluster DNS variable, if that address is unknown.
pub fn filled(template: &str, values: &Values<'_>, config_map: &ConfigMap) -> Result<String, Span> {
    let mut text = template.to_owned();
    let upstreams = match config_map.upstreams.is_empty() {
        true => "/etc/resolv.conf".to_owned(),
        false => {
            text = text.replace(OVER_TCP, OVER_UDP);
            config_map.upstreams.join(" ")
        }
    };
    text = text.replace(UPSTREAMS, &upstreams);
    if let Some(start) = template.find(CLUSTER) {
        let address = values
            .cluster_dns
            .ok_or(Span::from(start..start + CLUSTER.len()))?;
        text = text.replace(CLUSTER, address);
    }
    let local: Vec<String> = values.local_ips.iter().map(ToString::to_string).collect();
    let local = local.join(" ");
    text = text
        .replace(LOCAL, &local)
        .replace(SERVER, "")
        .replace(PROMETHEUS, values.prometheus);
    for (domain, servers) in &config_map.stub_domains {
        let (port, servers) = (values.port, servers.join(" "));
        text.push_str(&format!(
            "\n{domain}:{port} {{\n    errors\n    cache 30\n    bind {local}\n    forward . {servers}\n}}\n"
        ));
    }
    Ok(text)
}
