//! A filter that returns garbage. The first label of the name selects the kind.
//!
//! It uses the generated bindings: the SDK's own types would prevent most of this, and the proxy cannot rely
//! on filters being written with them.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use dnsweir_filter::bindings::dnsweir::filter::types::{
    Answer, Ask, AskedQuery, AskedResponse, ConfigError, Decision, Detail, Event, ExtendedError, Lookup,
    LookupAnswer, Manifest, Order, Path, Query, RecordEdit, Refusal, ResourceRecord, Response,
    ResponseDecision, ResponseEdit, ResponseVerdict, Rewrite, Route, Section, Selector, Setup, Subnet,
    Verdict,
};
use dnsweir_filter::bindings::exports::dnsweir::filter::{
    configure, events, queries, query_answers, refresh, response_answers, responses,
};

struct Garbage;

impl configure::Guest for Garbage {
    fn configure(_: Setup) -> Result<Manifest, Vec<ConfigError>> {
        Ok(Manifest {
            qtypes: Vec::new(),
            suffixes: Vec::new(),
            queries: true,
            responses: true,
            events: false,
            messages: true,
            tables: Vec::new(),
            details: vec![Detail::EdnsOptions, Detail::Listener, Detail::ServerName],
            asks: true,
            sources: Vec::new(),
            outcomes: Vec::new(),
        })
    }
}

impl queries::Guest for Garbage {
    fn on_queries(_: u64, batch: Vec<Query>, bytes: Vec<u8>) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for (index, query) in (0..).zip(&batch) {
            verdicts.extend(verdicts_for(index, &kind(query, &bytes)));
        }
        verdicts
    }
}

impl responses::Guest for Garbage {
    fn on_responses(_: u64, batch: Vec<Response>, bytes: Vec<u8>) -> Vec<ResponseVerdict> {
        let mut verdicts = Vec::new();
        for (index, response) in (0..).zip(&batch) {
            let decision = match kind(&response.query, &bytes).as_str() {
                "response-index" => {
                    verdicts.push(ResponseVerdict {
                        response: u32::MAX,
                        decision: ResponseDecision::Pass,
                        edit: None,
                        delay: 0,
                    });
                    continue;
                }
                "response-records" => {
                    ResponseDecision::Replace(answer(vec![record(b"\x3fshort", 1, &[1, 2, 3])]))
                }
                "response-rcode" => ResponseDecision::Replace(Answer {
                    rcode: u16::MAX,
                    ..answer(Vec::new())
                }),
                "response-error" => ResponseDecision::Replace(Answer {
                    error: Some(error(1 << 18)),
                    ..answer(Vec::new())
                }),
                "response-delay" => {
                    verdicts.push(ResponseVerdict {
                        response: index,
                        decision: ResponseDecision::Pass,
                        edit: None,
                        delay: 2001,
                    });
                    continue;
                }
                "response-drop" => ResponseDecision::Drop("r".repeat(1 << 18)),
                _ => continue,
            };
            verdicts.push(ResponseVerdict {
                response: index,
                decision,
                edit: None,
                delay: 0,
            });
        }
        verdicts
    }
}

impl query_answers::Guest for Garbage {
    fn on_query_answers(
        _: u64,
        batch: Vec<AskedQuery>,
        _: Vec<LookupAnswer>,
        bytes: Vec<u8>,
    ) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for asked in &batch {
            verdicts.extend(match kind(&asked.query, &bytes).as_str() {
                "answered-index" => verdicts_for(7, "drop"),
                "answered-name" => verdicts_for(0, "open-name"),
                "answered-ask" => verdicts_for(0, "ask-of-many"),
                _ => Vec::new(),
            });
        }
        verdicts
    }
}

impl response_answers::Guest for Garbage {
    fn on_response_answers(
        _: u64,
        _: Vec<AskedResponse>,
        _: Vec<LookupAnswer>,
        _: Vec<u8>,
    ) -> Vec<ResponseVerdict> {
        Vec::new()
    }
}

impl events::Guest for Garbage {
    fn on_events(_: Vec<Event>, _: Vec<u8>) {}
}

impl refresh::Guest for Garbage {
    fn on_refresh(_: u64, sources: Vec<refresh::Source>) -> Result<(), String> {
        // Far too long, with line breaks and terminal escape codes.
        Err(format!("\u{1b}[2J\n{}\n", "no".repeat(1 << 19)) + &sources.len().to_string())
    }
}

/// The first label of a query's name.
fn kind(query: &Query, bytes: &[u8]) -> String {
    let start = query.name_start as usize;
    let length = usize::from(bytes.get(start).copied().unwrap_or(0));
    let label = bytes.get(start + 1..start + 1 + length).unwrap_or_default();
    String::from_utf8_lossy(label).into_owned()
}

/// The verdicts for a query of this kind; none for an unknown kind.
fn verdicts_for(index: u32, kind: &str) -> Vec<Verdict> {
    let verdict = |decision| Verdict {
        query: index,
        remember: 0,
        decision,
        edit: None,
        skip_response: false,
        delay: 0,
        route: None,
    };
    let name = |name: &[u8]| {
        Decision::Rewrite(Rewrite {
            name: Some(name.to_vec()),
            qtype: None,
            qclass: None,
            revert: true,
        })
    };
    let own = [&[1u8, b'x'][..], &[0]].concat();
    let decision = match kind {
        "index" => {
            return vec![Verdict {
                query: u32::MAX,
                ..verdict(dropped())
            }];
        }
        "twice" => {
            return vec![
                verdict(Decision::Pass),
                verdict(dropped()),
                verdict(refuse(5, None)),
            ];
        }
        "many" => return (0..100_000).map(|_| verdict(Decision::Pass)).collect(),
        "drop" => dropped(),
        "empty-name" => name(b""),
        "open-name" => name(b"\x03www"),
        "pointer" => name(b"\xc0\x0c"),
        "long-label" => name(&[&[64][..], &[b'a'; 64], &[0]].concat()),
        "long-name" => name(&[&[63u8][..], &[b'a'; 63]].concat().repeat(5)),
        "after-name" => name(b"\x01x\0more"),
        "huge-name" => name(&vec![1; 1 << 20]),
        "owner" => Decision::Answer(answer(vec![record(b"\xc0\x0c", 1, &[192, 0, 2, 1])])),
        "short-a" => Decision::Answer(answer(vec![record(&own, 1, &[192, 0, 2])])),
        "bad-cname" => Decision::Answer(answer(vec![record(&own, 5, b"\xff\xff")])),
        "opt" => Decision::Answer(answer(vec![record(b"\0", 41, b"")])),
        "many-records" => Decision::Answer(answer(vec![record(&own, 16, &[0; 200]); 5_000])),
        "long-data" => Decision::Answer(answer(vec![record(&own, 65_400, &[0; 70_000])])),
        "rcode" => refuse(u16::MAX, None),
        "answer-rcode" => Decision::Answer(Answer {
            rcode: 4096,
            ..answer(Vec::new())
        }),
        "type" => Decision::Rewrite(Rewrite {
            name: None,
            qtype: Some(41),
            qclass: Some(0),
            revert: true,
        }),
        "ttl" => {
            let edit = ResponseEdit {
                rcodes: vec![(u16::MAX, u16::MAX); 1000],
                ttl_minimum: u32::MAX,
                ttl_maximum: 0,
                ..no_edit()
            };
            return vec![Verdict {
                edit: Some(edit),
                remember: u32::MAX,
                ..verdict(Decision::Pass)
            }];
        }
        _ => match aliases(kind).or_else(|| asks(kind)).or_else(|| long_texts(kind)) {
            Some(decision) => decision,
            None => return beside(kind, verdict(Decision::Pass)),
        },
    };
    vec![verdict(decision)]
}

/// Options of a pass that are garbage, if the kind is one of these.
fn beside(kind: &str, pass: Verdict) -> Vec<Verdict> {
    match kind.split('-').next() {
        Some("edit" | "route" | "delay") => vec![Verdict {
            edit: edit(kind),
            route: route(kind),
            delay: if kind == "delay-much" { u16::MAX } else { 0 },
            ..pass
        }],
        _ => Vec::new(),
    }
}

/// The name of queries of this kind.
fn name_of(kind: &str) -> Vec<u8> {
    [
        &[kind.len() as u8][..],
        kind.as_bytes(),
        b"\x07garbage\x07hostile\x04test\0",
    ]
    .concat()
}

/// Invalid lookups, too many of them, and lookups that lead to more.
fn asks(kind: &str) -> Option<Decision> {
    let asked = name_of(kind);
    Some(match kind {
        "ask-of-none" => Decision::Ask(ask(Vec::new())),
        "ask-of-many" => Decision::Ask(ask(vec![lookup(&asked, 1); 17])),
        "ask-name" => Decision::Ask(ask(vec![lookup(b"\x03www", 1)])),
        "ask-type" => Decision::Ask(ask(vec![lookup(&asked, 41)])),
        "ask-zone" => Decision::Ask(ask(vec![Lookup {
            path: Path::Zone("a..b".to_owned()),
            ..lookup(&asked, 1)
        }])),
        "ask-time" => Decision::Ask(Ask {
            time: u32::MAX,
            ..ask(vec![lookup(&asked, 1)])
        }),
        "ask-state" => Decision::Ask(Ask {
            state: vec![0; 4097],
            ..ask(vec![lookup(&asked, 1)])
        }),
        "ask-much" => Decision::Ask(Ask {
            state: vec![0; 2 << 20],
            ..ask(vec![lookup(&asked, 1); 100_000])
        }),
        // The filter returns the same for each: a tree of sixteen branches.
        "ask-self" => Decision::Ask(ask(vec![lookup(&asked, 1); 16])),
        "answered-index" | "answered-name" | "answered-ask" => Decision::Ask(ask(vec![lookup(b"\0", 2)])),
        _ => return None,
    })
}

/// Aliases that lead nowhere, or to themselves.
fn aliases(kind: &str) -> Option<Decision> {
    let asked = name_of(kind);
    Some(match kind {
        "alias" => Decision::Alias(vec![b"\x03www".to_vec()]),
        "alias-of-none" => Decision::Alias(Vec::new()),
        "alias-of-many" => Decision::Alias(vec![asked.clone(); 34]),
        // The filter returns the same for each: a tree of 33 branches.
        "alias-of-aliases" => Decision::Alias(vec![asked.clone(); 33]),
        "alias-self" => Decision::Alias(vec![asked.clone()]),
        _ => return None,
    })
}

/// Texts that exceed their limits.
fn long_texts(kind: &str) -> Option<Decision> {
    Some(match kind {
        "drop-reason" => Decision::Drop("r".repeat(65)),
        "huge-reason" => Decision::Drop("r".repeat(1 << 19)),
        "error-text" => refuse(3, Some(error(201))),
        "huge-error" => refuse(3, Some(error(1 << 19))),
        "answer-error" => Decision::Answer(Answer {
            error: Some(error(201)),
            ..answer(Vec::new())
        }),
        _ => return None,
    })
}

/// Invalid routes.
fn route(kind: &str) -> Option<Route> {
    kind.starts_with("route-").then(|| Route {
        source: (kind == "route-nowhere").then_some(u16::MAX),
        client_subnet: (kind == "route-subnet").then_some(Subnet {
            high: u64::MAX,
            low: u64::MAX,
            length: u8::MAX,
        }),
    })
}

fn no_edit() -> ResponseEdit {
    ResponseEdit {
        rcodes: Vec::new(),
        records: Vec::new(),
        header_set: 0,
        header_clear: 0,
        error: None,
        ttl_minimum: 0,
        ttl_maximum: u32::MAX,
        store: true,
        stale: true,
    }
}

/// A response edit that is invalid, or exceeds its limits.
fn edit(kind: &str) -> Option<ResponseEdit> {
    let all = Selector {
        section: None,
        name: None,
        rtype: None,
        index: None,
    };
    let append = |octets| RecordEdit::Append((Section::Additional, record(b"\0", 65_280, &vec![0; octets])));
    let records = match kind {
        "edit-many" => vec![RecordEdit::Remove(all); 65],
        "edit-selector" => vec![RecordEdit::Remove(Selector {
            name: Some(b"\xc0\x0c".to_vec()),
            ..all
        })],
        "edit-record" => vec![RecordEdit::Replace((all, vec![record(b"\x3fshort", 1, &[1])]))],
        "edit-opt" => vec![RecordEdit::Append((Section::Answer, record(b"\0", 41, b"")))],
        // Twice the size of a message.
        "edit-huge" => vec![append(65_000), append(65_000)],
        // The maximum size of an edit, which exceeds what the response has room for.
        "edit-large" => vec![append(64_000), RecordEdit::Order(Order::Shuffle), append(600)],
        "edit-permute" => vec![RecordEdit::Order(Order::Permute(vec![u32::MAX; 4097]))],
        "edit-beyond" => vec![RecordEdit::Order(Order::Permute(vec![u32::MAX; 4096])); 60],
        _ => Vec::new(),
    };
    let (header_set, header_clear) = match kind {
        "edit-header" => (u16::MAX, 0),
        "edit-both" => (0x0200, 0x0200),
        _ => (0, 0),
    };
    Some(ResponseEdit {
        records,
        header_set,
        header_clear,
        error: (kind == "edit-error").then(|| error(201)),
        ..no_edit()
    })
}

fn answer(answers: Vec<ResourceRecord>) -> Answer {
    Answer {
        rcode: 0,
        authoritative: false,
        answers,
        authority: Vec::new(),
        additional: Vec::new(),
        error: None,
    }
}

fn dropped() -> Decision {
    Decision::Drop(String::new())
}

fn refuse(rcode: u16, error: Option<ExtendedError>) -> Decision {
    Decision::Refuse(Refusal { rcode, error })
}

fn error(octets: usize) -> ExtendedError {
    ExtendedError {
        code: u16::MAX,
        text: "e".repeat(octets),
    }
}

fn ask(lookups: Vec<Lookup>) -> Ask {
    Ask {
        lookups,
        time: 0,
        state: Vec::new(),
    }
}

fn lookup(name: &[u8], qtype: u16) -> Lookup {
    Lookup {
        name: name.to_vec(),
        qtype,
        path: Path::Top,
    }
}

fn record(name: &[u8], rtype: u16, rdata: &[u8]) -> ResourceRecord {
    ResourceRecord {
        name: name.to_vec(),
        rtype,
        class: 1,
        ttl: 300,
        rdata: rdata.to_vec(),
    }
}

dnsweir_filter::bindings::export!(Garbage with_types_in dnsweir_filter::bindings);
