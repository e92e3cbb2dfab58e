//! Plugins that become filters.

use std::net::IpAddr;
use std::path::Path;

use super::blocks::{Plugin, PluginOption};
use super::document::{Node, quoted};
use super::draft::Draft;
use super::rewrite;
use super::sites::are_about;
use super::tokens::Token;

/// Whether a line in a plugin's braces is no option but a part of its data.
pub fn is_row(plugin: &str, option: &PluginOption) -> bool {
    match plugin {
        "hosts" => option.name.text.parse::<IpAddr>().is_ok(),
        "rewrite" | "acl" => true,
        _ => false,
    }
}

/// The stage that a plugin becomes in a zone.
pub fn stage(draft: &mut Draft, plugin: &Plugin, zone: &str) -> Option<Node> {
    match plugin.name.text.as_str() {
        "errors" => {
            let config = vec![Node::new("class").text("error")];
            Some(draft.filters.stage("errors", "log", config))
        }
        "log" => log(draft, plugin),
        "dns64" => dns64(draft, plugin),
        "loadbalance" => loadbalance(draft, plugin),
        "minimal" | "whoami" => {
            let name = plugin.name.text.as_str();
            Some(draft.filters.stage(name, name, Vec::new()))
        }
        "hosts" => hosts(draft, plugin, zone),
        _ => None,
    }
}

/// The rules of all `rewrite`s of a zone.
pub fn rewrite(draft: &mut Draft, plugins: &[&Plugin]) -> Option<Node> {
    let mut rules = Vec::new();
    for plugin in plugins {
        // In a block, a rule goes on for several lines.
        let rows = plugin
            .options
            .iter()
            .flat_map(|row| [&row.name].into_iter().chain(&row.arguments));
        let words: Vec<&Token> = plugin.arguments.iter().chain(rows).collect();
        match rewrite::rule(&words) {
            Ok(rule) => rules.push(rule),
            Err((problem, help)) => draft.mistake(plugin.span(), problem, help),
        }
    }
    (!rules.is_empty()).then(|| draft.filters.stage("rewrite", "rewrite", rules))
}

/// The rules of all `acl`s of a zone.
pub fn acl(draft: &mut Draft, plugins: &[&Plugin]) -> Option<Node> {
    let mut rules = Vec::new();
    for plugin in plugins {
        let names = draft.zones(&plugin.arguments);
        rules.extend(
            plugin
                .options
                .iter()
                .filter_map(|row| acl_rule(draft, row, &names)),
        );
    }
    (!rules.is_empty()).then(|| draft.filters.stage("acl", "acl", rules))
}

/// `ACTION [type TYPE…] [net NETWORK…]`
fn acl_rule(draft: &mut Draft, row: &PluginOption, names: &[String]) -> Option<Node> {
    let action = row.name.text.to_ascii_lowercase();
    if !["allow", "block", "filter", "drop"].contains(&action.as_str()) {
        let problem = format!("`{action}` is no action");
        draft.mistake(row.name.span, problem, "valid here: allow, block, filter, drop");
        return None;
    }
    let (mut types, mut networks, mut section) = (Vec::new(), Vec::new(), "");
    for word in &row.arguments {
        match (word.text.to_ascii_lowercase().as_str(), section) {
            ("type", _) => section = "type",
            ("net", _) => section = "net",
            ("*", "type" | "net") => {}
            (_, "type") => types.push(word.text.to_ascii_uppercase()),
            (_, "net") => networks.push(word.text.as_str()),
            _ => {
                let problem = format!("`{}` stands in no section", word.text);
                draft.mistake(word.span, problem, "write it like: block type A net 192.0.2.0/24");
                return None;
            }
        }
    }
    let texts = |node: Node, texts: &[String]| texts.iter().fold(node, |node, text| node.text(text));
    let mut node = networks
        .iter()
        .fold(Node::new(&action), |node, network| node.text(network));
    if !names.is_empty() {
        node = node.child(texts(Node::new("name"), names));
    }
    if !types.is_empty() {
        node = node.child(texts(Node::new("type"), &types));
    }
    Some(node)
}

/// `dns64 [PREFIX]`
fn dns64(draft: &mut Draft, plugin: &Plugin) -> Option<Node> {
    let mut prefix = plugin.arguments.first();
    let (mut config, mut all_clients) = (Vec::new(), false);
    for option in &plugin.options {
        match option.name.text.as_str() {
            "prefix" => prefix = option.arguments.first(),
            "translate_all" => config.push(Node::new("always")),
            "allow_ipv4" => all_clients = true,
            _ => {}
        }
    }
    if !all_clients {
        config.push(Node::new("only-ipv6-clients"));
    }
    config.extend(prefix.map(|prefix| Node::new("prefix").text(&prefix.text)));
    Some(draft.filters.stage("dns64", "dns64", config))
}

/// `loadbalance [round_robin]`
fn loadbalance(draft: &mut Draft, plugin: &Plugin) -> Option<Node> {
    if let Some(policy) = plugin
        .arguments
        .first()
        .filter(|policy| policy.text != "round_robin")
    {
        let problem = format!("`{}` is not supported", policy.text);
        draft.mistake(
            plugin.span(),
            problem,
            "write `loadbalance` alone: each response has an order of its own",
        );
        return None;
    }
    Some(draft.filters.stage("rotation", "rotation", Vec::new()))
}

/// What `log` can be asked for of a query, beside formats with names.
const PLACEHOLDERS: [&str; 16] = [
    "{remote}",
    "{port}",
    "{>id}",
    "{>opcode}",
    "{type}",
    "{class}",
    "{name}",
    "{proto}",
    "{size}",
    "{>do}",
    "{>bufsize}",
    "{rcode}",
    "{>rflags}",
    "{rsize}",
    "{duration}",
    "{common}",
];

/// `log [NAMES…] [FORMAT]`
fn log(draft: &mut Draft, plugin: &Plugin) -> Option<Node> {
    let mut config = Vec::new();
    for option in &plugin.options {
        let class = option.arguments.iter().fold(Node::new("class"), |node, word| {
            let known = ["success", "denial", "error", "all"].contains(&word.text.as_str());
            if !known {
                draft.mistake(
                    word.span,
                    format!("`{}` is no class", word.text),
                    "valid here: success, denial, error, all",
                );
            }
            node.text(&word.text)
        });
        config.push(class);
    }
    if let Some(format) = plugin.arguments.last().filter(|word| word.text.contains('{')) {
        let mut rest = format.text.as_str();
        while let Some((_, after)) = rest.split_once('{') {
            let name = after.split('}').next().unwrap_or_default();
            let placeholder = format!("{{{name}}}");
            if placeholder != "{combined}" && !PLACEHOLDERS.contains(&placeholder.as_str()) {
                let help = format!("valid here: {} {{combined}}", PLACEHOLDERS.join(" "));
                draft.mistake(format.span, format!("`{placeholder}` is not supported"), help);
            }
            rest = after;
        }
        let format = match format.text.as_str() {
            "{common}" => "common".to_owned(),
            "{combined}" => "combined".to_owned(),
            own => own.replace("{common}", COMMON).replace("{combined}", COMBINED),
        };
        config.push(Node::new("format").text(&format));
    }
    Some(draft.filters.stage("log", "log", config))
}

const COMMON: &str = "{remote}:{port} - {>id} \"{type} {class} {name} {proto} {size} {>do} {>bufsize}\" {rcode} {>rflags} {rsize} {duration}";
const COMBINED: &str = "{remote}:{port} - {>id} {>opcode} \"{type} {class} {name} {proto} {size} {>do} {>bufsize}\" {rcode} {>rflags} {rsize} {duration}";

/// `hosts [FILE [ZONES…]]`
fn hosts(draft: &mut Draft, plugin: &Plugin, zone: &str) -> Option<Node> {
    let mut config = Vec::new();
    let path = plugin.arguments.first().map_or("/etc/hosts", |word| &word.text);
    if !path.starts_with('/') {
        let problem = format!("{path} is no whole path");
        draft.mistake(plugin.span(), problem, "write one that begins with /");
    } else if Path::new(path).exists() {
        config.push(Node::new("file").raw(&format!("(file){}", quoted(path))));
    }
    let (mut on, mut through) = (Vec::new(), false);
    for option in &plugin.options {
        match option.name.text.as_str() {
            "ttl" => {
                let ttl = draft.argument(option, "a number of seconds", |text| text.parse::<u16>().ok());
                config.extend(ttl.map(|ttl| Node::new("ttl").text(&format!("{ttl}s"))));
            }
            "no_reverse" => config.push(Node::new("reverse").raw("#false")),
            "fallthrough" => through |= are_about(&option.arguments, zone),
            address if is_row("hosts", option) => {
                for name in &option.arguments {
                    on.push((name.text.to_ascii_lowercase(), address.to_owned()));
                }
            }
            _ => {}
        }
    }
    config.extend(listed(on));
    if !through {
        config.push(Node::new("unlisted").text("servfail"));
    }
    (!config.is_empty()).then(|| draft.filters.stage("hosts", "hosts", config))
}

/// The names of a table, each with all its addresses.
fn listed(rows: Vec<(String, String)>) -> Vec<Node> {
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    for (name, address) in rows {
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, addresses)) if addresses.contains(&address) => {}
            Some((_, addresses)) => addresses.push(address),
            None => names.push((name, vec![address])),
        }
    }
    let node = |(name, addresses): (String, Vec<String>)| {
        addresses
            .iter()
            .fold(Node::new("host").text(&name), |node, address| node.text(address))
    };
    names.into_iter().map(node).collect()
}
