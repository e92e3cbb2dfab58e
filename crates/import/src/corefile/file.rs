//! `file`.

use super::blocks::Plugin;
use super::document::Node;
use super::draft::Draft;
use super::key;
use super::sites::{Site, are_about, is_in};

/// Translates `file DBFILE [ZONES…]` for one of its zones; also returns whether it passes on missing names.
pub fn file(draft: &mut Draft, plugin: &Plugin, site: &Site<'_>, zone: &str) -> (Node, bool) {
    let path = draft.path(plugin.arguments.first().map_or("", |word| &word.text));
    let mut node = Node::new("file").text(&path);
    // The zone in the file; part of it may have been cut out as a separate zone.
    let named = plugin
        .arguments
        .iter()
        .skip(1)
        .filter_map(|word| key::zones(&word.text).ok());
    let mut zones: Vec<String> = named.flatten().collect();
    if zones.is_empty() {
        zones.extend(site.zones.iter().map(|(zone, _)| zone.clone()));
    }
    let above = zones
        .iter()
        .filter(|above| is_in(zone, above))
        .max_by_key(|above| above.len());
    if let Some(origin) = above.filter(|above| *above != zone) {
        node = node.child(Node::new("origin").text(origin));
    }
    let through = plugin
        .options
        .iter()
        .any(|option| option.name.text == "fallthrough" && are_about(&option.arguments, zone));
    if through {
        node = node.child(Node::new("fallthrough"));
    }
    (node, through)
}
