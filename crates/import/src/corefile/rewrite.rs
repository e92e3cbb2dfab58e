//! Translates the rules of `rewrite`.

use super::document::Node;
use super::tokens::Token;

/// Why a rule cannot be translated, and what to do.
type Wrong = (String, &'static str);

const KINDS: [&str; 5] = ["exact", "prefix", "suffix", "substring", "regex"];

/// Translates `rewrite [continue|stop] FIELD …`.
///
/// # Errors
/// The problem, and what to do.
pub fn rule(words: &[&Token]) -> Result<Node, Wrong> {
    let mut words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let mut goes_on = false;
    if let Some(mode @ ("continue" | "stop")) = words.first().map(|word| word.to_ascii_lowercase()).as_deref()
    {
        goes_on = mode == "continue";
        words.remove(0);
    }
    let Some((field, rest)) = words.split_first() else {
        return Err((
            "`rewrite` needs a rule".into(),
            "write it like: rewrite name old.example new.example",
        ));
    };
    let node = match field.to_ascii_lowercase().as_str() {
        "name" => name(rest)?,
        "type" => two("type", rest)?,
        "class" => two("class", rest)?,
        "ttl" => ttl(rest)?,
        "rcode" => rcode(rest)?,
        "cname" => target(rest)?,
        "edns0" => return Err(("EDNS options are not rewritten".into(), "remove it")),
        other => {
            return Err((
                format!("`{other}` cannot be rewritten"),
                "valid here: name, type, class, ttl, rcode, cname",
            ));
        }
    };
    Ok(if goes_on {
        node.property("then", "continue")
    } else {
        node
    })
}

/// Splits `[KIND] NAME …` with exactly `after` more words. As in CoreDNS, names compared as text end in a
/// dot.
fn matched<'w>(words: &[&'w str], after: usize) -> Result<(&'static str, String, Vec<&'w str>), Wrong> {
    let wrong = || {
        (
            "this is not a rule".to_owned(),
            "write it like: rewrite ttl suffix example.org 30",
        )
    };
    let (kind, words) = match words.len().checked_sub(after) {
        Some(1) => ("exact", words),
        Some(2) => {
            let kind = words[0].to_ascii_lowercase();
            let kind = KINDS.into_iter().find(|known| *known == kind);
            (kind.ok_or_else(wrong)?, &words[1..])
        }
        _ => return Err(wrong()),
    };
    Ok((kind, from(kind, words[0]), words[1..].to_vec()))
}

/// The text that a name is compared with.
fn from(kind: &str, text: &str) -> String {
    match kind {
        "regex" => text.to_owned(),
        _ => dotted(text),
    }
}

/// Compares text with the final dot, as CoreDNS's names have one.
fn with_final_dot(node: Node, kind: &str) -> Node {
    match kind {
        "exact" | "suffix" => node,
        _ => node.raw("final-dot=#true"),
    }
}

/// `cname [KIND] FROM TO`: a rule about answers. Only `exact` implies the final dot.
fn target(words: &[&str]) -> Result<Node, Wrong> {
    let (kind, _, rest) = matched(words, 1)?;
    let from = words[words.len() - 2].to_ascii_lowercase();
    let (from, to) = match kind {
        "exact" => (dotted(&from), dotted(rest[0])),
        "suffix" if !from.ends_with('.') || !rest[0].ends_with('.') => {
            return Err((
                "names end in a dot, and a suffix without one matches none".into(),
                "write it like: rewrite cname suffix old.example. new.example.",
            ));
        }
        _ => (from, rest[0].to_ascii_lowercase()),
    };
    Ok(with_final_dot(
        Node::new("target").text(kind).text(&from).text(&to),
        kind,
    ))
}

fn dotted(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if lower.ends_with('.') { lower } else { lower + "." }
}

/// `name [KIND] FROM TO [answer …]`
fn name(words: &[&str]) -> Result<Node, Wrong> {
    let (kind, words) = match words {
        [_, _] => ("exact", words),
        [kind, rest @ ..] if rest.len() >= 2 => {
            let kind = kind.to_ascii_lowercase();
            match KINDS.into_iter().find(|known| *known == kind) {
                Some(kind) => (kind, rest),
                None => {
                    return Err((
                        format!("`{kind}` is not a way to match a name"),
                        "valid here: exact, prefix, suffix, substring, regex",
                    ));
                }
            }
        }
        _ => {
            return Err((
                "this is not a rule for a name".into(),
                "write it like: rewrite name old.example new.example",
            ));
        }
    };
    let node = Node::new("name")
        .text(kind)
        .text(&from(kind, words[0]))
        .text(&dotted(words[1]));
    answers(with_final_dot(node, kind), kind, &words[2..])
}

/// `answer auto`, `answer name FROM TO`, `answer value FROM TO`, any of them repeated; after the first, the
/// word `answer` is optional.
fn answers(mut node: Node, kind: &str, words: &[&str]) -> Result<Node, Wrong> {
    // For `exact`, names in answers are always changed back.
    let (mut reverts, mut rest) = (kind == "exact", words);
    loop {
        rest = match rest {
            [] if reverts => return Ok(node),
            [] => return Ok(node.property("answers", "keep")),
            ["answer", rest @ ..] if !rest.is_empty() => rest,
            ["auto", rest @ ..] => {
                reverts = true;
                rest
            }
            ["name", _, _, rest @ ..] => {
                reverts = true;
                node = node.comment(
                    "CoreDNS changes the names of records by an expression here; dnsweir gives them the name that was asked for.",
                );
                rest
            }
            ["value", from, to, rest @ ..] => {
                let value = Node::new("value").text("regex").text(from).text(&dotted(to));
                node = node.child(with_final_dot(value, "regex"));
                rest
            }
            _ => {
                return Err((
                    "this is not a way to change answers".into(),
                    "write: answer auto, answer name FROM TO, answer value FROM TO",
                ));
            }
        };
    }
}

/// `type FROM TO`, `class FROM TO`
fn two(field: &str, words: &[&str]) -> Result<Node, Wrong> {
    match words {
        [from, to] => Ok(Node::new(field)
            .text(&from.to_ascii_uppercase())
            .text(&to.to_ascii_uppercase())),
        _ => Err((
            format!("`{field}` needs two words"),
            "write it like: rewrite type ANY HINFO",
        )),
    }
}

/// `ttl [KIND] NAME SECONDS`, `… MIN-MAX`
fn ttl(words: &[&str]) -> Result<Node, Wrong> {
    let (kind, from, rest) = matched(words, 1)?;
    let node = with_final_dot(Node::new("ttl").text(kind).text(&from), kind);
    let wrong = || {
        (
            format!("{} is not a TTL", rest[0]),
            "write it like 30, 30-300, 30- or -300",
        )
    };
    let seconds = |text: &str| {
        text.parse::<u32>()
            .map(|seconds| format!("{seconds}s"))
            .map_err(|_| wrong())
    };
    match rest[0].split_once('-') {
        None => Ok(node.text(&seconds(rest[0])?)),
        Some(("", "")) => Err(wrong()),
        Some((min, "")) => Ok(node.property("min", &seconds(min)?)),
        Some(("", max)) => Ok(node.property("max", &seconds(max)?)),
        Some((min, max)) => Ok(node
            .property("min", &seconds(min)?)
            .property("max", &seconds(max)?)),
    }
}

/// `rcode [KIND] NAME FROM TO`
fn rcode(words: &[&str]) -> Result<Node, Wrong> {
    let (kind, from, rest) = matched(words, 2)?;
    let code = |text: &str| text.to_ascii_uppercase();
    let node = Node::new("rcode").text(kind).text(&from);
    let node = node.text(&code(rest[0])).text(&code(rest[1]));
    Ok(with_final_dot(node, kind))
}
