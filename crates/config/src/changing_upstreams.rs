//! Upstreams whose addresses change while the text of the configuration does not: those given by host name, and
//! those that a resolv.conf lists.

use std::net::{IpAddr, SocketAddr};

use super::address::interface_index;
use super::error::Span;
use super::forward::Forward;
use super::node::Node;
use super::source::{NamedSource, SourceConfig};
use super::surroundings::{Listeners, Surroundings};
use super::upstream::{NamedUpstream, Upstream};
use super::whole::Config;
use super::zone::{Stage, Zone};

impl Config {
    /// The upstreams configured by host name, each with the bootstrap servers that resolve it.
    pub fn named_upstreams(&self) -> impl Iterator<Item = (&NamedUpstream, &[SocketAddr])> {
        self.forwards().flat_map(|forward| {
            let named = forward.named.iter();
            named.map(|upstream| (upstream, &*forward.bootstrap))
        })
    }

    /// Fills in the addresses of upstreams configured by name; `known` returns none for unresolved hosts.
    pub fn place_addresses(&mut self, known: impl Fn(&str) -> Vec<IpAddr>) {
        for forward in forwards_mut(&mut self.zones, &mut self.sources) {
            for named in &forward.named {
                let addresses = known(&named.host);
                if addresses.is_empty() {
                    self.unusable
                        .push(format!("{}: no address of it is known yet", named.host));
                }
                for upstream in addresses.into_iter().map(|ip| named.at(ip)) {
                    if !forward.upstreams.contains(&upstream) {
                        forward.upstreams.push(upstream);
                    }
                }
            }
        }
    }

    /// Replaces the addresses of upstreams by those that its files list now, and those that are `known` now of
    /// the ones configured by name, and looks up the interfaces in written ones and in those of `bootstrap`.
    /// Nothing else is read again. Returns whether any changed.
    pub fn renew_upstreams(&mut self, known: impl Fn(&str) -> Vec<IpAddr>) -> bool {
        let addresses = |config: &Config| -> Vec<(Vec<Upstream>, Vec<SocketAddr>)> {
            config
                .forwards()
                .map(|forward| (forward.upstreams.clone(), forward.bootstrap.clone()))
                .collect()
        };
        let before = addresses(self);
        let listen = self.listen.addresses.iter();
        let around = Surroundings {
            listeners: Listeners(listen.map(|address| (*address, Span::default())).collect()),
            past_us: self.node.iter().flat_map(Node::past_us).copied().collect(),
            ..Surroundings::default()
        };
        self.unusable.clear();
        for forward in forwards_mut(&mut self.zones, &mut self.sources) {
            let mut interfaces = forward.renew_bootstrap();
            if let Some(found) = forward.gather_again(|server| around.is_loop(server)) {
                self.unusable.extend(found.unusable);
                interfaces.extend(found.interfaces);
            }
            for name in interfaces {
                let index = interface_index(&name);
                self.interfaces.insert(name, index);
            }
        }
        self.place_addresses(known);
        addresses(self) != before
    }

    fn forwards(&self) -> impl Iterator<Item = &Forward> {
        self.sources().filter_map(|source| match source {
            SourceConfig::Forward(forward) => Some(forward),
            _ => None,
        })
    }
}

/// The `forward`s of zones, followed by those of named sources.
fn forwards_mut<'a>(
    zones: &'a mut [Zone],
    sources: &'a mut [NamedSource],
) -> impl Iterator<Item = &'a mut Forward> {
    let stages = zones.iter_mut().flat_map(|zone| &mut zone.stages);
    let of_zones = stages.filter_map(|stage| match stage {
        Stage::Source(source) => Some(source),
        Stage::Filter(_) | Stage::Cache(_) => None,
    });
    let all = of_zones.chain(sources.iter_mut().map(|named| &mut named.source));
    all.filter_map(|source| match source {
        SourceConfig::Forward(forward) => Some(forward),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::forward::Written;
    use super::super::tests::parse_in;
    use super::*;

    #[test]
    fn only_the_addresses_of_upstreams_are_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(folder.path().join("resolv.conf"), text).unwrap();
        let upstreams = |config: &Config| -> Vec<String> {
            let all = config.forwards().flat_map(|forward| &forward.upstreams);
            all.map(|upstream| upstream.address.ip().to_string()).collect()
        };
        write("nameserver 192.0.2.2\nnameserver 192.0.2.3\n");
        let text = "listen \"127.0.0.1\"\n\
            zone \".\" { forward \"192.0.2.1\" \"./resolv.conf\" \"192.0.2.3\" }\n\
            source \"s\" { forward \"tls://dns.example\" { bootstrap \"192.0.2.53\" } }";
        let mut config = parse_in(folder.path(), text).unwrap();
        let now = |last: u8| move |_: &str| vec![IpAddr::from([198, 51, 100, last])];
        config.place_addresses(now(1));
        let first = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.1"];
        assert_eq!(upstreams(&config), first);
        assert!(!config.renew_upstreams(now(1)));
        assert_eq!(upstreams(&config), first);

        write("nameserver 127.0.0.1\nnameserver 192.0.2.4\nnameserver fe80::1%nosuchlink\n");
        assert!(config.renew_upstreams(now(2)));
        let second = ["192.0.2.1", "192.0.2.4", "192.0.2.3", "198.51.100.2"];
        assert_eq!(upstreams(&config), second);
        assert_eq!(config.unusable.len(), 2, "{:?}", config.unusable);
        assert_eq!(config.interfaces.get("nosuchlink"), Some(&None));

        // Too many.
        write(
            &(1..=17)
                .map(|last| format!("nameserver 203.0.113.{last}\n"))
                .collect::<String>(),
        );
        assert!(!config.renew_upstreams(now(2)));
        assert_eq!(upstreams(&config), second);

        fs::remove_file(folder.path().join("resolv.conf")).unwrap();
        assert!(config.renew_upstreams(|_| Vec::new()));
        assert_eq!(upstreams(&config), ["192.0.2.1", "192.0.2.3"]);
    }

    #[test]
    fn the_interfaces_of_addresses_are_looked_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let text = "listen \"127.0.0.1\"\n\
            zone \".\" { forward \"fe80::1%lo\" \"2001:db8::1\" }\n\
            source \"s\" { forward \"tls://[fe80::2%lo]%dns.example\" }\n\
            source \"t\" { forward \"tls://dns.example\" { bootstrap \"192.0.2.53\" \"fe80::3%lo\" } }";
        let first = parse_in(folder.path(), text).unwrap();
        let mut config = first.clone();
        // As if it had been another interface of that name.
        let make_stale = |address: &mut SocketAddr| match address {
            SocketAddr::V6(address) if address.scope_id() != 0 => address.set_scope_id(99),
            _ => {}
        };
        for forward in forwards_mut(&mut config.zones, &mut config.sources) {
            forward.bootstrap.iter_mut().for_each(make_stale);
            let upstreams = forward.upstreams.iter_mut();
            upstreams.for_each(|upstream| make_stale(&mut upstream.address));
            for written in &mut forward.written {
                if let Written::At(upstream, _) = written {
                    make_stale(&mut upstream.address);
                }
            }
        }
        config.interfaces.insert("lo".into(), Some(99));
        assert!(config.renew_upstreams(|_| Vec::new()));
        let addresses = |config: &Config| -> Vec<SocketAddr> {
            let all = config.forwards().flat_map(|forward| {
                let upstreams = forward.upstreams.iter().map(|upstream| upstream.address);
                upstreams.chain(forward.bootstrap.iter().copied())
            });
            all.collect()
        };
        assert_eq!(addresses(&config), addresses(&first));
        assert_eq!(config.interfaces, first.interfaces);
        assert!(!config.renew_upstreams(|_| Vec::new()));
    }
}
