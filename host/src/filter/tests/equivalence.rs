//! The core path and the component path end alike, whatever the guest and the host throw at each other.

use proptest::collection::vec;
use proptest::prelude::*;

use super::checks::{replacement, verdict};
use super::guests::PARROT_BYTES;
use super::*;
use crate::filter::bindings::dnsweir::filter::types;
use crate::filter::executor::{self, Executor, Lowered, StartError};

/// A filter called through the component API, and the same called through its core module.
pub(super) fn both(module: &[u8], config: Vec<ConfigNode>) -> [Arc<Filter>; 2] {
    let mut block = config::Filter {
        config,
        ..block(module.to_vec())
    };
    // A busy machine must not make a difference.
    block.limits.time = Duration::from_secs(10);
    let load = |engine: &Engine| Filter::load(engine, &block, &["example.".into()], Arc::default()).unwrap();
    let both = [load(&ENGINE.clone().by_component()), load(&ENGINE)];
    let core = both.each_ref().map(|filter| filter.code.has_core());
    assert_eq!(core, [false, true], "there is a core path");
    both
}

fn start(filter: &Filter) -> Executor {
    match Executor::start(&filter.code, &filter.context, &filter.setup, &Cancel::default()) {
        Ok((executor, _)) => executor,
        Err(_) => panic!("does not start"),
    }
}

/// A result in words: values as they are, of failures only the reason.
fn outcome<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(failure) => format!("{:?}", failure.reason),
    }
}

/// What a call does to either executor, each of which is replaced if that was its end.
fn compare(
    filters: &[Arc<Filter>; 2],
    executors: &mut [Executor; 2],
    mut call: impl FnMut(&mut Executor) -> Result<String, Failure>,
) -> [String; 2] {
    let mut outcomes = [String::new(), String::new()];
    for ((filter, executor), outcome) in filters.iter().zip(executors).zip(&mut outcomes) {
        *outcome = match call(executor) {
            Ok(value) => value,
            Err(failure) => {
                *executor = start(filter);
                format!("{:?}", failure.reason)
            }
        };
    }
    outcomes
}

#[test]
fn every_builtin_has_a_core_path() {
    for (name, code) in BUILTINS {
        let mut block = block(code.to_vec());
        block.config.clear();
        if let Ok(filter) = Filter::load(&ENGINE, &block, &[], Arc::default()) {
            assert!(filter.code.has_core(), "{name}");
        }
    }
}

#[test]
fn what_only_a_component_can_do_is_left_to_it() {
    let filter = load(&ENGINE, guests::passer_in_utf16()).unwrap();
    assert!(!filter.code.has_core());
}

/// A component may lift another function than the one whose name the core path would call: then what it lifts is what
/// runs, as in `filter test`.
#[test]
fn a_component_with_two_faces_shows_the_one_it_lifts() {
    let decoyed = guests::puppet_with_another("dnsweir:filter/queries@0.1.0#on-querieZ");
    let mut component = plain::component(&decoyed).unwrap();
    assert!(executor::exported(&component).is_some());
    // The first mention of the name is the module's own, the second says what is lifted.
    let name = b"dnsweir:filter/queries@0.1.0#on-queries";
    let mut mentions = (0..component.len()).filter(|&at| component[at..].starts_with(name));
    let at = mentions.nth(1).unwrap();
    component[at + name.len() - 1] = b'Z';
    assert!(executor::exported(&component).is_none());
    for (module, core, said) in [(decoyed, true, "-5"), (component, false, "!!")] {
        let filter = load(&ENGINE, module).unwrap();
        assert_eq!(filter.code.has_core(), core);
        assert_eq!(ask(&mut filter.instantiate().unwrap(), &batch(&[1, 2])), said);
    }
}

/// The canonical ABI has a second form of names, which a module may use beside the first.
#[test]
fn names_of_two_forms_are_left_to_the_component() {
    let module = guests::puppet_with_another("cm32p2|dnsweir:filter/queries@0.1|on-queries");
    if let Ok(component) = plain::component(&module) {
        assert!(executor::exported(&component).is_none());
    }
}

/// Each guest is hostile in one respect.
#[test]
fn hostile_guests_end_alike() {
    let fine = ["(i32.const 1024)", "(i32.const 64)", "", ""];
    let say = |how: &str| format!("{how} (i32.const 64)");
    let mut cases = Vec::new();
    for realloc in [
        "(i32.const 1025)",
        "(i32.const -8)",
        "(i32.const 131072)",
        "(i32.sub (i32.const 131072) (i32.and (i32.add (local.get $size) (i32.const 7)) (i32.const -8)))",
        "(i32.sub (i32.const 131064) (local.get $size))",
        "(i32.sub (i32.const 131080) (local.get $size))",
        "unreachable",
        "(call $fine) (i32.const 1024)",
        "(drop (memory.grow (i32.const 1))) (i32.const 131072)",
        "(drop (memory.grow (i32.const 1000))) unreachable",
    ] {
        cases.push([realloc, fine[1], fine[2], fine[3]].map(String::from));
    }
    for queries in [
        fine[1],
        "(i32.const 65)",
        "(i32.const 131064)",
        "(i32.const 131068)",
        "(i32.const 131072)",
        "(i32.const -4)",
        "(i32.const 512)",
        "unreachable",
        &say("(call $fine)"),
        &say("(call $log (i32.const 3) (i32.const 528) (i32.const 4))"),
        &say("(call $log (i32.const 4) (i32.const 528) (i32.const 4))"),
        &say("(call $log (i32.const -1) (i32.const 528) (i32.const 4))"),
        &say("(call $log (i32.const 0) (i32.const 512) (i32.const 2))"),
        &say("(call $print (i32.const 131070) (i32.const 2))"),
        &say("(call $print (i32.const 131070) (i32.const 3))"),
        &say("(call $print (i32.const -2) (i32.const 4))"),
        &say("(call $count (i32.const 528) (i32.const -1) (i64.const 1))"),
        &say("(call $count (i32.const 512) (i32.const 2) (i64.const 1))"),
        &say("(drop (memory.grow (i32.const 30))) (call $print (i32.const 0) (i32.const 1048577))"),
    ] {
        cases.push([fine[0], queries, fine[2], fine[3]].map(String::from));
    }
    for post in [
        "(call $fine)",
        "unreachable",
        "(global.set $configured (i32.const 0))",
    ] {
        cases.push([fine[0], fine[1], post, fine[3]].map(String::from));
    }
    let mut failures = 0;
    for [realloc, queries, post, more] in &cases {
        let filters = both(&guests::hostile(realloc, queries, post, more), Vec::new());
        let batch = batch(&[1, 28]);
        let outcomes = filters.each_ref().map(|filter| {
            let mut executor = start(filter);
            let calls = [(); 2].map(|()| outcome(executor.queries(0, batch.records(), batch.bytes())));
            (calls, filter.counters().own.snapshot())
        });
        assert_eq!(outcomes[0], outcomes[1], "{realloc} {queries} {post}");
        let [first, second] = &outcomes[0].0;
        if first != "[]" {
            failures += 1;
            assert_ne!(
                second, "[]",
                "a guest that has failed is not entered again: {realloc} {queries} {post}"
            );
        }
    }
    assert!(failures > cases.len() / 2, "{failures} of {}", cases.len());
}

#[test]
fn a_start_may_not_call_the_host_but_an_initialization_may() {
    let start_function = guests::hostile("(i32.const 1024)", "(i32.const 64)", "", "(start $fine)");
    assert!(matches!(load(&ENGINE, start_function), Err(LoadError::Failed(_))));
    let initialize = r#"(func (export "_initialize") (call $fine))"#;
    for filter in both(
        &guests::hostile("(i32.const 1024)", "(i32.const 64)", "", initialize),
        Vec::new(),
    ) {
        let count = || filter.counters().own.snapshot()[0].1;
        let before = count();
        start(&filter);
        assert_eq!(count(), before + 1);
    }
}

fn any_query() -> impl Strategy<Value = types::Query> {
    let transport = prop_oneof![
        Just(Transport::Udp),
        Just(Transport::Tcp),
        Just(Transport::Internal)
    ];
    let sixteens = any::<[u16; 8]>();
    (
        any::<[u64; 2]>(),
        any::<u32>(),
        sixteens,
        any::<u16>(),
        transport,
        any::<bool>(),
    )
        .prop_map(
            |([client_high, client_low], name_start, sixteens, zone, transport, edns)| {
                let [
                    name_length,
                    qtype,
                    qclass,
                    header,
                    udp_size,
                    edns_flags,
                    client_port,
                    _,
                ] = sixteens;
                types::Query {
                    client_high,
                    client_low,
                    name_start,
                    name_length,
                    qtype,
                    qclass,
                    header,
                    udp_size,
                    edns_flags,
                    client_port,
                    zone,
                    transport,
                    edns,
                }
            },
        )
}

fn any_source() -> impl Strategy<Value = Source> {
    prop_oneof![
        Just(Source::Upstream),
        Just(Source::Cache),
        Just(Source::Stale),
        Just(Source::Filter),
        Just(Source::Local)
    ]
}

fn any_response() -> impl Strategy<Value = types::Response> {
    (any_query(), any::<[u16; 2]>(), any_source(), any::<[u32; 3]>()).prop_map(
        |(query, [rcode, answer_count], source, [ttl, message_start, message_length])| types::Response {
            query,
            rcode,
            source,
            answer_count,
            ttl,
            message_start,
            message_length,
        },
    )
}

fn any_event() -> impl Strategy<Value = types::Event> {
    (
        any_query(),
        any::<u64>(),
        any::<[u32; 2]>(),
        any::<[u16; 4]>(),
        any::<bool>(),
        any_source(),
    )
        .prop_map(
            |(query, time, [duration, response_size], sixteens, has_answers, source)| {
                let [id, query_size, rcode, response_header] = sixteens;
                types::Event {
                    query,
                    time,
                    duration,
                    id,
                    query_size,
                    response_size,
                    rcode,
                    response_header,
                    has_answers,
                    source,
                }
            },
        )
}

static NODECACHES: LazyLock<[Arc<Filter>; 2]> = LazyLock::new(|| {
    let mut config = block(Vec::new()).config;
    config[0].name = "no-cache".into();
    config[0].arguments = vec![ConfigValue::Text("example".into())];
    let (_, nodecache) = BUILTINS.iter().find(|(name, _)| *name == "nodecache").unwrap();
    both(nodecache, config)
});
static SUMMERS: LazyLock<[Arc<Filter>; 2]> = LazyLock::new(|| both(&guests::summer(), Vec::new()));
static PARROTS: LazyLock<[Arc<Filter>; 2]> = LazyLock::new(|| both(&guests::parrot(), Vec::new()));
static PUPPETS: LazyLock<[Arc<Filter>; 2]> = LazyLock::new(|| both(&guests::puppet(), Vec::new()));

fn any_value() -> impl Strategy<Value = types::Value> {
    prop_oneof![
        Just(types::Value::Null),
        any::<bool>().prop_map(types::Value::Boolean),
        any::<i64>().prop_map(types::Value::Integer),
        any::<f64>().prop_map(types::Value::Decimal),
        ".*".prop_map(types::Value::Text),
        "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}".prop_map(types::Value::Text),
    ]
}

fn any_node() -> impl Strategy<Value = types::Node> {
    let name = prop_oneof!["no-cache|cache|ttl|stale", ".*"];
    let property = (prop_oneof!["min|max|namespace|match", ".*"], any_value());
    let parent = prop::option::weighted(0.2, 0u32..4);
    (name, vec(any_value(), 0..4), vec(property, 0..3), parent).prop_map(
        |(name, arguments, properties, parent)| types::Node {
            name,
            arguments,
            properties,
            parent,
        },
    )
}

/// Octets written over the guest's answer, and by how much its address is off.
fn damage() -> impl Strategy<Value = (Vec<(prop::sample::Index, u8)>, u32)> {
    let octet = prop_oneof![
        Just(0),
        Just(1),
        Just(2),
        Just(6),
        Just(0x7f),
        Just(0xff),
        any::<u8>()
    ];
    let shift = prop_oneof![12 => Just(0), 1 => 0u32..9, 1 => any::<u32>()];
    (vec((any::<prop::sample::Index>(), octet), 0..6), shift)
}

/// Has both parrots return the same octets, and wants the same verdicts.
fn parroted<V: std::fmt::Debug>(
    returned: Lowered,
    (octets, shift): (Vec<(prop::sample::Index, u8)>, u32),
    call: impl Fn(&mut Executor, u64, &[u8]) -> Result<Vec<V>, Failure>,
) -> [String; 2] {
    let Lowered {
        mut bytes, result, ..
    } = returned;
    for (index, octet) in octets {
        let index = index.index(bytes.len());
        bytes[index] = octet;
    }
    let at = u64::from(result.wrapping_add(shift));
    let mut executors = PARROTS.each_ref().map(|filter| start(filter));
    compare(&PARROTS, &mut executors, |executor| {
        call(executor, at, &bytes).map(|verdicts| format!("{verdicts:?}"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 32 } else { 256 }))]

    #[test]
    fn records_arrive_alike(
        queries in vec(any_query(), 0..5),
        responses in vec(any_response(), 0..5),
        events in vec(any_event(), 0..5),
        bytes in vec(any::<u8>(), 0..100),
        now in any::<u64>(),
    ) {
        let sums = SUMMERS.each_ref().map(|filter| {
            let mut executor = start(filter);
            let mut sums = Vec::new();
            let mut sum = || sums.push(filter.counters().own.snapshot());
            executor.queries(now, &queries, &bytes).unwrap();
            sum();
            executor.responses(now, &responses, &bytes).unwrap();
            sum();
            executor.events(&events, &bytes).unwrap();
            sum();
            sums
        });
        prop_assert_eq!(&sums[0], &sums[1]);
    }

    /// An ordinary filter reads a configuration and says what is wrong with it, or what it will do.
    #[test]
    fn configurations_arrive_alike(
        name in ".*",
        config in vec(any_node(), 0..4),
        zones in vec("[a-z]{1,5}\\.", 0..3),
    ) {
        let setup = types::Setup { name, config, zones };
        let started = NODECACHES.each_ref().map(|filter| {
            match Executor::start(&filter.code, &filter.context, &setup, &Cancel::default()) {
                Ok((_, manifest)) => format!("{manifest:?}"),
                Err(StartError::Rejected(errors)) => format!("{errors:?}"),
                Err(StartError::Failed(failure)) => format!("{:?}", failure.reason),
            }
        });
        prop_assert_eq!(&started[0], &started[1]);
    }

    #[test]
    fn verdicts_leave_alike(given in vec(verdict(), 0..4), damage in damage()) {
        let batch = batch(&[1]);
        let outcomes = parroted(Lowered::new(PARROT_BYTES, &given), damage, |executor, at, bytes| {
            executor.queries(at, batch.records(), bytes)
        });
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }

    #[test]
    fn verdicts_on_responses_leave_alike(given in vec(replacement(), 0..4), damage in damage()) {
        let batch = [response(1, 0)];
        let outcomes = parroted(Lowered::new(PARROT_BYTES, &given), damage, |executor, at, bytes| {
            executor.responses(at, &batch, bytes)
        });
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }

    #[test]
    fn whole_batches_end_alike(batches in vec(vec((0u16..14, 0usize..3), 0..8), 1..6)) {
        let names = [&b"\0"[..], b"\x01a\0", b"\x03www\x01b\0"];
        let mut executors = PUPPETS.each_ref().map(|filter| start(filter));
        for items in batches {
            let mut batch = Batch::default();
            // Type 4 would run for ten seconds.
            for (qtype, name) in items.into_iter().filter(|(qtype, _)| *qtype != 4) {
                batch.push_query(query(qtype), names[name], 0);
            }
            let outcomes = compare(&PUPPETS, &mut executors, |executor| {
                let verdicts = executor.queries(1, batch.records(), batch.bytes())?;
                Ok(format!("{verdicts:?}"))
            });
            prop_assert_eq!(&outcomes[0], &outcomes[1]);
        }
    }
}

/// Without damage, what was encoded is what arrives: the comparison above does not compare failures only.
#[test]
fn a_parroted_verdict_arrives() {
    let given = vec![types::Verdict {
        query: 7,
        remember: 8,
        decision: types::Decision::Alias(vec![b"\x01a\0".to_vec(), b"\0".to_vec()]),
        edit: Some(types::ResponseEdit {
            rcodes: vec![(3, 0), (2, 5)],
            ttl_minimum: 1,
            ttl_maximum: 2,
            store: true,
            stale: false,
        }),
        skip_response: true,
    }];
    let batch = batch(&[1]);
    let outcomes = parroted(
        Lowered::new(PARROT_BYTES, &given),
        (Vec::new(), 0),
        |executor, at, bytes| executor.queries(at, batch.records(), bytes),
    );
    assert_eq!(outcomes, [format!("{given:?}"), format!("{given:?}")]);
}
