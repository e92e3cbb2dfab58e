//! Plugins that become filters.

use std::net::IpAddr;
use std::path::Path;

use crate::config::Span;

use super::blocks::{Plugin, PluginOption};
use super::document::{Node, quoted};
use super::draft::Draft;
use super::rewrite;
use super::sites::are_about;
use super::tokens::Token;
use super::values;

/// Whether a line in a plugin's braces is data rather than an option.
pub(crate) fn is_row(plugin: &str, option: &PluginOption) -> bool {
    match plugin {
        "hosts" => option.name.text.parse::<IpAddr>().is_ok(),
        "rewrite" | "acl" => true,
        _ => false,
    }
}

/// The stage for a plugin in a zone.
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
        "local" => Some(local(draft, plugin)),
        _ => None,
    }
}

/// Combines the rules of all `rewrite`s of a zone.
pub fn rewrite(draft: &mut Draft, plugins: &[&Plugin]) -> Option<Node> {
    let mut rules = Vec::new();
    for plugin in plugins {
        // In braces, one rule may span several lines.
        let rows = plugin
            .options
            .iter()
            .flat_map(|row| [&row.name].into_iter().chain(&row.arguments));
        let words: Vec<&Token> = plugin.arguments.iter().chain(rows).collect();
        match rewrite::rule(&words) {
            Ok(rule) => rules.push(rule.from(plugin.span())),
            Err((problem, help)) => draft.mistake(plugin.span(), problem, help),
        }
    }
    (!rules.is_empty()).then(|| draft.filters.stage("rewrite", "rewrite", rules))
}

/// Combines the rules of all `acl`s of a zone.
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
        let problem = format!("`{action}` is not an action");
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
        .fold(Node::new(&action), |node, network| {
            node.text(&values::network(network))
        })
        .from(row.span());
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
            "write `loadbalance` alone: each response has its own order",
        );
        return None;
    }
    Some(draft.filters.stage("rotation", "rotation", Vec::new()))
}

/// The placeholders that `log` supports, besides named formats.
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
                    format!("`{}` is not a class", word.text),
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

/// The default file of `hosts`.
const HOSTS: &str = "/etc/hosts";

/// `hosts [FILE [ZONES…]]`
fn hosts(draft: &mut Draft, plugin: &Plugin, zone: &str) -> Option<Node> {
    let mut config = Vec::new();
    let path = draft.path(plugin.arguments.first().map_or(HOSTS, |word| &word.text));
    let is_there = Path::new(&path).is_file();
    if is_there {
        config.push(Node::new("file").raw(&format!("(file){}", quoted(&path))));
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
            address => {
                // Canonical, because an IPv4 address may also be written as IPv6 (RFC 4291 section 2.5.5.2).
                if let Ok(address) = address.parse::<IpAddr>() {
                    let address = address.to_canonical().to_string();
                    let names = option.arguments.iter().map(|name| name.text.to_ascii_lowercase());
                    on.extend(names.map(|name| (name, address.clone(), option.span())));
                }
            }
        }
    }
    let mut listed = listed(on);
    if !is_there {
        without_file(draft, plugin, &path, &mut listed);
        // An empty table that leaves everything to other stages.
        if listed.is_empty() && through {
            return None;
        }
    }
    config.extend(listed);
    if !through {
        config.push(Node::new("unlisted").text("servfail"));
    }
    Some(draft.filters.stage("hosts", "hosts", config))
}

/// Says that the file of a `hosts` is left out, since it is not there. CoreDNS reads it when it appears, and
/// has the names in the Corefile meanwhile.
fn without_file(draft: &mut Draft, plugin: &Plugin, path: &str, listed: &mut [Node]) {
    if let Some(awaited) = &mut draft.awaited {
        if !awaited.iter().any(|known| known == Path::new(path)) {
            awaited.push(path.into());
        }
        return;
    }
    let Some(first) = listed.first_mut() else {
        let word = plugin.arguments.first();
        let span = word.map_or(plugin.span(), |word| word.span);
        let problem = format!("there is no file {}", word.map_or(HOSTS, |word| &word.text));
        let help =
            "copy it from where CoreDNS has it, or create an empty one: dnsweir needs it at each start";
        return draft.mistake(span, problem, help);
    };
    let left_out = format!(
        "There was no file {path} when this was imported, and dnsweir does not start without it. Where it is, \
         write here: file (file){}",
        quoted(path)
    );
    *first = std::mem::take(first).comment(left_out);
}

/// `local`: `localhost` and names that end or start with it, and the reverse zones of loopback, the null
/// network and broadcast (RFC 6303).
fn local(draft: &mut Draft, plugin: &Plugin) -> Node {
    let is_off = |option: &PluginOption| {
        option.name.text == "localhost_prefix" && option.arguments.iter().any(|word| word.text == "off")
    };
    let mut host = Node::new("match").text(r"(?:^|\.)localhost$");
    if !plugin.options.iter().any(is_off) {
        host = host.text(r"^localhost\.");
    }
    const ZONES: [&str; 3] = ["0.in-addr.arpa.", "127.in-addr.arpa.", "255.in-addr.arpa."];
    const SOA: &str = "604800 IN SOA localhost. root.localhost. 1 0 0 0 604800";
    let reverse = || Node::new("zone").texts(ZONES);
    let denial = |node: Node, owner: &str| node.child(Node::new("authority").text(&format!("{owner} {SOA}")));
    let answer = |node: Node, text: &str| node.child(Node::new("answer").text(text));
    let template = |qtype: &str| Node::new("template").text(qtype).child(host.clone());
    let apexes = ZONES.map(|zone| format!("^{}$", zone.trim_end_matches('.').replace('.', r"\.")));
    let apex = Node::new("match").texts(apexes.each_ref().map(String::as_str));
    let pointer = Node::new("match").text(r"^1\.0\.0\.127\.in-addr\.arpa$");
    let config = vec![
        answer(template("A"), "{name} 604800 IN A 127.0.0.1"),
        answer(template("AAAA"), "{name} 604800 IN AAAA ::1"),
        denial(Node::new("template").child(host.clone()), "{name}"),
        answer(
            Node::new("template").text("SOA").child(apex.clone()),
            &format!("{{name}} {SOA}"),
        ),
        answer(
            Node::new("template").text("NS").child(apex.clone()),
            "{name} 604800 IN NS localhost.",
        ),
        denial(Node::new("template").child(apex), "{name}"),
        answer(
            Node::new("template").text("PTR").child(pointer.clone()),
            "{name} 604800 IN PTR localhost.",
        ),
        denial(Node::new("template").child(pointer), "127.in-addr.arpa."),
        denial(Node::new("template").child(reverse()), "{zone}").child(Node::new("rcode").text("NXDOMAIN")),
    ];
    draft.filters.stage("local", "template", config)
}

/// The names of a table, each with all of its addresses.
fn listed(rows: Vec<(String, String, Span)>) -> Vec<Node> {
    let mut names: Vec<(String, Vec<String>, Span)> = Vec::new();
    for (name, address, span) in rows {
        match names.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, addresses, _)) if addresses.contains(&address) => {}
            Some((_, addresses, _)) => addresses.push(address),
            None => names.push((name, vec![address], span)),
        }
    }
    let node = |(name, addresses, span): (String, Vec<String>, Span)| {
        addresses
            .iter()
            .fold(Node::new("host").text(&name), |node, address| node.text(address))
            .from(span)
    };
    names.into_iter().map(node).collect()
}
