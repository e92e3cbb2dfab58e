//! Calls into guests that violate or stretch the canonical ABI.

use dnsweir_os::clock::UnixTime;

use super::*;
use crate::filter::plain;
use crate::filter::sandbox::Sandbox;

/// A filter with a time limit that a busy machine does not exceed.
pub(super) fn patient(module: &[u8]) -> Arc<Filter> {
    let mut block = block(module.to_vec());
    block.limits.time = Duration::from_secs(10);
    Filter::load(&ENGINE, &block, &["example.".into()], None).unwrap()
}

fn start(filter: &Filter) -> Sandbox {
    match Sandbox::start(
        &filter.exports,
        &filter.context,
        &filter.setup,
        &Cancel::default(),
    ) {
        Ok((sandbox, _)) => sandbox,
        Err(_) => panic!("does not start"),
    }
}

/// A component may lift another function than the one with the canonical name: the lifted one runs, as in
/// `filter test`.
#[test]
fn a_component_with_two_faces_shows_the_one_it_lifts() {
    let decoyed = guests::puppet_with_another("dnsweir:filter/queries@0.1.0#on-querieZ");
    let mut component = plain::component(&decoyed).unwrap();
    // The first occurrence of the name is the module's own, the second selects what is lifted.
    let name = b"dnsweir:filter/queries@0.1.0#on-queries";
    let mut mentions = (0..component.len()).filter(|&at| component[at..].starts_with(name));
    let at = mentions.nth(1).unwrap();
    component[at + name.len() - 1] = b'Z';
    for (module, said) in [(decoyed, "-5"), (component, "!!")] {
        let filter = load(&ENGINE, module).unwrap();
        assert_eq!(ask(&mut filter.instantiate().unwrap(), &batch(&[1, 2])), said);
    }
}

#[test]
fn strings_may_be_utf16() {
    let filter = load(&ENGINE, guests::passer_in_utf16()).unwrap();
    assert_eq!(ask(&mut filter.instantiate().unwrap(), &batch(&[1])), "-");
}

/// `cabi_realloc` with results that no memory has room for, and one that calls the host.
const REALLOCS: [&str; 10] = [
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
];

/// Results of the query phase that are out of bounds or misaligned, and host calls with such arguments.
const QUERIES: [&str; 18] = [
    "(i32.const 65)",
    "(i32.const 131064)",
    "(i32.const 131068)",
    "(i32.const 131072)",
    "(i32.const -4)",
    "(i32.const 512)",
    "unreachable",
    "(call $fine) (i32.const 64)",
    "(call $log (i32.const 3) (i32.const 528) (i32.const 4)) (i32.const 64)",
    "(call $log (i32.const 4) (i32.const 528) (i32.const 4)) (i32.const 64)",
    "(call $log (i32.const -1) (i32.const 528) (i32.const 4)) (i32.const 64)",
    "(call $log (i32.const 0) (i32.const 512) (i32.const 2)) (i32.const 64)",
    "(call $print (i32.const 131070) (i32.const 2)) (i32.const 64)",
    "(call $print (i32.const 131070) (i32.const 3)) (i32.const 64)",
    "(call $print (i32.const -2) (i32.const 4)) (i32.const 64)",
    "(call $count (i32.const 528) (i32.const -1) (i32.const 0) (i32.const 0) (i64.const 1)) (i32.const 64)",
    "(call $count (i32.const 512) (i32.const 2) (i32.const 0) (i32.const 0) (i64.const 1)) (i32.const 64)",
    "(drop (memory.grow (i32.const 30))) (call $print (i32.const 0) (i32.const 1048577)) (i32.const 64)",
];

/// Post-return functions that call the host or trap.
const POST_RETURNS: [&str; 3] = [
    "(call $fine)",
    "unreachable",
    "(global.set $configured (i32.const 0))",
];

/// Each guest is hostile in one respect. Most of these calls fail; a failed instance is not entered again.
#[test]
fn hostile_guests_end_with_their_call() {
    let fine = ("(i32.const 1024)", "(i32.const 64)");
    let cases: Vec<(&str, &str, &str)> = (REALLOCS.iter().map(|realloc| (*realloc, fine.1, "")))
        .chain(QUERIES.iter().map(|queries| (fine.0, *queries, "")))
        .chain(POST_RETURNS.iter().map(|post| (fine.0, fine.1, *post)))
        .collect();
    let mut failures = 0;
    for (realloc, queries, post) in &cases {
        let filter = patient(&guests::hostile(realloc, queries, post, ""));
        let batch = batch(&[1, 28]);
        let mut sandbox = start(&filter);
        let [first, second] =
            [(); 2].map(|()| sandbox.queries(UnixTime::default(), batch.records(), batch.bytes()));
        match first {
            Ok(verdicts) => assert!(
                verdicts.0.is_empty() && second.is_ok(),
                "{realloc} {queries} {post}"
            ),
            Err(_) => {
                failures += 1;
                assert!(second.is_err(), "{realloc} {queries} {post}");
            }
        }
    }
    assert!(failures > cases.len() / 2, "{failures} of {}", cases.len());
}

#[test]
fn a_start_may_not_call_the_host_but_an_initialization_may() {
    let start_function = guests::hostile("(i32.const 1024)", "(i32.const 64)", "", "(start $fine)");
    assert!(matches!(load(&ENGINE, start_function), Err(LoadError::Failed(_))));
    let initialize = r#"(func (export "_initialize") (call $fine))"#;
    let filter = patient(&guests::hostile(
        "(i32.const 1024)",
        "(i32.const 64)",
        "",
        initialize,
    ));
    let count = || filter.counters().own.snapshot()[0].count;
    let before = count();
    start(&filter);
    assert_eq!(count(), before + 1);
}
