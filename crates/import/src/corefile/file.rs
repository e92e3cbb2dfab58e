//! `file`.

use super::blocks::Plugin;
use super::document::Node;
use super::draft::Draft;
use super::key;
use super::sites::{Site, are_about, is_in};

/// `file DBFILE [ZONES…]` for one of its zones, and whether what does not exist there is left to others.
pub fn file(draft: &mut Draft, plugin: &Plugin, site: &Site<'_>, zone: &str) -> (Node, bool) {
    let path = draft.path(plugin.arguments.first().map_or("", |word| &word.text));
    let mut node = Node::new("file").text(&path);
    // The zone that the file has; a block for part of it may have been cut out.
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
