//! Determines which block answers which names on which addresses, and to whom. Blocks are grouped by the
//! addresses they bind to, and split where a plugin applies to only some of the names.
//!
//! As in CoreDNS, among the blocks for a client, the one with the longest zone answers.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::{Diagnostic, Encryption, Network, Span};

use super::blocks::{Block, Plugin};
use super::key::{self, Key};
use super::options::Options;
use super::tokens::Token;
use super::view;

/// Names of a block that are answered on the same addresses.
#[derive(Debug)]
pub struct Site<'a> {
    pub block: &'a Block,
    /// Each zone with the span of its key.
    pub zones: Vec<(String, Span)>,
    pub listeners: BTreeSet<SocketAddr>,
    /// The protocol; `None`: plain DNS.
    pub scheme: Option<Encryption>,
    /// The networks of its clients; if empty, all.
    pub clients: Vec<String>,
}

/// The sites of all blocks; problems are added to `mistakes`.
pub(crate) fn sites<'a>(
    blocks: &'a [Block],
    options: &Options,
    mistakes: &mut Vec<Diagnostic>,
) -> Vec<Site<'a>> {
    let mut sites: Vec<Site<'a>> = Vec::new();
    for block in blocks {
        let addresses = bound(block, options, mistakes);
        let clients = view::networks(block, mistakes);
        let mut of_block: Vec<((u16, Option<Encryption>), Site<'a>)> = Vec::new();
        for token in &block.keys {
            let key = match Key::parse(&token.text) {
                Ok(key) => key,
                Err((problem, help)) => {
                    mistakes.push(Diagnostic::new(token.span, problem).help(help));
                    continue;
                }
            };
            let (port, scheme) = (key.port.unwrap_or(options.port), key.scheme);
            let zones = key.zones.into_iter().map(|zone| (zone, token.span));
            match of_block.iter_mut().find(|(known, _)| *known == (port, scheme)) {
                Some((_, site)) => site.zones.extend(zones),
                None => {
                    let listeners = addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
                    let zones = zones.collect();
                    of_block.push((
                        (port, scheme),
                        Site {
                            block,
                            zones,
                            listeners,
                            scheme,
                            clients: clients.clone(),
                        },
                    ));
                }
            }
        }
        sites.extend(of_block.into_iter().map(|(_, site)| site));
    }
    refuse_overlaps(&sites, mistakes);
    sites
}

/// The addresses of a block: those of `bind`, or the wildcard addresses. In Go, a wildcard address of either
/// family listens on both.
fn bound(block: &Block, options: &Options, mistakes: &mut Vec<Diagnostic>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let binds = || block.plugins.iter().filter(|plugin| plugin.name.text == "bind");
    for bind in binds() {
        let except = bind.options.iter().filter(|option| option.name.text == "except");
        let except: Vec<IpAddr> = except
            .flat_map(|option| listed(&option.arguments, options, mistakes))
            .collect();
        let all = listed(&bind.arguments, options, mistakes);
        addresses.extend(all.into_iter().filter(|address| !except.contains(address)));
    }
    for bind in binds().filter(|bind| bind.arguments.is_empty()) {
        let bare = Diagnostic::new(bind.span(), "`bind` needs an address");
        mistakes.push(bare.help("write: bind 127.0.0.1"));
    }
    if binds().next().is_none() || addresses.iter().any(IpAddr::is_unspecified) {
        addresses.extend([IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()]);
    }
    addresses
}

/// The literal addresses, and the current addresses of interfaces without link-local IPv6.
fn listed(words: &[Token], options: &Options, mistakes: &mut Vec<Diagnostic>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for word in words {
        if let Ok(address) = word.text.parse() {
            addresses.push(address);
            continue;
        }
        let found = options.addresses_of.map(|of| of(&word.text)).unwrap_or_default();
        if found.is_empty() {
            let problem = format!(
                "{} is neither an IP address nor an interface with addresses",
                word.text
            );
            let help = "write the addresses of the interface that is meant";
            mistakes.push(Diagnostic::new(word.span, problem).help(help));
        }
        let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        addresses.extend(found.into_iter().filter(|ip| !is_local(ip)));
    }
    addresses
}

/// Reports names that two blocks serve on the same address for the same clients.
fn refuse_overlaps(sites: &[Site<'_>], mistakes: &mut Vec<Diagnostic>) {
    let mut known: Vec<(&str, &Site<'_>, Span)> = Vec::new();
    for site in sites {
        for (zone, span) in &site.zones {
            let same = |(name, other, _): &&(&str, &Site<'_>, Span)| {
                *name == zone && !other.listeners.is_disjoint(&site.listeners) && other.has_clients_of(site)
            };
            if let Some((_, _, first)) = known.iter().find(same) {
                let twice = Diagnostic::new(*span, format!("{zone} is served twice on the same address"));
                mistakes.push(
                    twice
                        .label("again")
                        .other(*first, "first here")
                        .help("keep one of them"),
                );
            }
            known.push((zone, site, *span));
        }
    }
}

impl Site<'_> {
    /// Whether a client could match both with no rule to choose between them.
    fn has_clients_of(&self, other: &Site<'_>) -> bool {
        match (self.clients.is_empty(), other.clients.is_empty()) {
            (false, false) => self.clients.iter().any(|network| other.clients.contains(network)),
            (one, both) => one == both,
        }
    }

    /// The closest of its zones that contains a name.
    fn above(&self, name: &str) -> Option<&str> {
        let zones = self.zones.iter().map(|(zone, _)| zone.as_str());
        zones
            .filter(|zone| is_in(name, zone))
            .max_by_key(|zone| zone.len())
    }

    /// The networks of its clients that ask it for a name on a listener, since no site with a closer zone is
    /// for all of them; if empty, all clients. `None`: nobody does.
    fn askers(&self, name: &str, listener: &SocketAddr, all: &[Site<'_>]) -> Option<Vec<String>> {
        let above = self.above(name)?;
        let is_closer = |other: &&Site<'_>| {
            let zone = other.above(name).filter(|zone| zone.len() > above.len());
            zone.is_some() && other.listeners.contains(listener)
        };
        let closer: Vec<&Site<'_>> = all.iter().filter(is_closer).collect();
        if self.clients.is_empty() {
            return closer
                .iter()
                .all(|other| !other.clients.is_empty())
                .then(Vec::new);
        }
        let mut left = self.clients.clone();
        left.retain(|network| !closer.iter().any(|other| include(&other.clients, network)));
        (!left.is_empty()).then_some(left)
    }
}

/// A zone, and the addresses on which it is answered.
#[derive(Debug, Clone)]
pub struct Cut {
    pub zone: String,
    pub listeners: BTreeSet<SocketAddr>,
    /// The networks of its clients; if empty, all.
    pub clients: Vec<String>,
}

/// The zones of each site: its own, those below that a plugin treats differently and no other site serves, and
/// those below that another site has for clients of this one: without a zone there, they would get that one.
pub fn cuts(sites: &[Site<'_>]) -> Vec<Vec<Cut>> {
    let apart: Vec<Vec<Cut>> = sites.iter().map(|site| told_apart(site, sites)).collect();
    let own = |site: &Site<'_>| {
        let cut = |(zone, _): &(String, Span)| Cut {
            zone: zone.clone(),
            listeners: site.listeners.clone(),
            clients: site.clients.clone(),
        };
        site.zones.iter().map(cut).collect::<Vec<_>>()
    };
    let all = sites.iter().zip(&apart);
    all.map(|(site, cuts)| [own(site), cuts.clone(), beside(site, cuts, &apart, sites)].concat())
        .collect()
}

/// The zones below a site's own that its plugins treat differently.
fn told_apart(site: &Site<'_>, all: &[Site<'_>]) -> Vec<Cut> {
    let names: BTreeSet<String> = site.block.plugins.iter().flat_map(scopes).collect();
    let cuts = |name: &String| below(site, name, |listener| site.askers(name, listener, all));
    names.iter().flat_map(cuts).collect()
}

/// The zones below a site's own that it has only because another site tells them apart, for clients that
/// include some of its own.
fn beside(site: &Site<'_>, own: &[Cut], apart: &[Vec<Cut>], all: &[Site<'_>]) -> Vec<Cut> {
    // If all may ask both, one of them has the closer zone.
    if site.clients.is_empty() {
        return Vec::new();
    }
    let is_new = |cut: &&Cut| own.iter().all(|own| own.zone != cut.zone);
    let others: Vec<&Cut> = apart.iter().flatten().filter(is_new).collect();
    let names: BTreeSet<&str> = others.iter().map(|cut| cut.zone.as_str()).collect();
    let cuts = |name: &str| {
        let askers = |listener: &SocketAddr| {
            let is_here = |cut: &&&Cut| cut.zone == name && cut.listeners.contains(listener);
            let here: Vec<&&Cut> = others.iter().filter(is_here).collect();
            let mut askers = site.askers(name, listener, all)?;
            askers.retain(|network| here.iter().any(|cut| include(&cut.clients, network)));
            (!askers.is_empty()).then_some(askers)
        };
        below(site, name, askers)
    };
    names.into_iter().flat_map(cuts).collect()
}

/// The zones of a site at a name below its own: one for the listeners on which the same clients ask for it.
fn below(site: &Site<'_>, name: &str, askers: impl Fn(&SocketAddr) -> Option<Vec<String>>) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = Vec::new();
    if site.above(name).is_none_or(|above| above == name) {
        return cuts;
    }
    for listener in &site.listeners {
        let Some(clients) = askers(listener) else { continue };
        match cuts.iter_mut().find(|cut| cut.clients == clients) {
            Some(cut) => cut.listeners.extend([*listener]),
            None => cuts.push(Cut {
                zone: name.to_owned(),
                listeners: BTreeSet::from([*listener]),
                clients,
            }),
        }
    }
    cuts
}

/// Whether clients include a whole network; no networks at all are all clients.
fn include(clients: &[String], network: &str) -> bool {
    let read = |text: &str| {
        let (address, length) = text.split_once('/')?;
        Network::of(address.parse().ok()?, length.parse().ok()?)
    };
    let covers = |wide: &String| match (read(wide), read(network)) {
        (Some(wide), Some(network)) => wide.covers(&network),
        _ => wide == network,
    };
    clients.is_empty() || clients.iter().any(covers)
}

/// Whether a name is in a zone: its apex, or below it.
pub(crate) fn is_in(name: &str, zone: &str) -> bool {
    let above = name.strip_suffix(zone);
    zone == "." || above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

/// The zones that a plugin names: it applies only to them, or behaves differently there.
fn scopes(plugin: &Plugin) -> Vec<String> {
    let mut names = scope(plugin);
    for option in plugin
        .options
        .iter()
        .filter(|option| option.name.text == "fallthrough")
    {
        names.extend(option.arguments.iter().map(|argument| argument.text.as_str()));
    }
    if plugin.name.text == "cache" {
        let disabled = plugin
            .options
            .iter()
            .filter(|option| option.name.text == "disable");
        let zones = disabled.flat_map(|option| option.arguments.iter().skip(1));
        names.extend(zones.map(|zone| zone.text.as_str()));
    }
    names
        .into_iter()
        .filter_map(|name| key::zones(name).ok())
        .flatten()
        .collect()
}

/// The zones that a plugin applies to; if empty, all names of its block.
fn scope(plugin: &Plugin) -> Vec<&str> {
    let arguments = plugin.arguments.iter().map(|argument| argument.text.as_str());
    match plugin.name.text.as_str() {
        "forward" => arguments.take(1).collect(),
        "kubernetes" | "k8s_external" | "secondary" | "transfer" => arguments.collect(),
        "autopath" => arguments.filter(|text| !text.starts_with('@')).collect(),
        "hosts" | "file" => arguments.skip(1).collect(),
        "cache" => arguments
            .enumerate()
            .filter(|(index, text)| *index > 0 || text.parse::<u32>().is_err())
            .map(|(_, text)| text)
            .collect(),
        "log" => arguments.filter(|text| !text.contains('{')).collect(),
        _ => Vec::new(),
    }
}

/// Whether the zones in `words` contain `zone`; no zones at all mean everything.
pub(crate) fn are_about(words: &[Token], zone: &str) -> bool {
    let zones = words.iter().filter_map(|word| key::zones(&word.text).ok());
    let zones: Vec<String> = zones.flatten().collect();
    zones.is_empty() || zones.iter().any(|of| is_in(zone, of))
}

/// Among plugins of one name in a block, the one that names a zone or its closest parent.
pub(crate) fn closest_of<'p>(plugins: impl Iterator<Item = &'p Plugin>, zone: &str) -> Option<&'p Plugin> {
    let named = |plugin: &Plugin| {
        let zones = scope(plugin).into_iter().filter_map(|name| key::zones(name).ok());
        let above = zones.flatten().filter(|of| is_in(zone, of));
        above.map(|of| of.len()).max().unwrap_or(0)
    };
    let all: Vec<&Plugin> = plugins.collect();
    // If several are equally close, the first.
    all.into_iter().rev().max_by_key(|plugin| named(plugin))
}

/// Whether a plugin applies to a zone.
pub fn is_for(plugin: &Plugin, zone: &str) -> bool {
    let scope = scope(plugin);
    let zones = || scope.iter().filter_map(|name| key::zones(name).ok()).flatten();
    scope.is_empty() || zones().any(|of| is_in(zone, &of))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Source;

    use super::super::blocks;
    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, Vec<String>> {
        let source = Source::new("Corefile", text);
        let corefile = blocks::read(source, Path::new("/"), &|_| None).unwrap();
        let mut mistakes = Vec::new();
        let options = Options {
            port: 53,
            ..Options::default()
        };
        let sites = sites(&corefile.blocks, &options, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(mistakes.into_iter().map(|mistake| mistake.message).collect());
        }
        let cuts = cuts(&sites).into_iter().flatten();
        Ok(cuts
            .map(|cut| {
                let listeners: Vec<String> = cut.listeners.iter().map(ToString::to_string).collect();
                let from = cut.clients.iter().map(|network| format!(" from {network}"));
                format!("{} @ {}", cut.zone, listeners.join(" ")) + &from.collect::<String>()
            })
            .collect())
    }

    /// A block on 127.0.0.1 for these clients.
    fn block(zones: &str, clients: &[&str], forwards: &[&str]) -> String {
        let networks: Vec<String> = clients
            .iter()
            .map(|network| format!("incidr(client_ip(), '{network}')"))
            .collect();
        let view = match networks.is_empty() {
            true => String::new(),
            false => format!(" view v {{\n expr {}\n }}\n", networks.join(" || ")),
        };
        let forwards: String = forwards
            .iter()
            .map(|zone| format!(" forward {zone} 192.0.2.1\n"))
            .collect();
        format!("{zones} {{\n bind 127.0.0.1\n{view}{forwards}}}\n")
    }

    #[test]
    fn blocks_are_told_apart_by_their_addresses() {
        assert_eq!(
            shown("a b:5300 {\n bind 127.0.0.1 ::1\n}\n. {\n bind 127.0.0.2\n}").unwrap(),
            [
                "a. @ 127.0.0.1:53 [::1]:53",
                "b. @ 127.0.0.1:5300 [::1]:5300",
                ". @ 127.0.0.2:53"
            ]
        );
        for bind in ["", "bind 0.0.0.0", "bind ::", "bind 0.0.0.0 ::"] {
            let found = shown(&format!(". {{\n {bind}\n}}")).unwrap();
            assert_eq!(found, [". @ 0.0.0.0:53 [::]:53"], "{bind}");
        }
        assert_eq!(
            shown(". {\n bind 127.0.0.1\n}\n. {\n bind 127.0.0.1 127.0.0.2\n}").unwrap_err(),
            [". is served twice on the same address"]
        );
        assert_eq!(
            shown(". {\n bind eth0\n bind\n}").unwrap_err(),
            [
                "eth0 is neither an IP address nor an interface with addresses",
                "`bind` needs an address"
            ]
        );
    }

    #[test]
    fn zones_are_cut_where_plugins_differ() {
        let text = ". {\n bind 127.0.0.1\n forward a.example 192.0.2.1\n forward b.org 192.0.2.3\n forward . 192.0.2.2\n hosts /etc/hosts c.example {\n fallthrough d.c.example\n }\n cache 30 a.example\n}\n\
                    b.org x.example {\n bind 127.0.0.1\n forward y.a.example 192.0.2.1\n}";
        let found = shown(text).unwrap();
        let zones: Vec<&str> = found.iter().map(|cut| cut.split(' ').next().unwrap()).collect();
        assert_eq!(
            zones,
            [
                ".",
                "a.example.",
                "c.example.",
                "d.c.example.",
                "b.org.",
                "x.example."
            ]
        );
    }

    /// What `shown` says of blocks on 127.0.0.1, without the address.
    fn for_clients(blocks: &[String]) -> Vec<String> {
        let found = shown(&blocks.concat()).unwrap();
        found
            .iter()
            .map(|cut| cut.replace(" @ 127.0.0.1:53", ""))
            .collect()
    }

    /// A closer zone that is for some clients leaves the others to the block above it.
    #[test]
    fn a_closer_zone_takes_only_its_own_clients() {
        let above = block(".", &[], &["b.example", "x.b.example", "."]);
        assert_eq!(
            for_clients(&[block("b.example", &["10.0.0.0/8"], &["."]), above]),
            [
                "b.example. from 10.0.0.0/8",
                "x.b.example. from 10.0.0.0/8",
                ".",
                "b.example.",
                "x.b.example."
            ]
        );
        // Whoever is in a network of the closer zone never asks the block above for its names.
        let above = block(".", &["10.1.0.0/16", "192.168.0.0/16"], &["b.example", "."]);
        assert_eq!(
            for_clients(&[block("b.example", &["10.0.0.0/8"], &["."]), above]),
            [
                "b.example. from 10.0.0.0/8",
                ". from 10.1.0.0/16 from 192.168.0.0/16",
                "b.example. from 192.168.0.0/16"
            ]
        );
        let above = block(".", &["10.0.0.0/8"], &["b.example", "."]);
        assert_eq!(
            for_clients(&[block("b.example", &["10.1.0.0/16"], &["."]), above]),
            [
                "b.example. from 10.1.0.0/16",
                ". from 10.0.0.0/8",
                "b.example. from 10.0.0.0/8"
            ]
        );
        let all = block("b.example", &[], &["."]);
        let above = block(".", &["10.0.0.0/8"], &["x.b.example", "."]);
        assert_eq!(for_clients(&[all, above]), ["b.example.", ". from 10.0.0.0/8"]);
    }

    /// Where one block has a zone of its own for a name, so has each block for fewer clients.
    #[test]
    fn each_audience_has_its_zone_where_another_is_told_apart() {
        let wide = |clients: &[&str]| block(".", clients, &["corp.example", "."]);
        let narrow = || block(".", &["10.1.0.0/16", "172.16.0.0/12"], &["."]);
        assert_eq!(
            for_clients(&[narrow(), wide(&["10.0.0.0/8"])]),
            [
                ". from 10.1.0.0/16 from 172.16.0.0/12",
                "corp.example. from 10.1.0.0/16",
                ". from 10.0.0.0/8",
                "corp.example. from 10.0.0.0/8"
            ]
        );
        assert_eq!(
            for_clients(&[narrow(), wide(&[])]),
            [
                ". from 10.1.0.0/16 from 172.16.0.0/12",
                "corp.example. from 10.1.0.0/16 from 172.16.0.0/12",
                ".",
                "corp.example."
            ]
        );
        // Others never get the zone of a narrower block, nor one of another address.
        assert_eq!(
            for_clients(&[
                block(".", &["10.1.0.0/16"], &["corp.example", "."]),
                block(".", &["10.0.0.0/8"], &["."]),
                block(".", &["192.168.0.0/16"], &["."]),
            ]),
            [
                ". from 10.1.0.0/16",
                "corp.example. from 10.1.0.0/16",
                ". from 10.0.0.0/8",
                ". from 192.168.0.0/16"
            ]
        );
        let elsewhere = wide(&[]).replace("127.0.0.1", "127.0.0.2");
        assert_eq!(
            for_clients(&[narrow(), elsewhere]),
            [
                ". from 10.1.0.0/16 from 172.16.0.0/12",
                ". @ 127.0.0.2:53",
                "corp.example. @ 127.0.0.2:53"
            ]
        );
    }
}
