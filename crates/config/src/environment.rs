//! `(env)"NAME"`: takes a value from the environment; allowed wherever a value is.
//!
//! Replaced before anything else reads the document, so that mistakes in the value are reported like any
//! others, with the text in the file underlined. Only the environment at process start counts.

use kdl::{KdlDocument, KdlEntry};

use super::error::Diagnostic;

/// Replaces each such value in `document`, and returns the mistakes found.
pub(super) fn replace(document: &mut KdlDocument) -> Vec<Diagnostic> {
    let mut mistakes = Vec::new();
    replace_by(&mut mistakes, document, &|name| std::env::var(name).ok());
    mistakes
}

/// The parser limits the nesting.
fn replace_by(
    mistakes: &mut Vec<Diagnostic>,
    document: &mut KdlDocument,
    look: &dyn Fn(&str) -> Option<String>,
) {
    for node in document.nodes_mut() {
        for entry in node.entries_mut() {
            if entry.ty().is_some_and(|kind| kind.value() == "env") {
                match found(entry, look) {
                    Ok(value) => *entry = value,
                    Err(mistake) => mistakes.push(mistake),
                }
            }
        }
        if let Some(block) = node.children_mut() {
            replace_by(mistakes, block, look);
        }
    }
}

/// Returns the entry with the variable's value, at the same span.
#[allow(
    clippy::result_large_err,
    reason = "a mistake is made once for each value, while a file is read"
)]
fn found(entry: &KdlEntry, look: &dyn Fn(&str) -> Option<String>) -> Result<KdlEntry, Diagnostic> {
    let wrong = |problem: String, help: &str| Diagnostic::new(entry.span().into(), problem).help(help);
    let Some(name) = entry.value().as_string() else {
        return Err(wrong("`(env)` takes a name".into(), "write: (env)\"NAME\""));
    };
    let value = is_name(name).then(|| look(name)).flatten();
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        let help = "set it where dnsweir is started, or write the value itself";
        return Err(wrong(format!("the environment has no {name}"), help));
    };
    let mut found = match entry.name() {
        Some(key) => KdlEntry::new_prop(key.clone(), value),
        None => KdlEntry::new(value),
    };
    found.set_span(entry.span());
    Ok(found)
}

/// Whether the C library accepts the text as a variable's name.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['=', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax;

    fn replaced(text: &str) -> (KdlDocument, Vec<String>) {
        let mut document = syntax::document(text).unwrap();
        let mut mistakes = Vec::new();
        let look = |name: &str| match name {
            "DNS" => Some("10.96.0.10".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        replace_by(&mut mistakes, &mut document, &look);
        let messages = mistakes.into_iter().map(|mistake| mistake.message);
        (document, messages.collect())
    }

    #[test]
    fn values_properties_and_blocks_have_it() {
        let (document, mistakes) = replaced("a (env)\"DNS\" \"b\" c=(env)\"DNS\" { d (env)DNS }");
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let node = &document.nodes()[0];
        let values = node.entries().iter().map(|entry| entry.value().as_string());
        let values: Vec<_> = values.map(Option::unwrap).collect();
        assert_eq!(values, ["10.96.0.10", "b", "10.96.0.10"]);
        assert_eq!(node.entries()[2].name().map(|name| name.value()), Some("c"));
        assert_eq!(node.entries()[0].span().offset(), 2);
        let inner = &node.children().unwrap().nodes()[0];
        assert_eq!(inner.entries()[0].value().as_string(), Some("10.96.0.10"));
        assert!(inner.entries()[0].ty().is_none());
    }

    #[test]
    fn what_is_empty_is_not_there() {
        let (_, mistakes) = replaced("a (env)\"EMPTY\"");
        assert_eq!(mistakes, ["the environment has no EMPTY"]);
    }
}
