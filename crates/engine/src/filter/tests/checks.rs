//! Whatever a guest returns, the check yields a valid value or a refusal.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use std::time::Duration;

use crate::dns::name::skip_plain;
use crate::filter::bindings::dnsweir::filter::types;
use crate::filter::check::{self, PERMUTED, Room, response_verdicts, verdicts};
use crate::filter::verdict::ResourceRecord;
use crate::filter::{
    Answer, Ask, Decision, Ede, Order, Outcome, QueryOutcome, RecordEdit, ResponseDecision, Selector,
};

const BATCH: usize = 4;

/// Names, mostly valid, and other bytes.
fn octets() -> impl Strategy<Value = Vec<u8>> {
    let label = prop_oneof![vec(any::<u8>(), 1..6), vec(any::<u8>(), 63..65)];
    let name = vec(label, 0..6).prop_map(|labels| {
        let mut wire = Vec::new();
        for label in labels {
            wire.push(label.len() as u8);
            wire.extend(label);
        }
        wire.push(0);
        wire
    });
    prop_oneof![3 => name, 1 => vec(any::<u8>(), 0..300)]
}

fn number() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..64, 240u16..260, any::<u16>()]
}

fn record() -> impl Strategy<Value = types::ResourceRecord> {
    (octets(), number(), number(), any::<u32>(), octets()).prop_map(|(name, rtype, class, ttl, rdata)| {
        types::ResourceRecord {
            name,
            rtype,
            class,
            ttl,
            rdata,
        }
    })
}

/// Texts with lengths around the limit.
fn text(longest: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,10}",
        (longest - 1..longest + 2).prop_map(|length| "t".repeat(length))
    ]
}

fn error() -> impl Strategy<Value = types::ExtendedError> {
    (any::<u16>(), text(200)).prop_map(|(code, text)| types::ExtendedError { code, text })
}

fn answer() -> impl Strategy<Value = types::Answer> {
    let section =
        || prop_oneof![20 => vec(record(), 0..3), 1 => record().prop_map(|record| vec![record; 3000])];
    let sections = [(); 3].map(|()| section());
    (number(), any::<bool>(), sections, option::of(error())).prop_map(
        |(rcode, authoritative, [answers, authority, additional], error)| types::Answer {
            rcode,
            authoritative,
            answers,
            authority,
            additional,
            error,
        },
    )
}

fn decision() -> impl Strategy<Value = types::Decision> {
    let rewrite = (
        option::of(octets()),
        option::of(number()),
        option::of(number()),
        any::<bool>(),
    )
        .prop_map(|(name, qtype, qclass, revert)| types::Rewrite {
            name,
            qtype,
            qclass,
            revert,
        });
    prop_oneof![
        Just(types::Decision::Pass),
        rewrite.prop_map(types::Decision::Rewrite),
        answer().prop_map(types::Decision::Answer),
        vec(octets(), 0..3).prop_map(types::Decision::Alias),
        (number(), option::of(error()))
            .prop_map(|(rcode, error)| types::Decision::Refuse(types::Refusal { rcode, error })),
        text(64).prop_map(types::Decision::Drop),
        ask().prop_map(types::Decision::Ask),
    ]
}

fn section() -> impl Strategy<Value = types::Section> {
    prop_oneof![
        Just(types::Section::Answer),
        Just(types::Section::Authority),
        Just(types::Section::Additional)
    ]
}

fn record_edit() -> impl Strategy<Value = types::RecordEdit> {
    let selector = || {
        let parts = (
            option::of(section()),
            option::of(octets()),
            option::of(number()),
            option::of(any::<u32>()),
        );
        parts.prop_map(|(section, name, rtype, index)| types::Selector {
            section,
            name,
            rtype,
            index,
        })
    };
    let order = prop_oneof![
        any::<u32>().prop_map(types::Order::Rotate),
        Just(types::Order::Shuffle),
        prop_oneof![vec(any::<u32>(), 0..5), vec(any::<u32>(), 4095..4098)].prop_map(types::Order::Permute),
    ];
    prop_oneof![
        selector().prop_map(types::RecordEdit::Remove),
        (selector(), vec(record(), 0..3)).prop_map(types::RecordEdit::Replace),
        (section(), record()).prop_map(types::RecordEdit::Append),
        order.prop_map(types::RecordEdit::Order),
    ]
}

fn ask() -> impl Strategy<Value = types::Ask> {
    let lookup = || {
        let path = prop_oneof![
            Just(types::Path::Top),
            Just(types::Path::Below),
            "[a-z.]{0,12}".prop_map(types::Path::Zone),
        ];
        (octets(), number(), path).prop_map(|(name, qtype, path)| types::Lookup { name, qtype, path })
    };
    let many = lookup().prop_map(|lookup| vec![lookup; 17]);
    let lookups = prop_oneof![20 => vec(lookup(), 0..3), 1 => many];
    let state = (0..5000_usize).prop_map(|length| vec![0; length]);
    (lookups, 0..11_000_u32, state).prop_map(|(lookups, time, state)| types::Ask { lookups, time, state })
}

fn edit() -> impl Strategy<Value = types::ResponseEdit> {
    let bits = prop_oneof![Just(0), Just(0x0020), Just(0x0600), any::<u16>()];
    (
        vec((number(), number()), 0..70),
        prop_oneof![
            20 => vec(record_edit(), 0..3),
            1 => record_edit().prop_map(|edit| vec![edit; 65])
        ],
        (bits.clone(), bits),
        option::of(error()),
        any::<[u32; 2]>(),
        any::<[bool; 2]>(),
    )
        .prop_map(
            |(
                rcodes,
                records,
                (header_set, header_clear),
                error,
                [ttl_minimum, ttl_maximum],
                [store, stale],
            )| {
                types::ResponseEdit {
                    rcodes,
                    records,
                    header_set,
                    header_clear,
                    error,
                    ttl_minimum,
                    ttl_maximum,
                    store,
                    stale,
                }
            },
        )
}

fn route() -> impl Strategy<Value = types::Route> {
    let low = prop_oneof![any::<u64>(), Just(0xffff_c000_0200)];
    let subnet =
        (any::<u64>(), low, 0..131_u8).prop_map(|(high, low, length)| types::Subnet { high, low, length });
    (option::of(0..3_u16), option::of(subnet)).prop_map(|(source, client_subnet)| types::Route {
        source,
        client_subnet,
    })
}

/// Mostly 0 or around the limit.
fn delay() -> impl Strategy<Value = u16> {
    prop_oneof![3 => Just(0), 2 => 1998_u16..2002, 1 => any::<u16>()]
}

pub(super) fn verdict() -> impl Strategy<Value = types::Verdict> {
    (
        0..BATCH as u32 + 1,
        any::<u32>(),
        decision(),
        option::of(edit()),
        any::<bool>(),
        delay(),
        option::of(route()),
    )
        .prop_map(
            |(query, remember, decision, edit, skip_response, delay, route)| types::Verdict {
                query,
                remember,
                decision,
                edit,
                skip_response,
                delay,
                route,
            },
        )
}

pub(super) fn replacement() -> impl Strategy<Value = types::ResponseVerdict> {
    let decision = prop_oneof![
        Just(types::ResponseDecision::Pass),
        answer().prop_map(types::ResponseDecision::Replace),
        text(64).prop_map(types::ResponseDecision::Drop),
        ask().prop_map(types::ResponseDecision::Ask),
    ];
    let parts = (0..BATCH as u32 + 1, decision, option::of(edit()), delay());
    parts.prop_map(|(response, decision, edit, delay)| types::ResponseVerdict {
        response,
        decision,
        edit,
        delay,
    })
}

fn is_name(wire: &[u8]) -> bool {
    skip_plain(wire, 0) == Ok(wire.len())
}

fn is_short(error: &Option<Ede>) -> bool {
    error.as_ref().is_none_or(|error| error.text.len() <= 200)
}

fn is_sound_edit(edit: &RecordEdit) -> bool {
    let is_sound = |record: &ResourceRecord| is_name(&record.name) && record.rtype != 41;
    let selects = |selector: &Selector| selector.name.as_deref().is_none_or(is_name);
    match edit {
        RecordEdit::Remove(selector) => selects(selector),
        RecordEdit::Replace(selector, records) => selects(selector) && records.iter().all(is_sound),
        RecordEdit::Append(_, record) => is_sound(record),
        RecordEdit::Order(Order::Permute(order)) => order.len() <= 5957,
        RecordEdit::Order(Order::Rotate(_) | Order::Shuffle) => true,
    }
}

fn is_bounded(ask: &Ask) -> bool {
    (1..=16).contains(&ask.lookups.len())
        && ask
            .lookups
            .iter()
            .all(|lookup| is_name(&lookup.name) && lookup.qtype != 41)
        && ask.state.len() <= 4096
        && !ask.time.is_zero()
        && ask.time <= Duration::from_secs(10)
}

fn is_sound(answer: &Answer) -> bool {
    let records = || {
        [&answer.answers, &answer.authority, &answer.additional]
            .into_iter()
            .flatten()
    };
    let size = |record: &ResourceRecord| 11 + record.rdata.len();
    answer.rcode <= 4095
        && is_short(&answer.error)
        && records()
            .all(|record| is_name(&record.name) && record.ttl <= i32::MAX as u32 && record.rtype != 41)
        && records().map(size).sum::<usize>() < 65_535
}

proptest! {
    #[test]
    fn accepted_verdicts_are_sound(given in vec(verdict(), 0..4)) {
        let mut out: Vec<QueryOutcome> = vec![Outcome::Passed; BATCH];
        let indices: Vec<_> = given.iter().map(|verdict| verdict.query).collect();
        if verdicts(given.into(), true, &["eu".into()], &mut out).is_ok() {
            let decided = out.iter().filter(|outcome| **outcome != Outcome::Passed).count();
            prop_assert_eq!(decided, indices.len(), "each verdict has a query of its own");
            for outcome in &out {
                let Outcome::Decided(verdict) = outcome else { continue };
                let sound = match &verdict.decision {
                    Decision::Pass => true,
                    Decision::Drop(reason) => reason.len() <= 64,
                    Decision::Rewrite(rewrite) => rewrite.name.as_deref().is_none_or(is_name),
                    Decision::Answer(answer) => is_sound(answer),
                    Decision::Alias(names) => !names.is_empty() && names.iter().all(|name| is_name(name)),
                    Decision::Ask(ask) => {
                        is_bounded(ask) && verdict.edit.is_none() && !verdict.skip_response && verdict.delay == 0
                    }
                    Decision::Refuse(refusal) => refusal.rcode <= 4095 && is_short(&refusal.error),
                };
                prop_assert!(sound && verdict.delay <= 2000, "{:?}", verdict);
                if let Some(route) = &verdict.route {
                    prop_assert!(matches!(verdict.decision, Decision::Pass | Decision::Rewrite(_)));
                    prop_assert!(route.source.as_ref().is_none_or(|(index, name)| (*index, &**name) == (0, "eu")));
                }
                if let Some(edit) = &verdict.edit {
                    prop_assert!(edit.ttl_minimum <= edit.ttl_maximum && edit.ttl_maximum <= i32::MAX as u32);
                    prop_assert!((edit.header_set | edit.header_clear) & !0x0620 == 0);
                    prop_assert!(edit.header_set & edit.header_clear == 0 && is_short(&edit.error));
                    prop_assert!(edit.records.len() <= 64 && edit.records.iter().all(is_sound_edit));
                }
            }
        }
    }

    #[test]
    fn accepted_replacements_are_sound(given in vec(replacement(), 0..4)) {
        let mut out = vec![Outcome::Passed; BATCH];
        if response_verdicts(given, true, &mut out).is_ok() {
            for outcome in &out {
                if let Outcome::Decided(verdict) = outcome {
                    let sound = match &verdict.decision {
                        ResponseDecision::Pass => true,
                        ResponseDecision::Replace(answer) => is_sound(answer),
                        ResponseDecision::Drop(reason) => reason.len() <= 64,
                        ResponseDecision::Ask(ask) => {
                            is_bounded(ask) && verdict.edit.is_none() && verdict.delay == 0
                        }
                    };
                    prop_assert!(sound && verdict.delay <= 2000, "{:?}", verdict);
                }
            }
        }
    }
}

fn check(decision: types::Decision) -> Result<Decision, String> {
    let verdict = types::Verdict {
        query: 0,
        remember: 0,
        decision,
        edit: None,
        skip_response: false,
        delay: 0,
        route: None,
    };
    let mut out = vec![Outcome::Passed];
    verdicts(vec![verdict].into(), true, &[], &mut out).map_err(|garbage| garbage.0)?;
    match out.pop() {
        Some(Outcome::Decided(verdict)) => Ok(verdict.decision.clone()),
        other => panic!("{other:?}"),
    }
}

fn with_record(rtype: u16, ttl: u32, rdata: &[u8]) -> Result<Decision, String> {
    let record = types::ResourceRecord {
        name: b"\x01A\0".to_vec(),
        rtype,
        class: 1,
        ttl,
        rdata: rdata.to_vec(),
    };
    check(types::Decision::Answer(types::Answer {
        rcode: 0,
        authoritative: true,
        answers: vec![record],
        authority: Vec::new(),
        additional: Vec::new(),
        error: None,
    }))
}

/// RFC 2181 section 8.
#[test]
fn a_ttl_with_its_top_bit_set_is_zero() {
    for (given, taken) in [
        (0, 0),
        (0x7fff_ffff, 0x7fff_ffff),
        (0x8000_0000, 0),
        (u32::MAX, 0),
    ] {
        let Ok(Decision::Answer(answer)) = with_record(1, given, &[127, 0, 0, 1]) else {
            panic!("{given}")
        };
        assert_eq!(answer.answers[0].ttl, taken);
        assert_eq!(*answer.answers[0].name, *b"\x01A\0", "the filter's letter case");
    }
}

#[test]
fn data_has_the_shape_of_its_type() {
    let soa = [&b"\0\x01a\0"[..], &[0; 20]].concat();
    let good: [(u16, &[u8]); 11] = [
        (1, &[1; 4]),
        (28, &[1; 16]),
        (5, b"\x01a\0"),
        (2, b"\0"),
        (12, b"\x01a\0"),
        (6, &soa),
        (15, b"\0\x0a\x01a\0"),
        (33, b"\0\0\0\0\0\x35\x01a\0"),
        (16, b"\0\x02hi"),
        (65280, b""),
        (65280, b"anything"),
    ];
    for (rtype, data) in good {
        assert!(with_record(rtype, 0, data).is_ok(), "type {rtype} {data:?}");
        if rtype != 65280 {
            assert!(
                with_record(rtype, 0, &data[..data.len() - 1]).is_err(),
                "type {rtype} cut"
            );
            assert!(
                with_record(rtype, 0, &[data, &[9]].concat()).is_err(),
                "type {rtype} with something behind"
            );
        }
    }
    assert!(with_record(5, 0, b"\xc0\x0c").is_err(), "nothing is compressed");
    assert!(with_record(16, 0, b"").is_err());
    for meta in [0, 41, 249, 250, 251, 252, 255] {
        assert!(with_record(meta, 0, b"").is_err(), "type {meta}");
    }
}

#[test]
fn a_rewrite_asks_for_what_can_be_asked_for() {
    let rewrite = |qtype, qclass| {
        check(types::Decision::Rewrite(types::Rewrite {
            name: None,
            qtype,
            qclass,
            revert: true,
        }))
    };
    assert!(rewrite(Some(28), Some(1)).is_ok());
    assert!(rewrite(Some(255), Some(255)).is_ok());
    assert!(rewrite(Some(252), None).is_err());
    assert!(rewrite(Some(41), None).is_err());
    assert!(rewrite(None, Some(254)).is_err());
}

#[test]
fn an_alias_has_a_bounded_number_of_names() {
    let alias = |names| check(types::Decision::Alias(vec![b"\x01a\0".to_vec(); names]));
    assert!(alias(1).is_ok() && alias(33).is_ok());
    assert_eq!(alias(0), Err("an alias of 0 names".into()));
    assert_eq!(alias(34), Err("an alias of 34 names".into()));
}

#[test]
fn texts_are_bounded() {
    let refuse = |length| {
        let text = "t".repeat(length);
        let error = Some(types::ExtendedError { code: 17, text });
        check(types::Decision::Refuse(types::Refusal { rcode: 3, error }))
    };
    assert!(refuse(0).is_ok() && refuse(200).is_ok());
    assert_eq!(refuse(201), Err("an extended error's text of 201 bytes".into()));
    let drop = |length| check(types::Decision::Drop("r".repeat(length)));
    assert!(drop(0).is_ok() && drop(64).is_ok());
    assert_eq!(drop(65), Err("a reason to drop of 65 bytes".into()));
}

#[test]
fn a_route_leads_where_the_manifest_says() {
    let check = |route, decision| {
        let verdict = types::Verdict {
            query: 0,
            remember: 0,
            decision,
            edit: None,
            skip_response: false,
            delay: 0,
            route: Some(route),
        };
        let mut out = vec![Outcome::Passed];
        verdicts(vec![verdict].into(), true, &["eu".into()], &mut out).map_err(|garbage| garbage.0)
    };
    let to = |source| types::Route {
        source: Some(source),
        client_subnet: None,
    };
    let from = |high, low, length| types::Route {
        source: None,
        client_subnet: Some(types::Subnet { high, low, length }),
    };
    assert!(check(to(0), types::Decision::Pass).is_ok());
    assert_eq!(check(to(1), types::Decision::Pass), Err("source 1 of 1".into()));
    assert_eq!(
        check(to(0), types::Decision::Drop(String::new())),
        Err("a route for a query that does not go on".into())
    );
    assert!(check(from(0, 0xffff_c000_0200, 32), types::Decision::Pass).is_ok());
    assert_eq!(
        check(from(0, 0xffff_c000_0200, 33), types::Decision::Pass),
        Err("a client subnet of 33 bits".into())
    );
    assert!(check(from(1 << 61, 0, 128), types::Decision::Pass).is_ok());
    assert_eq!(
        check(from(1 << 61, 0, 129), types::Decision::Pass),
        Err("a client subnet of 129 bits".into())
    );
}

/// A filter's answer may grow with data from elsewhere, such as the addresses of a name: what exceeds a
/// message is left out.
#[test]
fn an_answer_that_no_message_holds_is_cut() {
    let record = types::ResourceRecord {
        name: b"\x04long\x04name\0".to_vec(),
        rtype: 28,
        class: 1,
        ttl: 60,
        rdata: vec![0; 16],
    };
    let answer = |answers: usize, additional: usize| types::Answer {
        rcode: 0,
        authoritative: true,
        answers: vec![record.clone(); answers],
        authority: Vec::new(),
        additional: vec![record.clone(); additional],
        error: None,
    };
    for (given, expected) in [
        (answer(2340, 0), (2340, 0, false)),
        (answer(20_000, 5), (2340, 0, true)),
        // RFC 2181 section 9.
        (answer(1, 20_000), (1, 2339, false)),
    ] {
        let Ok(Decision::Answer(answer)) = check(types::Decision::Answer(given)) else {
            panic!("{expected:?}");
        };
        let counts = (answer.answers.len(), answer.additional.len(), answer.is_cut);
        assert_eq!(counts, expected);
    }
}

/// Nor may a set be too large to be put in order.
#[test]
fn an_order_of_more_than_a_message_holds_is_cut() {
    let order = |count: u32| types::RecordEdit::Order(types::Order::Permute((0..count).collect()));
    let (mut room, mut permuted) = (Room::default(), PERMUTED);
    let mut length = |count| {
        let Ok(Some(RecordEdit::Order(Order::Permute(order)))) =
            check::record_edit(order(count), &mut room, &mut permuted)
        else {
            panic!("{count}");
        };
        order.len()
    };
    assert_eq!([length(4360), length(20_000), length(1)], [4360, 1597, 0]);
}
