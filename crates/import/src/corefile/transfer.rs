//! Translates `secondary`, and `transfer` for any source with a zone.

use std::net::{IpAddr, SocketAddr};

use super::blocks::{Plugin, PluginOption};
use super::document::Node;
use super::draft::Draft;
use super::key;
use super::sites::{Site, are_about, is_for};

/// The default port of a server.
const PORT: u16 = 53;

/// Translates `secondary [ZONES…]` for one of its zones; also returns whether it passes on missing names.
pub fn secondary(draft: &mut Draft, plugin: &Plugin, site: &Site<'_>, zone: &str) -> (Node, bool) {
    let mut node = Node::new("secondary");
    let named = plugin
        .arguments
        .iter()
        .filter_map(|word| key::zones(&word.text).ok());
    let mut zones: Vec<String> = named.flatten().collect();
    if zones.is_empty() {
        zones.extend(site.zones.iter().map(|(zone, _)| zone.clone()));
    }
    if !zones.iter().any(|origin| origin == zone) {
        let problem = format!("{zone} is part of a zone of `secondary`, and has its own plugins");
        let help = "give the zone its own server block, with the same plugins for all of its names";
        draft.mistake(plugin.span(), problem, help);
    }
    let mut through = false;
    let mut primaries = 0;
    for option in &plugin.options {
        match option.name.text.as_str() {
            "fallthrough" => through |= are_about(&option.arguments, zone),
            "transfer" => {
                for address in addresses(draft, option, 1) {
                    primaries += 1;
                    node = node.text(&spelled(address));
                }
            }
            _ => {}
        }
    }
    if primaries == 0 {
        let help = "write it like: transfer from 192.0.2.1";
        draft.mistake(plugin.span(), "`secondary` needs a primary", help);
    }
    if through {
        node = node.child(Node::new("fallthrough"));
    }
    (node, through)
}

/// Translates the `transfer` for a zone; among several, the one that names the closest zone.
pub fn transfer(draft: &mut Draft, plugins: &[Plugin], zone: &str) -> Option<Node> {
    let here = plugins
        .iter()
        .filter(|plugin| plugin.name.text == "transfer" && is_for(plugin, zone));
    let plugin = here.max_by_key(|plugin| {
        let zones = plugin.arguments.iter().map(|word| word.text.len());
        zones.max().unwrap_or(0)
    })?;
    let (mut to, mut notify) = (Node::new("to"), Vec::new());
    let mut some = false;
    for option in plugin.options.iter().filter(|option| option.name.text == "to") {
        let all = option.arguments.iter().any(|word| word.text == "*");
        if all {
            to = to.text("0.0.0.0/0").text("::/0");
        }
        for address in addresses(draft, option, 0) {
            notify.push(address);
            if !all {
                to = to.text(&address.ip().to_string());
            }
        }
        some |= !option.arguments.is_empty();
    }
    if !some {
        draft.mistake(
            plugin.span(),
            "`transfer` has no `to`",
            "write it like: to 192.0.2.7",
        );
        return None;
    }
    let mut node = Node::new("transfer").child(to);
    if !notify.is_empty() {
        let told = notify.iter();
        node = node.child(told.fold(Node::new("notify"), |node, address| node.text(&spelled(*address))));
    }
    Some(node)
}

/// The addresses among the words of an option, from index `first`.
fn addresses(draft: &mut Draft, option: &PluginOption, first: usize) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for word in option
        .arguments
        .iter()
        .skip(first)
        .filter(|word| word.text != "*")
    {
        let with_port = word.text.parse().ok();
        let bare = word
            .text
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        match with_port.or(bare.ok().map(|ip| SocketAddr::new(ip, PORT))) {
            Some(address) => found.push(address),
            None => {
                let problem = format!("{} is not an IP address", word.text);
                draft.mistake(word.span, problem, "write it like 192.0.2.1 or 192.0.2.1:5300");
            }
        }
    }
    found
}

fn spelled(address: SocketAddr) -> String {
    match address.port() {
        PORT => address.ip().to_string(),
        _ => address.to_string(),
    }
}
