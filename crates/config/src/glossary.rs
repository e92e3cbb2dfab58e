//! Renders the [tables](super::words) as text, for the reference and for `dnsweir words`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use super::decode::Takes;
use super::whole::FILE;
use super::words::{Form, Preset, Word};

/// The meaning of a word as part of a sentence: in lower case, without a full stop.
pub(super) fn meaning(word: &Word) -> String {
    let text = word.meaning.trim().trim_end_matches('.');
    let first = text.find(|letter| letter != '[').unwrap_or_default();
    let mut letters = text[first..].chars();
    match (letters.next(), letters.next()) {
        (Some(upper), Some(next)) if upper.is_uppercase() && !next.is_uppercase() => {
            let rest = &text[first + upper.len_utf8()..];
            format!("{}{}{rest}", &text[..first], upper.to_lowercase())
        }
        _ => text.to_owned(),
    }
}

/// The default of a word, in Markdown; empty if the words in its block have their own defaults.
pub(super) fn default(word: &Word) -> String {
    let own = match word.default {
        Preset::Text(text) => text.to_owned(),
        Preset::Value(value) if value.starts_with('"') => format!("`{value}`"),
        Preset::Value(value @ ("true" | "false")) => format!("`#{value}`"),
        Preset::Value(number) => grouped(number),
    };
    // The default of the value, for a node written without it.
    let inner = values(word).filter(|value| matches!(value.default, Preset::Value(..)));
    let both = [own, inner.map(default).unwrap_or_default()];
    let said: Vec<String> = both.into_iter().filter(|said| !said.is_empty()).collect();
    said.join("; ")
}

/// The values that a word takes, in Markdown; empty if it takes none.
pub(super) fn bounds(word: &Word) -> String {
    let repeated = match word.form {
        Form::Switch => return "a switch".to_owned(),
        Form::Repeated => "repeated",
        Form::Node | Form::Property | Form::Values | Form::Stage => "",
    };
    let value = values(word).filter(|value| value.kind.is_some()).unwrap_or(word);
    let taken = taken(&value.takes());
    let further = match value.bounds {
        "" => word.bounds,
        further => further,
    };
    let said = match (taken.is_empty(), further.is_empty()) {
        (true, _) if word.form != Form::Property => counted(&word.shape.arguments, further),
        (true, _) => further.to_owned(),
        (false, true) => taken,
        (false, false) => format!("{taken}, {further}"),
    };
    let said: Vec<&str> = [&*said, repeated]
        .into_iter()
        .filter(|said| !said.is_empty())
        .collect();
    said.join("; ")
}

/// The row for the values of a node.
fn values(word: &Word) -> Option<&'static Word> {
    word.words.iter().find(|word| word.form == Form::Values)
}

/// Spells a range of counts.
fn counted(count: &RangeInclusive<usize>, what: &str) -> String {
    match (*count.start(), *count.end()) {
        (_, most) if most <= 1 || what.is_empty() => what.to_owned(),
        (least, most) if least == most => what.to_owned(),
        (0, most) => format!("up to {most} {what}"),
        (least, most) => format!("{least} to {most} {what}"),
    }
}

/// The values that a kind takes, if it defines them.
fn taken(takes: &Takes) -> String {
    let quoted = |word: &str| format!("`\"{word}\"`");
    match takes {
        Takes::Text => String::new(),
        Takes::Boolean => "`#true`, `#false`".to_owned(),
        Takes::Words(words) => words
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(", "),
        Takes::Whole(least, most) => format!("{} to {}", grouped(least), grouped(most)),
        Takes::Duration(least, most) | Takes::Size(least, most) => {
            format!("{} to {}", quoted(least), quoted(most))
        }
    }
}

/// Groups digits in thousands.
fn grouped(digits: &str) -> String {
    if digits.len() <= 4 {
        return digits.to_owned();
    }
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Removes Markdown, for a terminal. Links into the reference become its section; others become their text.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain += before;
        let Some((words, (target, behind))) = link
            .split_once("](")
            .and_then(|(words, behind)| Some((words, behind.split_once(')')?)))
        else {
            plain.push('[');
            rest = link;
            continue;
        };
        match (words, target.strip_prefix('#')) {
            ("below", Some(place)) => plain += &format!("docs/configuration.md#{place}"),
            _ => plain += words,
        }
        rest = behind;
    }
    (plain + rest).replace('`', "")
}

/// All words, without duplicates.
pub fn known_words() -> Vec<&'static str> {
    fn collect(words: &[Word], found: &mut BTreeSet<&'static str>) {
        for word in words.iter().filter(|word| word.form != Form::Values) {
            found.insert(word.name);
            collect(word.words, found);
        }
    }
    let mut found = BTreeSet::new();
    collect(FILE.words, &mut found);
    found.into_iter().collect()
}

/// Describes one word in every place where it is allowed, or gives an overview of all words.
pub fn glossary(word: Option<&str>) -> String {
    let mut text = String::new();
    match word {
        Some(word) => found(&mut text, word, &mut Vec::new(), FILE.words),
        None => overview(&mut text, 0, FILE.words, false),
    }
    text
}

/// Lists the words of a table with their defaults and nested words; with their meanings if `explained`.
fn overview(text: &mut String, depth: usize, words: &[Word], explained: bool) {
    for word in words.iter().filter(|word| word.is_listed(words)) {
        let name = spelled(word);
        let indent = "    ".repeat(depth);
        let (default, bounds) = (plain(&default(word)), plain(&bounds(word)));
        let width = 40 - indent.len();
        let line = format!("{indent}{name:width$} {default:28} {bounds}");
        // Infallible for String, here and below.
        let _ = writeln!(text, "{}", line.trim_end());
        if explained {
            let _ = writeln!(text, "{indent}    {}", plain(&meaning(word)));
        }
        overview(text, depth + 1, word.words, false);
    }
}

/// A word as it is written: properties with `=`, values in quotes.
fn spelled(word: &Word) -> String {
    match word.form {
        Form::Property => format!("{}=", word.name),
        Form::Values => format!("{:?}", word.name),
        _ => word.name.to_owned(),
    }
}

/// Describes a word in each place where it is allowed.
fn found(text: &mut String, name: &str, owners: &mut Vec<&'static str>, words: &[Word]) {
    for word in words {
        if word.name == name && word.form != Form::Values {
            let place = match owners.is_empty() {
                true => "the file".to_owned(),
                false => owners.join(" > "),
            };
            let _ = writeln!(text, "{} in {place}: {}", spelled(word), plain(&meaning(word)));
            for (what, said) in [
                ("default", default(word)),
                ("bounds", bounds(word)),
                ("example", word.shape.example.to_owned()),
            ] {
                if !said.is_empty() {
                    let _ = writeln!(text, "    {what}: {}", plain(&said));
                }
            }
            overview(text, 1, word.words, true);
            text.push('\n');
        }
        owners.push(word.name);
        found(text, name, owners, word.words);
        owners.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::{Path, PathBuf};

    use kdl::{KdlDocument, KdlEntry, KdlNode, KdlValue};

    use super::super::node::DUMMIES;
    use super::super::tests::{compare, each_word, problems};
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Calls `look` with the owner and rows of each table.
    fn tables(look: &mut impl FnMut(&'static str, &'static [Word])) {
        look("", FILE.words);
        each_word(&mut |_, word| look(word.name, word.words));
    }

    /// Every default value is also valid if written.
    #[test]
    fn each_default_is_within_its_bounds() {
        let mut count = 0;
        each_word(&mut |_, word| {
            let Some(kind) = word.kind else { return };
            if let Preset::Value(written) = word.default {
                let written = written.replace("true", "#true").replace("false", "#false");
                let node: KdlNode = format!("{} {written}", word.name).parse().unwrap();
                assert_eq!(kind(node.get(0).unwrap()), Ok(()), "{node}");
                count += 1;
            }
            assert!(kind(&KdlValue::Null).is_err(), "{} takes #null", word.name);
        });
        assert!(count > 50, "{count}");
    }

    /// The first word of each example is the row's.
    #[test]
    fn each_example_is_of_its_word() {
        each_word(&mut |_, word| {
            let example = word.shape.example;
            let first = example.split(' ').next().unwrap();
            let shared = word.name == "refuse" && first == "allow";
            let is_right = !word.is_node() || first == word.name || shared;
            assert!(is_right, "{}: {example}", word.name);
        });
    }

    /// Wraps an example of a word, with an invalid property added, in examples of its owners.
    fn with_nonsense(owners: &[&Word], word: &Word) -> KdlNode {
        let example = |word: &Word| {
            let mut node: KdlNode = word.shape.example.parse().unwrap();
            node.set_name(word.name);
            node
        };
        let mut inner = example(word);
        inner.push(KdlEntry::new_prop("nonsense", 1));
        for owner in owners.iter().rev() {
            let mut outer = example(owner);
            let mut block = KdlDocument::new();
            block.nodes_mut().push(inner);
            outer.set_children(block);
            inner = outer;
        }
        inner
    }

    /// Including those read by hand.
    #[test]
    fn each_node_is_checked() {
        let mut missed = Vec::new();
        each_word(&mut |around, word| {
            if !word.is_node() || word.name == "config" {
                return;
            }
            let node = with_nonsense(around, word);
            let listen = match around.first().unwrap_or(&word).name {
                "listen" => "",
                _ => "listen \"127.0.0.1\"",
            };
            let text = format!("{listen}\n{node}\nzone \"x\" {{ forward \"192.0.2.1\" }}");
            let expected = format!("`{}` has no property `nonsense`", word.name);
            if !problems(&text).contains(&expected) {
                missed.push(text);
            }
        });
        assert!(missed.is_empty(), "{}", missed.join("\n---\n"));
    }

    /// The rows of a table in the reference, properties after their node.
    fn rows(words: &[Word], linked: impl Fn(&Word) -> bool) -> Vec<String> {
        let row = |name: String, word: &Word| {
            let cells = [name, default(word), bounds(word), meaning(word)];
            let cells = cells.map(|cell| {
                if cell.is_empty() {
                    " ".to_owned()
                } else {
                    format!(" {cell} ")
                }
            });
            format!("|{}|", cells.join("|"))
        };
        let mut rows = Vec::new();
        for word in words.iter().filter(|word| word.is_listed(words)) {
            let is_section = linked(word);
            let name = match is_section {
                _ if word.form == Form::Values && *word.shape.arguments.end() == 1 => "its value".to_owned(),
                _ if word.form == Form::Values => "its values".to_owned(),
                true => format!("[`{0}`](#{0})", word.name),
                false => format!("`{}`", word.name),
            };
            rows.push(row(name, word));
            let has_table = is_section || word.words.iter().any(Word::is_node);
            let properties = word
                .words
                .iter()
                .filter(|word| word.form == Form::Property && !has_table);
            rows.extend(
                properties.map(|property| row(format!("`{} {}=`", word.name, property.name), property)),
            );
        }
        rows
    }

    /// The tables of the reference, by the first cell of each row. A word with several places has its
    /// longest.
    fn reference(text: &str) -> BTreeMap<String, Vec<String>> {
        let headed = |word: &Word| text.contains(&format!("# `{}`\n", word.name));
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        tables(&mut |owner, words| {
            let has_nodes = words.iter().any(Word::is_node);
            let is_section = FILE.words.iter().any(|word| std::ptr::eq(word.words, words));
            let (head, rows) = match (owner, has_nodes) {
                ("", _) => ("in the file".to_owned(), rows(words, headed)),
                // Its one word is documented elsewhere.
                ("source", true) => return,
                (_, true) => (
                    format!("in `{owner}`"),
                    rows(words, |word| owner == "zone" && headed(word)),
                ),
                (_, false) if is_section => (format!("property of `{owner}`"), rows(words, |_| false)),
                (_, false) => return,
            };
            let known = all.entry(head).or_default();
            if known.len() < rows.len() {
                *known = rows;
            }
        });
        all.retain(|_, rows| !rows.is_empty());
        all
    }

    #[test]
    fn the_reference_has_the_tables() {
        let path = root().join("docs/configuration.md");
        let text = fs::read_to_string(&path).unwrap();
        let mut missing = reference(&text);
        let mut written = String::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let head = line.strip_prefix("| ").and_then(|line| line.split(" | ").next());
            let Some(rows) = head.and_then(|head| missing.remove(head)) else {
                written += &format!("{line}\n");
                continue;
            };
            let head = head.unwrap();
            written += &format!("| {head} | default | bounds | meaning |\n|---|---|---|---|\n");
            written += &(rows.join("\n") + "\n");
            while lines.next_if(|line| line.starts_with('|')).is_some() {}
        }
        assert!(missing.is_empty(), "no table begins with {:#?}", missing.keys());
        compare(&path, &written);
    }

    /// The dictionary of libFuzzer, since random bytes would seldom form a word.
    #[test]
    fn the_fuzzers_know_every_word() {
        let mut words: BTreeSet<String> = known_words().into_iter().map(str::to_owned).collect();
        each_word(&mut |_, row| {
            if let Preset::Value(value) = row.default {
                words.insert(value.to_owned());
            }
            match row.takes() {
                Takes::Words(known) => words.extend(known.into_iter().map(str::to_owned)),
                Takes::Whole(least, most) => words.extend([least, most]),
                Takes::Duration(least, most) | Takes::Size(least, most) => {
                    words.extend([least, most].map(|bound| format!("{bound:?}")));
                }
                Takes::Text | Takes::Boolean => {}
            }
        });
        words.extend(SYNTAX.split_whitespace().map(str::to_owned));
        let mut text = String::from(
            "# Words of the configuration language for libFuzzer, since random bytes would seldom form one.\n\
             # Generated from the tables of words by a test of crates/config, with UPDATE=1 in the environment.\n",
        );
        for word in words {
            text += &format!("\"{}\"\n", word.replace('\\', "\\\\").replace('"', "\\\""));
        }
        compare(&root().join("fuzz/dictionaries/config.txt"), &text);
    }

    /// Tokens that are not words: the syntax, and values of each kind.
    const SYNTAX: &str = r##"
        { } " // /* */ /- = ; #true #false #null (file) (env) (data) 4294967296 -1 1.5 "10.96.0.10"
        "127.0.0.1:53" "[::1]:53" "0.0.0.0" "::" "fe80::1%lo" "192.0.2.0/24" "." "in-addr.arpa"
        "/etc/resolv.conf" "builtin:log" "tls://192.0.2.1%dns.example" "https://192.0.2.1/dns-query"
        "quic://192.0.2.1" "oci://r.example/f:1" "private" "any"
    "##;

    /// Its row cannot name the constant.
    #[test]
    fn the_default_of_self_test_is_described() {
        let addresses = DUMMIES.map(|ip| format!("\"{ip}\"")).join(", ");
        let shown = glossary(Some("self-test"));
        assert!(shown.contains(&format!("default: {addresses}\n")), "{shown}");
    }

    #[test]
    fn a_word_is_shown_in_each_of_its_places() {
        let shown = glossary(Some("ttl"));
        for part in [
            "ttl in zone > kubernetes: TTL of the answers\n    default: \"5s\"\n    bounds: \"0s\" to \"1h\"\n",
            "ttl= in zone > cache > serve-stale: ",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        let cache = glossary(Some("cache"));
        for part in [
            "\n    serve-stale ",
            "\n        how long after its TTL",
            "\n        after= ",
        ] {
            assert!(cache.contains(part), "{cache}");
        }
        assert!(glossary(None).lines().count() > known_words().len());
        assert_eq!(glossary(Some("nonsense")), "");
        assert!(
            !glossary(None).contains(['`', '(', ')'].as_slice()),
            "{}",
            glossary(None)
        );
        assert_eq!(
            plain("a [`b`](c.md#d): [below](#e) [f"),
            "a b: docs/configuration.md#e [f"
        );
    }
}
