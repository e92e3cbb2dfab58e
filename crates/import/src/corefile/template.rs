//! `template`: answers generated from the question.

use super::blocks::{Plugin, PluginOption};
use super::document::Node;
use super::draft::Draft;
use super::sites::are_about;
use super::tokens::Token;

/// Placeholders in Go's templates, and in ours.
const PLACES: [(&str, &str); 4] = [
    (".Name", "name"),
    (".Zone", "zone"),
    (".Type", "type"),
    (".Remote", "client"),
];

/// The templates of a zone, in the order they are tried.
pub fn templates(draft: &mut Draft, plugins: &[&Plugin], zone: &str) -> Option<Node> {
    let nodes = plugins.iter().filter_map(|plugin| template(draft, plugin, zone));
    let nodes: Vec<Node> = nodes.collect();
    (!nodes.is_empty()).then(|| draft.filters.stage("template", "template", nodes))
}

/// `template CLASS TYPE [ZONES…] { … }`
fn template(draft: &mut Draft, plugin: &Plugin, zone: &str) -> Option<Node> {
    let [class, qtype, zones @ ..] = &plugin.arguments[..] else {
        let problem = "`template` needs a class and a type";
        draft.mistake(plugin.span(), problem, "write it like: template IN A example.org");
        return None;
    };
    if !["IN", "ANY"].contains(&class.text.to_ascii_uppercase().as_str()) {
        let help = "remove it: there are only answers of class IN";
        draft.mistake(class.span, format!("class {} is not supported", class.text), help);
    }
    let mut node = match qtype.text.to_ascii_uppercase().as_str() {
        "ANY" => Node::new("template"),
        qtype => Node::new("template").text(qtype),
    };
    let names = draft.zones(zones);
    if !names.is_empty() {
        node = node.child(names.iter().fold(Node::new("zone"), |node, name| node.text(name)));
    }
    let (mut matches, mut through) = (Node::new("match"), false);
    for option in &plugin.options {
        match option.name.text.as_str() {
            "match" => {
                matches = matches.texts(option.arguments.iter().map(|word| &*word.text));
                matches = matches.from(option.span());
            }
            "answer" | "authority" | "additional" => {
                node = node.child(records(draft, option)?.from(option.span()));
            }
            "rcode" => {
                let rcode =
                    draft.argument(option, "a response code", |text| Some(text.to_ascii_uppercase()))?;
                node = node.child(Node::new("rcode").text(&rcode));
            }
            "ederror" => node = node.child(extended_error(draft, option)?),
            "fallthrough" => through = are_about(&option.arguments, zone),
            _ => {}
        }
    }
    if matches != Node::new("match") {
        // Names in CoreDNS end in a dot.
        node = node.child(matches.raw("final-dot=#true"));
        if !through {
            node = node.child(Node::new("otherwise").text("servfail"));
        }
    }
    Some(node.from(plugin.span()))
}

/// `answer RECORD…`
fn records(draft: &mut Draft, option: &PluginOption) -> Option<Node> {
    let mut node = Node::new(&option.name.text);
    for word in &option.arguments {
        match places(&word.text) {
            Ok(text) => node = node.text(&text),
            Err(action) => {
                unfillable(draft, word, &action);
                return None;
            }
        }
    }
    Some(node)
}

fn unfillable(draft: &mut Draft, word: &Token, action: &str) {
    let problem = format!("`{action}` is not supported in a template");
    let help = "there are {{ .Name }}, {{ .Zone }}, {{ .Type }}, {{ .Class }}, {{ .Remote }}, {{ .Group.NAME }} and {{ index .Match 1 }}; \
                no group is called name, zone, type or client";
    draft.mistake(word.span, problem, help);
}

/// `ederror CODE [REASON]`
fn extended_error(draft: &mut Draft, option: &PluginOption) -> Option<Node> {
    let code: Option<u16> = option.arguments.first().and_then(|word| word.text.parse().ok());
    let (Some(code), 1..=2) = (code, option.arguments.len()) else {
        let help = "write it like: ederror 15 \"blocked\"";
        draft.mistake(option.span(), "`ederror` needs a number", help);
        return None;
    };
    let node = Node::new("error").number(code.into());
    Some(
        option
            .arguments
            .iter()
            .skip(1)
            .fold(node, |node, word| node.text(&word.text)),
    )
}

/// Translates a Go template.
///
/// # Errors
/// The action that cannot be translated.
fn places(text: &str) -> Result<String, String> {
    let (mut made, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("{{") {
        let Some((action, after)) = behind.split_once("}}") else {
            return Err("{{".to_owned());
        };
        // A hyphen trims the adjacent whitespace.
        let trims_before = action.starts_with("- ");
        let trims_after = action.ends_with(" -");
        made.push_str(&escaped(if trims_before { before.trim_end() } else { before }));
        let inner = action.strip_prefix("- ").unwrap_or(action);
        let inner = inner.strip_suffix(" -").unwrap_or(inner).trim();
        made.push_str(&place(inner).ok_or_else(|| format!("{{{{{action}}}}}"))?);
        rest = if trims_after { after.trim_start() } else { after };
    }
    made.push_str(&escaped(rest));
    Ok(made)
}

fn escaped(literal: &str) -> String {
    literal.replace('{', "{{").replace('}', "}}")
}

/// Translates a template action; `None` if it is not supported.
fn place(action: &str) -> Option<String> {
    if let Some((_, ours)) = PLACES.iter().find(|(theirs, _)| *theirs == action) {
        return Some(format!("{{{ours}}}"));
    }
    if action == ".Class" {
        return Some("IN".to_owned());
    }
    let group = match action.strip_prefix(".Group.") {
        Some(group) => group,
        None => {
            let words: Vec<&str> = action.split_whitespace().collect();
            match words[..] {
                ["index", ".Match", number] if number.parse::<u8>().is_ok() => number,
                ["index", ".Group", quoted] => quoted.trim_matches(['"', '`']),
                _ => return None,
            }
        }
    };
    let plain = !group.is_empty()
        && group
            .bytes()
            .all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
    let taken = PLACES.iter().any(|(_, ours)| *ours == group);
    (plain && !taken).then(|| format!("{{{group}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_of_go_are_read() {
        for (theirs, ours) in [
            (
                "{{ .Name }} 60 IN A {{.Group.a}}.{{ index .Match 1 }}",
                Ok("{name} 60 IN A {a}.{1}"),
            ),
            ("x {{- .Zone -}} y", Ok("x{zone}y")),
            ("{a} {{ index .Group \"b\" }} {{ .Class }}", Ok("{{a}} {b} IN")),
            ("{{ .Group.name }}", Err("{{ .Group.name }}")),
            ("{{ .Message.Id }}", Err("{{ .Message.Id }}")),
            (
                "{{ parseInt .Group.a 16 8 }}",
                Err("{{ parseInt .Group.a 16 8 }}"),
            ),
            ("{{ .Name", Err("{{")),
        ] {
            let expected = ours.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(places(theirs), expected, "{theirs}");
        }
    }
}
