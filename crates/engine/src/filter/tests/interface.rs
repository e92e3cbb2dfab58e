//! Tests `wit/` itself: everything in it is documented, and what is built against it matches it.

use wit_component::targets;
use wit_parser::{Docs, PackageId, Resolve, TypeDefKind};

use super::*;
use crate::filter::plain;

fn interface() -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit"))
        .unwrap();
    (resolve, package)
}

#[test]
fn every_item_is_documented() {
    let (resolve, _) = interface();
    let mut silent = Vec::new();
    let mut count = 0;
    let mut check = |what: String, docs: &Docs| {
        count += 1;
        if docs.contents.as_deref().unwrap_or_default().trim().is_empty() {
            silent.push(what);
        }
    };
    for (_, world) in &resolve.worlds {
        check(world.name.clone(), &world.docs);
    }
    for (_, interface) in &resolve.interfaces {
        let of = interface.name.clone().unwrap_or_default();
        check(of.clone(), &interface.docs);
        for (name, function) in &interface.functions {
            check(format!("{of}.{name}"), &function.docs);
        }
        for (name, &id) in &interface.types {
            let ty = &resolve.types[id];
            let item = |part: &str| format!("{of}.{name}.{part}");
            match &ty.kind {
                // A `use` of another interface's type of the same name.
                TypeDefKind::Type(_) => continue,
                TypeDefKind::Record(record) => {
                    record
                        .fields
                        .iter()
                        .for_each(|field| check(item(&field.name), &field.docs));
                }
                TypeDefKind::Variant(variant) => {
                    variant
                        .cases
                        .iter()
                        .for_each(|case| check(item(&case.name), &case.docs));
                }
                TypeDefKind::Enum(names) => {
                    names
                        .cases
                        .iter()
                        .for_each(|case| check(item(&case.name), &case.docs));
                }
                other => panic!("{of}.{name}: what is {other:?}?"),
            }
            check(format!("{of}.{name}"), &ty.docs);
        }
    }
    assert!(count > 100, "only {count} items");
    assert!(silent.is_empty(), "not explained: {silent:#?}");
}

#[test]
fn built_filters_have_the_interface() {
    let (resolve, package) = interface();
    let world = resolve.select_world(&[package], Some("filter")).unwrap();
    for (name, code) in BUILTINS {
        let component = plain::component(code).unwrap();
        targets(&resolve, world, &component).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
    let less = plain::component(&guests::missing_phases()).unwrap();
    assert!(
        targets(&resolve, world, &less).is_err(),
        "this one has but two phases"
    );
}
