//! A filter that does one thing, named in its configuration, with every query: for `dnsweir-bench verbs`.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Answers, Ask, Data, Event, ExtendedError, Filter, Invalid, Level, Manifest, NameBuf, NamedSource,
    Prefix, Query, Rcode, Rdata, Record, Response, ResponseEdit, ResponseVerdict, Rewrite, Section, Selector,
    Setup, Table, Type, Verdict, count, count_with, log, print,
};

const MINUTE: Duration = Duration::from_secs(60);

/// What is done with each query, with each response, or neither.
#[derive(Clone, Copy)]
enum Verb {
    Query(fn(&Verbs, &Query<'_>) -> Verdict),
    Response(fn(&Verbs, &Response<'_>) -> ResponseVerdict),
    Event,
}
use Verb::{Query as Queries, Response as Responses};

/// What only filters built for WASI can do.
#[cfg(target_os = "wasi")]
const OF_WASI: &[(&str, Verb)] = &[
    ("clock", Queries(|_, _| looked_at(std::time::SystemTime::now()))),
    ("random", Queries(|_, _| looked_at(wasi::random()))),
    ("println", Queries(|_, _| looked_at(wasi::print()))),
];
#[cfg(not(target_os = "wasi"))]
const OF_WASI: &[(&str, Verb)] = &[];

const VERBS: [(&str, Verb); 45] = [
    ("pass", Queries(|_, _| Verdict::pass())),
    ("remember", Queries(|_, _| Verdict::pass().remember(MINUTE))),
    ("refuse", Queries(|_, _| Verdict::refuse(Rcode::NXDOMAIN))),
    (
        "refuse-error",
        Queries(|_, _| Verdict::refuse(Rcode::NXDOMAIN).error(ExtendedError::FILTERED.text("on a list"))),
    ),
    ("drop", Queries(|_, _| Verdict::drop_for("on a list"))),
    ("answer", Queries(|_, query| Verdict::answer(answer(query)))),
    (
        "alias",
        // The target passes through as a separate query.
        Queries(|own, query| match query.name() == own.other.as_name() {
            true => Verdict::pass(),
            false => Verdict::alias(own.other.clone()),
        }),
    ),
    (
        "rewrite",
        Queries(|own, _| Verdict::rewrite(Rewrite::new().name(own.other.clone()))),
    ),
    (
        "client-subnet",
        Queries(|_, query| Verdict::pass().client_subnet(Prefix::of(query.client(), 24))),
    ),
    (
        "via",
        Queries(|own, _| match own.elsewhere {
            Some(source) => Verdict::pass().via(source),
            None => Verdict::pass(),
        }),
    ),
    ("skip-response", Queries(|_, _| Verdict::pass().skip_response())),
    (
        "query-edit",
        Queries(|_, _| Verdict::pass().edit(ResponseEdit::new().ttl_max(MINUTE))),
    ),
    (
        "ask",
        Queries(|own, _| Verdict::ask(Ask::new().lookup(&own.other, Type::A).below())),
    ),
    ("listener", Queries(|_, query| looked_at(query.listener()))),
    ("server-name", Queries(|_, query| looked_at(query.server_name()))),
    ("identity", Queries(|_, query| looked_at(query.identity()))),
    (
        "options",
        Queries(|_, query| looked_at(query.edns_options().count())),
    ),
    (
        "count",
        Queries(|_, _| {
            count("seen", 1);
            Verdict::pass()
        }),
    ),
    (
        "count-label",
        Queries(|_, query| {
            count_with(
                "seen",
                &[("dnssec", if query.dnssec_ok() { "1" } else { "0" })],
                1,
            );
            Verdict::pass()
        }),
    ),
    (
        "print",
        Queries(|_, _| {
            print("a line of some forty octets, as a log has");
            Verdict::pass()
        }),
    ),
    (
        "log",
        Queries(|_, _| {
            log(Level::Info, "a line of some forty octets, as a log has");
            Verdict::pass()
        }),
    ),
    (
        "get",
        Queries(|own, query| looked_at(own.table.get(query.name().as_wire()))),
    ),
    (
        "add",
        Queries(|own, query| looked_at(own.table.add(query.name().as_wire(), 1, None))),
    ),
    (
        "put",
        Queries(|own, query| looked_at(own.table.put(query.name().as_wire(), [0; 8], None))),
    ),
    (
        "compare-and-swap",
        Queries(|own, query| {
            let key = query.name().as_wire();
            let there = own
                .table
                .compare_and_swap(key, Some(&[0; 8]), Some(&[0; 8]), None);
            looked_at(there || own.table.put(key, [0; 8], None))
        }),
    ),
    (
        "take",
        Queries(|own, query| looked_at(own.table.take(query.name().as_wire(), 1, 1e9, 1_000_000))),
    ),
    (
        "find-line",
        Queries(|own, _| {
            looked_at(
                own.list
                    .as_ref()
                    .and_then(|list| list.find_line("host-70000.ads.example", b' ')),
            )
        }),
    ),
    (
        "read-at",
        Queries(|own, _| {
            looked_at(
                own.list
                    .as_ref()
                    .map(|list| list.read_at(1_000_000, &mut [0; 64])),
            )
        }),
    ),
    ("response-pass", Responses(|_, _| ResponseVerdict::pass())),
    (
        "response-message",
        Responses(|_, response| {
            black_box(response.message());
            ResponseVerdict::pass()
        }),
    ),
    (
        "response-replace",
        Responses(|_, response| ResponseVerdict::replace(answer(response.query()))),
    ),
    (
        "response-drop",
        Responses(|_, _| ResponseVerdict::drop_for("on a list")),
    ),
    (
        "response-ask",
        Responses(|own, _| ResponseVerdict::ask(Ask::new().lookup(&own.other, Type::A).below())),
    ),
    (
        "response-rcode",
        Responses(|_, _| edit(|edit| edit.rcode(Rcode::NOERROR, Rcode::REFUSED))),
    ),
    (
        "response-ttl",
        Responses(|_, _| edit(|edit| edit.ttl_max(MINUTE))),
    ),
    (
        "response-flags",
        Responses(|_, _| edit(|edit| edit.authentic(false))),
    ),
    (
        "response-error",
        Responses(|_, _| edit(|edit| edit.error(ExtendedError::FORGED.text("edited")))),
    ),
    ("response-rotate", Responses(|_, _| edit(|edit| edit.rotate(1)))),
    ("response-shuffle", Responses(|_, _| edit(ResponseEdit::shuffle))),
    (
        "response-permute",
        Responses(|_, _| edit(|edit| edit.permute([0]))),
    ),
    (
        "response-replace-records",
        Responses(|own, _| edit(|edit| edit.replace(Selector::of_type(Type::A), [record(&own.other)]))),
    ),
    (
        "response-remove",
        Responses(|_, _| edit(|edit| edit.remove(Selector::of_type(Type::AAAA)))),
    ),
    (
        "response-append",
        Responses(|own, _| edit(|edit| edit.append(Section::Additional, record(&own.other)))),
    ),
    ("event", Verb::Event),
    ("event-message", Verb::Event),
];

struct Verbs {
    verb: Verb,
    other: NameBuf,
    table: Table,
    list: Option<Data>,
    /// The source for routed queries.
    elsewhere: Option<NamedSource>,
}

impl Filter for Verbs {
    fn configure(setup: Setup<'_>) -> Result<(Verbs, Manifest), Invalid> {
        let config = setup.config();
        let wanted: String = config.setting("verb")?;
        let mut verbs = VERBS.iter().chain(OF_WASI);
        let Some(&(name, verb)) = verbs.find(|(name, _)| *name == wanted) else {
            return Err(config.mistake(format!("there is no verb {wanted:?}")).report());
        };
        let manifest = match verb {
            Verb::Query(_) => Manifest::new().queries(),
            Verb::Response(_) => Manifest::new().responses(),
            Verb::Event => Manifest::new().events(),
        };
        let mut elsewhere = None;
        let manifest = match name {
            "ask" | "response-ask" => manifest.asks(),
            "skip-response" => manifest.responses(),
            "via" => {
                let mut manifest = manifest;
                elsewhere = Some(manifest.source("elsewhere"));
                manifest
            }
            "server-name" => manifest.server_name(),
            "identity" => manifest.identity(),
            "listener" => manifest.listener(),
            "options" => manifest.edns_options(),
            "response-message" | "event-message" => manifest.messages(),
            _ => manifest,
        };
        let list = config.node("list")?.map(|list| list.argument(0)).transpose()?;
        let own = Verbs {
            verb,
            other: config.setting("other")?,
            table: setup.table("numbers", 1 << 20),
            list,
            elsewhere,
        };
        Ok((own, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        match self.verb {
            Verb::Query(verb) => verb(self, query),
            _ => Verdict::pass(),
        }
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        match self.verb {
            Verb::Response(verb) => verb(self, response),
            _ => ResponseVerdict::pass(),
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        black_box(event.message());
    }

    fn answers(&mut self, _: &Query<'_>, answers: &Answers<'_>) -> Verdict {
        looked_at(answers.iter().any(|found| found.answer_count() > 0))
    }

    fn response_answers(&mut self, _: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        black_box(answers.iter().any(|found| found.answer_count() > 0));
        ResponseVerdict::pass()
    }
}

/// A pass after the result of some work has been used.
fn looked_at<T>(found: T) -> Verdict {
    black_box(found);
    Verdict::pass()
}

fn edit(how: impl FnOnce(ResponseEdit) -> ResponseEdit) -> ResponseVerdict {
    ResponseVerdict::edit(how(ResponseEdit::new()))
}

fn answer(query: &Query<'_>) -> Answer {
    Answer::noerror().record(query.name(), MINUTE, Rdata::A(Ipv4Addr::new(192, 0, 2, 7)))
}

fn record(name: &NameBuf) -> Record {
    Record::new(name, MINUTE, Rdata::A(Ipv4Addr::new(192, 0, 2, 8)))
}

/// Functions that the standard library offers only indirectly.
#[cfg(target_os = "wasi")]
mod wasi {
    /// A random number.
    #[expect(unsafe_code, reason = "a map asks once for the keys of all maps")]
    pub fn random() -> u64 {
        unsafe extern "C" {
            fn getentropy(buffer: *mut u64, octets: usize) -> i32;
        }
        let mut number = 0;
        // SAFETY: it writes as many bytes as requested, for which there is room.
        let failed = unsafe { getentropy(&raw mut number, size_of::<u64>()) };
        assert_eq!(failed, 0, "no random number");
        number
    }

    /// Prints the line that [`print`](dnsweir_filter::print) is measured with, as any program would.
    #[expect(clippy::print_stdout, reason = "that is what is measured")]
    pub fn print() {
        println!("a line of some forty octets, as a log has");
    }
}

dnsweir_filter::export!(Verbs);
