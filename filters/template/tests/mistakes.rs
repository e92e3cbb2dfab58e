//! Invalid templates are reported.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use dnsweir_filter::test::{self, node};
use dnsweir_filter_template::Templates;

fn mistake(config: test::Node) -> (String, String) {
    let mistakes = test::start::<Templates>([config]).err().unwrap();
    let [mistake] = &mistakes[..] else {
        panic!("{mistakes:?}")
    };
    (mistake.message.clone(), mistake.help.clone())
}

#[test]
fn places_that_nothing_fills_are_mistakes() {
    let record = "this is not a record with places in it";
    for (text, help) in [
        ("{2}.test. A 192.0.2.1", "there is no group 2 in `match`"),
        ("{nam} A 192.0.2.1", "{nam} is unknown"),
        ("{name A 192.0.2.1", "write {{ or }} for a brace"),
        ("name} A 192.0.2.1", "write {{ or }} for a brace"),
    ] {
        let template = node("template")
            .child(node("match").arg("(a)"))
            .child(node("answer").arg(text));
        let (message, said) = mistake(template);
        assert_eq!(message, record, "{text}");
        assert!(said.contains(help), "{text}: {said}");
    }
}

#[test]
fn other_mistakes_are_named() {
    for (config, expected) in [
        (
            node("template").child(node("match").arg("(")),
            "this is not a valid regular expression",
        ),
        (
            node("template").child(node("otherwise").arg("drop")),
            "the first argument of `otherwise` must be \"pass\" or \"servfail\", not \"drop\"",
        ),
        (
            node("template").child(node("rcode").arg("NOPE")),
            "the first argument of `rcode` must be a response code, not \"NOPE\"",
        ),
        (
            node("template").child(node("error").arg(70_000)),
            "the first argument of `error` must be a whole number, not 70000",
        ),
    ] {
        assert_eq!(mistake(config).0, expected);
    }
}
