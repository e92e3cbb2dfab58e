//! Verdicts that are lifted once equal those that the component API lifts one by one.

use proptest::collection::vec;
use proptest::prelude::*;
use wasmtime::Store;
use wasmtime::component::{Component, Func, Linker};

use super::*;
use crate::filter::bindings::dnsweir::filter::types;
use crate::filter::packed::Packed;
use crate::filter::plain;
use crate::filter::repeated::Verdicts;

type Takes<'a> = (u64, &'a [Packed<types::Query>], &'a [u8]);

/// The query phase of a guest that returns a batch's bytes as its verdicts.
fn echo() -> (Func, Store<()>) {
    let component = plain::component(&guests::echo()).unwrap();
    let component = Component::new(&ENGINE.wasm, component).unwrap();
    let mut store = Store::new(&ENGINE.wasm, ());
    store.set_epoch_deadline(u64::MAX / 2);
    let instance = Linker::new(&ENGINE.wasm)
        .instantiate(&mut store, &component)
        .unwrap();
    let mut index = None;
    for name in ["dnsweir:filter/queries@0.1.0", "on-queries"] {
        index = Some(
            instance
                .get_export_index(&mut store, index.as_ref(), name)
                .unwrap(),
        );
    }
    (instance.get_func(&mut store, index.unwrap()).unwrap(), store)
}

/// The bytes of a verdict without its index: zeros, which are a plain pass, with a few others among them.
fn octets() -> impl Strategy<Value = Vec<u8>> {
    vec((4..160usize, 0..5u8), 0..6).prop_map(|set| {
        let mut octets = vec![0; 160];
        for (at, octet) in set {
            octets[at] = octet;
        }
        octets
    })
}

proptest! {
    #[test]
    fn repeated_verdicts_are_those_of_the_component_api(
        kinds in vec(octets(), 3),
        said in vec((0..3usize, 0..8u8), 0..12),
    ) {
        let (on_queries, mut store) = echo();
        let said = said.into_iter().flat_map(|(kind, index)| {
            let mut octets = kinds[kind].clone();
            octets[0] = index;
            octets
        });
        let bytes: Vec<u8> = said.collect();
        let each = on_queries.typed::<Takes<'_>, (Vec<types::Verdict>,)>(&store).unwrap();
        let each = each.call(&mut store, (1, &[], &bytes));
        // A failed call ends its instance.
        let (on_queries, mut store) = echo();
        let once = on_queries.typed::<Takes<'_>, (Verdicts,)>(&store).unwrap();
        let once = once.call(&mut store, (1, &[], &bytes));
        prop_assert_eq!(each.is_err(), once.is_err());
        if let (Ok((each,)), Ok((once,))) = (each, once) {
            let mut all: Vec<types::Verdict> = Vec::new();
            for said in once.0 {
                let again = said.also.iter().map(|&query| types::Verdict { query, ..said.verdict.clone() });
                let again: Vec<_> = again.collect();
                all.push(said.verdict);
                all.extend(again);
            }
            prop_assert_eq!(format!("{each:?}"), format!("{all:?}"));
        }
    }
}

/// If all of a batch get one verdict, one is lifted.
#[test]
fn a_verdict_for_all_is_lifted_once() {
    let (on_queries, mut store) = echo();
    let bytes: Vec<u8> = (0..5)
        .flat_map(|index| [&[index][..], &[0; 159]].concat())
        .collect();
    let once = on_queries.typed::<Takes<'_>, (Verdicts,)>(&store).unwrap();
    let (verdicts,) = once.call(&mut store, (1, &[], &bytes)).unwrap();
    assert_eq!(verdicts.0.len(), 1);
    assert_eq!(verdicts.0[0].also, [1, 2, 3, 4]);
}
