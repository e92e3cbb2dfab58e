//! A filter whose verdict is the one that the first label of the name says: every possible verdict, for tests
//! over the wire.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Event, ExtendedError, Filter, Invalid, Manifest, NameBuf, NamedSource, Prefix, Query, Rcode,
    Rdata, Record, Response, ResponseEdit, ResponseVerdict, Rewrite, Section, Selector, Setup, Type, Verdict,
    count_with, print,
};

/// The source for `via` queries, if configured.
struct Verdicts(Option<NamedSource>);

impl Filter for Verdicts {
    fn configure(setup: Setup<'_>) -> Result<(Verdicts, Manifest), Invalid> {
        let phases = Manifest::new().queries().responses().events();
        let mut manifest = phases
            .messages()
            .listener()
            .server_name()
            .edns_option(8)
            .edns_option(10);
        let via = match setup.config().node("via")? {
            Some(node) => Some(manifest.source(&node.argument::<String>(0)?)),
            None => None,
        };
        Ok((Verdicts(via), manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let label = first_label(query);
        if label == "counted" {
            let shard = query.name().labels().count().to_string();
            count_with(
                "seen",
                &[("qtype", &query.qtype().to_string()), ("labels", &shard)],
                1,
            );
        }
        if label.starts_with("shown") {
            print(&format!("query {}", detailed(query)));
        }
        if let Some(verdict) = self.routed(query, &label) {
            return verdict;
        }
        let why = ExtendedError::FILTERED.text("told so by its first label");
        let verdict = match label.as_str() {
            "refuse" => Verdict::refuse(Rcode::NXDOMAIN),
            "refuse-why" => Verdict::refuse(Rcode::NXDOMAIN).error(why),
            "answer-why" => Verdict::answer(address(query)).error(why),
            // One client's verdict, which the host remembers for all clients.
            "steer" if query.client() == IpAddr::from([192, 0, 2, 7]) => Verdict::refuse(Rcode::NXDOMAIN),
            "drop" => Verdict::drop(),
            "drop-why" => Verdict::drop_for("its first label"),
            label => match edit(label) {
                Some(edit) => Verdict::pass().edit(edit),
                None => match delayed(query, label) {
                    Some(verdict) => verdict,
                    None => return Verdict::pass(),
                },
            },
        };
        verdict.remember(Duration::from_secs(1))
    }

    fn event(&mut self, event: &Event<'_>) {
        let query = event.query();
        if first_label(query).starts_with("shown") {
            let message = event.message().map(hex);
            print(&format!(
                "event {} {}",
                detailed(query),
                message.unwrap_or_default()
            ));
        }
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        match first_label(response.query()).as_str() {
            "replace-why" => {
                let why = ExtendedError::FORGED.text("another address");
                ResponseVerdict::replace(address(response.query()).error(why))
            }
            "slow-response" => ResponseVerdict::pass().delay(SLOW),
            "slow-replaced" => ResponseVerdict::replace(address(response.query())).delay(SLOW),
            "slowest" => ResponseVerdict::pass().delay(Duration::MAX),
            "response-drop" => ResponseVerdict::drop_for("its response"),
            // The same edit in the response phase as in the query phase.
            label => match label.strip_prefix("response-").and_then(edit) {
                Some(edit) => ResponseVerdict::edit(edit),
                None => ResponseVerdict::pass(),
            },
        }
    }
}

/// A query's name, with the details that the manifest asked for.
fn detailed(query: &Query<'_>) -> String {
    let options = query.edns_options();
    let options: Vec<String> = options
        .map(|(code, data)| format!("{code}={}", hex(data)))
        .collect();
    let listener = query.listener().unwrap_or("nowhere");
    let subnet = query.edns_option(8).map_or("none".to_owned(), hex);
    let server_name = query.server_name().map(|name| format!(" as {name}"));
    format!(
        "{} at {listener} [{}] subnet {subnet}{}",
        query.name(),
        options.join(" "),
        server_name.unwrap_or_default()
    )
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

impl Verdicts {
    /// Routes a query; not remembered, since it depends on the client.
    fn routed(&self, query: &Query<'_>, label: &str) -> Option<Verdict> {
        let source = self.0?;
        let network = Prefix::of(query.client(), 24);
        Some(match label {
            "via" => Verdict::pass().via(source),
            "via-some" if query.client() == IpAddr::from([127, 0, 0, 2]) => Verdict::pass().via(source),
            "subnet" => Verdict::pass().client_subnet(network),
            "subnet-via" => Verdict::pass().client_subnet(network).via(source),
            _ => return None,
        })
    }
}

/// The delay of slow responses.
const SLOW: Duration = Duration::from_millis(250);

/// Verdicts that delay the response.
fn delayed(query: &Query<'_>, label: &str) -> Option<Verdict> {
    Some(match label {
        "slow" => Verdict::pass().delay(SLOW),
        "slow-answer" => Verdict::answer(address(query)).delay(SLOW),
        "slow-refuse" => Verdict::refuse(Rcode::NXDOMAIN).delay(SLOW),
        "slow-drop" => Verdict::drop_for("slow").delay(SLOW),
        "slow-alias" => Verdict::alias("slow.test".parse().ok()?).delay(SLOW),
        "slow-rewrite" => Verdict::rewrite(Rewrite::new().name("fast.test".parse().ok()?)).delay(SLOW),
        // More than the host accepts.
        "slowest" => Verdict::pass().delay(Duration::MAX),
        _ => return None,
    })
}

/// The edit of the response that this label selects.
fn edit(label: &str) -> Option<ResponseEdit> {
    let edit = ResponseEdit::new();
    let other = |last| Rdata::A([192, 0, 2, last].into());
    let name: NameBuf = "other.test".parse().ok()?;
    let record = |last| Record::new(&name, Duration::from_secs(60), other(last));
    Some(match label {
        "remove" => edit.remove(Selector::of_type(Type::A)),
        "remove-second" => edit.remove(Selector::of_type(Type::A).index(1)),
        "replace" => edit.replace(Selector::of_type(Type::A), [record(8), record(9)]),
        "append" => edit
            .append(Section::Answer, record(8))
            .append(Section::Additional, record(9)),
        "rotate" => edit.rotate(1),
        "shuffle" => edit.shuffle(),
        "permute" => edit.permute([2, 0]),
        "truncated" => edit.truncated(true),
        "authentic" => edit.authentic(true).authoritative(true),
        "unauthentic" => edit.authentic(false),
        "error" => edit.error(ExtendedError::FORGED.text("edited")),
        _ => return None,
    })
}

fn first_label(query: &Query<'_>) -> String {
    let name = query.name().to_string();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn address(query: &Query<'_>) -> Answer {
    let record = Rdata::A([192, 0, 2, 7].into());
    Answer::noerror().record(query.name(), Duration::from_secs(300), record)
}

dnsweir_filter::export!(Verdicts);
