//! What is accepted as a filter and what is not, with the error message.

use std::sync::atomic::Ordering;

use wit_component::ComponentEncoder;

use crate::config::Place;

use super::*;

/// The message of a load that must fail.
fn refused(module: Vec<u8>) -> String {
    load(&ENGINE, module).expect_err("loads").to_string()
}

#[test]
fn components_are_as_good_as_modules() {
    let component = ComponentEncoder::default()
        .module(&guests::puppet())
        .unwrap()
        .encode()
        .unwrap();
    let mut instance = load(&ENGINE, component).unwrap().instantiate().unwrap();
    assert_eq!(ask(&mut instance, &batch(&[1, 2])), "-5");
}

#[test]
fn every_builtin_compiles() {
    for (name, code) in BUILTINS {
        let result = load(&ENGINE, code.to_vec());
        // Some reject the configuration of these tests, as they may.
        assert!(
            matches!(result, Ok(_) | Err(LoadError::Rejected(_))),
            "{name}: {result:?}"
        );
    }
}

#[test]
fn other_files_are_refused() {
    for file in [&b""[..], b"\0asm", b"\x7fELF\x02\x01\x01\0", b"#!/bin/sh\necho"] {
        assert!(refused(file.to_vec()).contains("neither"), "{file:?}");
    }
    assert!(refused(vec![0; MODULE_MAXIMUM + 1]).contains("67108865"));
    assert!(refused(b"\0asm\x01\0\0\0\x01\x7f".to_vec()).contains("not a dnsweir filter"));
    assert!(refused(b"\0asm\x0d\0\x01\0\x01\x7f".to_vec()).contains("compile"));
}

#[test]
fn a_module_without_the_interface_is_refused() {
    let plain = refused(wat::parse_str("(module)").unwrap());
    assert!(plain.contains("configure"), "{plain}");
}

/// Each trap copies the names of twenty functions; with names of 16 MiB that took half a second.
#[test]
fn a_name_longer_than_any_compilers_is_refused() {
    let number = |mut number: usize| {
        let mut octets = Vec::new();
        while number > 127 {
            octets.push(number as u8 | 128);
            number >>= 7;
        }
        octets.push(number as u8);
        octets
    };
    let framed = |id: u8, content: &[u8]| [&[id][..], &number(content.len()), content].concat();
    let named = |length: usize| {
        // Only function 0 has a name.
        let names = [&[1, 0][..], &number(length), "n".repeat(length).as_bytes()].concat();
        let section = [&[4][..], b"name", &framed(1, &names)].concat();
        [&guests::puppet()[..], &framed(0, &section)].concat()
    };
    assert!(load(&ENGINE, named(4096)).is_ok());
    let refused = refused(named(4097));
    assert!(
        refused.contains("a name of 4097 bytes; the maximum is 4096"),
        "{refused}"
    );
}

#[test]
fn foreign_imports_are_refused_by_name() {
    let error = refused(guests::importing("evil:net@1.0.0", "evil:net/sockets@1.0.0"));
    assert!(error.contains("evil:net/sockets@1.0.0"), "{error}");
}

#[test]
fn what_is_built_for_a_later_wasi_is_refused_before_it_traps() {
    let error = refused(guests::importing("wasi:net@0.3.0", "wasi:net/sockets@0.3.0"));
    assert!(
        error.contains("built for WASI 0.3.0") && error.contains("wasm32-wasip2"),
        "{error}"
    );
    let component = r#"(component (type (func async (result u32))) (instance $phases)
        (export "dnsweir:filter/configure@0.1.0" (instance $phases)))"#;
    let error = refused(wat::parse_str(component).unwrap());
    assert!(
        error.contains("WASI 0.3") && error.contains("wasm32-wasip2"),
        "{error}"
    );
}

#[test]
fn what_is_not_there_of_wasi_traps() {
    let error = refused(guests::importing("wasi:net@0.2.0", "wasi:net/sockets@0.2.0"));
    assert!(
        error.contains("wasi:net/sockets@0.2.0") && error.contains("open"),
        "{error}"
    );
}

#[test]
fn a_manifest_cannot_ask_for_what_is_not_exported() {
    let error = refused(guests::missing_phases());
    assert!(
        error.contains("responses, query-answers, response-answers, events"),
        "{error}"
    );
}

#[test]
fn a_manifest_with_a_bad_suffix_is_refused() {
    // One suffix, "..", written over the empty list.
    let configure = r#"(i32.store (i32.const 28) (i32.const 256)) (i32.store (i32.const 32) (i32.const 1))
        (i32.store (i32.const 256) (i32.const 264)) (i32.store (i32.const 260) (i32.const 2))
        (i32.store (i32.const 264) (i32.const 0x2e2e)) (i32.const 16)"#;
    let error = refused(guests::with_configure(configure));
    assert!(error.contains("\"..\""), "{error}");
}

#[test]
fn rejections_point_into_the_configuration() {
    let error = load(&ENGINE, guests::with_configure("(i32.const 128)")).unwrap_err();
    let LoadError::Rejected(errors) = error else {
        panic!("{error}")
    };
    let expected = ConfigError {
        node: Some(0),
        place: Place::Argument(1),
        message: "no\\u{1b}[2J".into(),
        help: "help".into(),
    };
    assert_eq!(errors, [expected]);
}

#[test]
fn rejections_point_at_what_exists() {
    // Node 0, argument 1 becomes argument 9, then node 9.
    for (at, node) in [(156, Some(0)), (148, None)] {
        let configure = format!("(i32.store (i32.const {at}) (i32.const 9)) (i32.const 128)");
        let error = load(&ENGINE, guests::with_configure(&configure)).unwrap_err();
        let LoadError::Rejected(errors) = error else {
            panic!("{error}")
        };
        assert_eq!((errors[0].node, &errors[0].place), (node, &Place::Node));
    }
}

#[test]
fn configuring_ends() {
    let error = load(
        &ENGINE,
        guests::with_configure("(loop $for_ever (br $for_ever)) (i32.const 16)"),
    )
    .unwrap_err();
    assert!(
        matches!(&error, LoadError::Failed(failure) if failure.reason == Reason::Time),
        "{error}"
    );
    let error = load(&ENGINE, guests::with_configure("unreachable")).unwrap_err();
    assert!(
        matches!(&error, LoadError::Failed(failure) if failure.reason == Reason::Trap),
        "{error}"
    );
}

#[test]
fn a_module_that_starts_larger_than_its_limit_is_refused() {
    let mut block = block(guests::puppet());
    block.limits.memory = 64 << 10;
    let error = Filter::load(&ENGINE, &block, &[], None).unwrap_err();
    assert!(
        matches!(&error, LoadError::Failed(failure) if failure.reason == Reason::Memory),
        "{error}"
    );
    assert!(error.to_string().contains("`limits memory=`"), "{error}");
}

#[test]
fn counters_can_be_carried_over() {
    let mut before: Option<Arc<Filter>> = None;
    for calls in 1..=2 {
        let filter = Filter::load(&ENGINE, &block(guests::puppet()), &[], before.as_deref()).unwrap();
        ask(&mut filter.instantiate().unwrap(), &batch(&[1]));
        assert_eq!(filter.counters().queries.calls.load(Ordering::Relaxed), calls);
        before = Some(filter);
    }
}
