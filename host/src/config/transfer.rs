//! `transfer`: who may have all of a zone, and who is told when it changes.

use kdl::KdlNode;

use super::Transfer;
use super::address::{DNS_PORT, address};
use super::clients::network;
use super::decode::{Mistakes, Shape, arguments, block, child, head};
use super::error::Diagnostic;
use super::name::zone_name;
use crate::dns::tsig::Key;

pub(super) const TRANSFER: Shape = Shape {
    example: r#"transfer { to "192.0.2.7"; key "transfers.example.org"; notify "192.0.2.7" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &["to", "key", "notify"],
    repeated: &[],
};

pub(super) const TO: Shape = Shape::plain(1..=256, r#"to "192.0.2.0/24" "2001:db8::7""#);
pub(super) const NOTIFY: Shape = Shape::plain(1..=64, r#"notify "192.0.2.7" "[2001:db8::7]:5353""#);

/// Decodes `transfer` among these nodes of a source, if it is there.
pub(super) fn decode(mistakes: &mut Mistakes, keys: &[Key], nodes: &[KdlNode]) -> Option<Transfer> {
    let node = child(nodes, "transfer")?;
    mistakes.check(node, &TRANSFER);
    let nodes = block(node);
    const HELP: &str = "write a network or an address: \"192.0.2.0/24\", \"2001:db8::7\"";
    let to = mistakes.list(nodes, "to", &TO, |value| network(value, HELP));
    if to.is_none() {
        let missing = Diagnostic::new(head(node), "this `transfer` does not say to whom");
        mistakes.push(missing.help(format!("write: {}", TRANSFER.example)));
    }
    Some(Transfer {
        to: to.unwrap_or_default(),
        key: key(mistakes, keys, nodes),
        notify: mistakes
            .list(nodes, "notify", &NOTIFY, address(DNS_PORT))
            .unwrap_or_default(),
    })
}

/// The key that `key "NAME"` names.
pub(super) fn key(mistakes: &mut Mistakes, keys: &[Key], nodes: &[KdlNode]) -> Option<Key> {
    let name = mistakes.scalar(nodes, r#"key "transfers.example.org""#, zone_name)?;
    let known = keys.iter().find(|key| key.name().to_string() == name);
    if known.is_none() {
        let node = child(nodes, "key")?;
        let span = arguments(node)
            .next()
            .map_or(head(node), |entry| entry.span().into());
        let help = format!("define it: tsig {name:?} {{ secret (file)\"PATH\" }}");
        mistakes.push(Diagnostic::new(span, format!("there is no key {name}")).help(help));
    }
    known.cloned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, problems};
    use super::super::{SourceConfig, Stage};

    const KEY: &str = "tsig \"k.example\" { secret \"MDEyMzQ1Njc4OWFiY2RlZg==\" }\n";

    fn text(transfer: &str) -> String {
        format!("listen \"127.0.0.1\"\n{KEY}zone \"cluster.local\" {{ kubernetes {{ {transfer} }} }}")
    }

    #[test]
    fn every_word_is_read() {
        let config = config(&text(
            r#"transfer { to "192.0.2.0/24" "2001:db8::7"; key "K.example"; notify "192.0.2.7" "192.0.2.8:5353" }"#,
        ));
        let Stage::Source(SourceConfig::Kubernetes(kubernetes)) = &config.zones[0].stages[0] else {
            panic!("{:?}", config.zones);
        };
        let transfer = kubernetes.transfer.as_ref().unwrap();
        let to: Vec<String> = transfer.to.iter().map(ToString::to_string).collect();
        assert_eq!(to, ["192.0.2.0/24", "2001:db8::7/128"]);
        assert_eq!(transfer.key.as_ref().unwrap().name().to_string(), "k.example.");
        let notify: Vec<String> = transfer.notify.iter().map(ToString::to_string).collect();
        assert_eq!(notify, ["192.0.2.7:53", "192.0.2.8:5353"]);
    }

    #[test]
    fn mistakes_are_found() {
        for (transfer, expected) in [
            ("transfer", "this `transfer` does not say to whom"),
            ("transfer { to }", "`to` needs a value"),
            ("transfer { to \"any\" }", "`to`: \"any\" is not a network"),
            (
                "transfer { to \"192.0.2.1\"; key \"other\" }",
                "there is no key other.",
            ),
            (
                "transfer { to \"192.0.2.1\"; notify \"a\" }",
                "`notify`: \"a\" is not an IP address",
            ),
            (
                "transfer { to \"192.0.2.1\"; from \"a\" }",
                "`from` is not allowed in `transfer`",
            ),
        ] {
            assert_eq!(problems(&text(transfer))[0], expected, "{transfer}");
        }
    }
}
