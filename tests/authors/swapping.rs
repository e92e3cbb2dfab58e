//! A new build replaces the old one between two batches, or not at all.

use std::fs;
use std::path::Path;

use super::{alone_with_cargo, cargo, said, sample, target};
use crate::harness::guests::guest;
use crate::harness::tools::Perf;
use crate::harness::{Proxy, Upstream, needs, until};

/// The guest `chain` with another number, which makes it another build.
pub fn build(number: u32) -> Vec<u8> {
    let mut module = fs::read(guest("chain")).expect("a module");
    let mark = b"build-00000000";
    let places: Vec<usize> = (0..module.len() - mark.len())
        .filter(|&at| module[at..].starts_with(mark))
        .collect();
    let [at] = places[..] else {
        panic!("the module has its number at {places:?}");
    };
    module[at..at + mark.len()].copy_from_slice(format!("build-{number:08}").as_bytes());
    module
}

fn install(path: &Path, module: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, module).expect("a module");
    fs::rename(&new, path).expect("a module in place");
}

/// Two filters of one module answer together: the first half of the chain renames the question to a name with
/// the number of its build, and the second half answers only its own number. A query handled by two builds
/// would reach the upstream, where no name exists.
#[test]
fn a_hundred_swaps_under_load_lose_nothing() {
    if !needs(&["dnsperf"]) {
        return;
    }
    let upstream = Upstream::zone(&["test. 300 SOA ns.test. root.test. 1 2 3 4 5"]);
    let place = tempfile::tempdir().expect("a folder");
    let module = place.path().join("chain.wasm");
    install(&module, &build(0));
    let filter = |role: &str| {
        let path = module.display();
        format!(
            "filter \"{role}\" {{ module \"{path}\"; on-error \"servfail\"; limits time=\"1s\"; config {{ {role} }} }}\n"
        )
    };
    let mut proxy = Proxy::start(&format!(
        "{}{}zone \".\" {{ use \"first\"; use \"last\"; forward \"{}\" }}",
        filter("first"),
        filter("last"),
        upstream.address
    ));
    let questions: String = (0..100).map(|number| format!("{number}.test A\n")).collect();
    let rate = 2_000;

    let load = Perf::start(proxy.address, &questions, rate);
    for number in 1..=100 {
        let generation = proxy.generation();
        install(&module, &build(number));
        until("the new build to be in force", || proxy.generation() > generation);
    }
    let load = load.stop();
    eprintln!("100 swaps at {rate} queries a second: {load:?}");
    assert_eq!((load.lost, load.noerror), (0, load.completed), "{load:?}");
    assert!(load.completed > 10_000, "{load:?}");

    let good = build(100);
    let whole = good.len();
    let load = Perf::start(proxy.address, &questions, rate);
    let generation = proxy.generation();
    for number in 1..=20 {
        // Truncated, not a module at all, or with its number in the middle of its code.
        let mut broken = good[..whole * number / 21].to_vec();
        match number % 3 {
            0 => broken = format!("error: could not compile `chain`, {number}").into_bytes(),
            1 => broken.resize(whole, number as u8),
            _ => {}
        }
        install(&module, &broken);
        proxy.await_metric("dnsweir_reloads_total", &[("result", "failed")], number as f64);
    }
    let load = load.stop();
    eprintln!("20 broken builds at {rate} queries a second: {load:?}");
    assert_eq!((load.lost, load.noerror), (0, load.completed), "{load:?}");
    assert_eq!(proxy.generation(), generation);
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
    assert!(
        upstream.everything().iter().all(|asked| !asked.is("A")),
        "a half-built chain asked the upstream"
    );
    assert!(proxy.process.running());
}

fn replace(path: &Path, with: &Path) {
    let new = path.with_extension("new");
    fs::copy(with, &new).expect("a copied module");
    fs::rename(&new, path).expect("a module in place");
}

#[test]
fn a_module_whose_test_cases_differ_does_not_get_in() {
    let (folder, module) = sample();
    let place = tempfile::tempdir().expect("a folder");
    let installed = place.path().join("f.wasm");
    replace(&installed, &module);
    let cases = place.path().join("f.test-cases.kdl");
    fs::copy(folder.join("sample/sample.test-cases.kdl"), &cases).expect("test cases");
    let text = format!(
        r#"filter "f" {{
               module "{}"
               config {{ answer "mine.example" "192.0.2.9" }}
           }}
           zone "." {{ use "f"; forward "127.0.0.1:9" }}"#,
        installed.display()
    );
    let proxy = Proxy::start(&text);
    assert_eq!(
        proxy.query("mine.example", "A").answers(),
        ["mine.example. A 192.0.2.9"]
    );
    let generation = proxy.generation();

    // Compiles, links, accepts every configuration, and answers one query differently.
    said(place.path(), &["filter", "new", "another"]);
    let source = place.path().join("another/src/lib.rs");
    let text = fs::read_to_string(&source).expect("the source");
    let changed = text.replace("Rcode::NXDOMAIN", "Rcode::REFUSED");
    assert_ne!(text, changed);
    fs::write(&source, changed).expect("the source");
    let _alone = alone_with_cargo();
    assert!(cargo(&place.path().join("another"), &["build"]).status.success());
    let another = target().join("wasm32-unknown-unknown/debug/another.wasm");
    replace(&installed, &another);
    let line = proxy.process.logged(" of 4 differs: ");
    assert!(line.contains("test case "), "{line}");
    proxy.await_metric("dnsweir_reloads_total", &[("result", "failed")], 1.0);
    let (_, status) = proxy.get("/status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let error = status["reloads"]["error"].as_str().expect("a reason");
    assert!(error.contains("test case "), "{error}");
    assert_eq!(status["filters"][0]["test_cases"], 4);
    assert_eq!(proxy.generation(), generation);
    assert_eq!(
        proxy.query("mine.example", "A").answers(),
        ["mine.example. A 192.0.2.9"]
    );

    // Without its test cases, the change goes undetected, and the new module is used.
    fs::remove_file(&cases).expect("no test cases");
    until("the new module to be in force", || {
        proxy.generation() > generation
    });
}
