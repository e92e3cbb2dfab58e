//! `dnsweir filter new`: the folder builds, its tests pass, and the proxy takes the module.

use std::fs;

use super::{alone_with_cargo, cargo, dnsweir, sample};
use crate::harness::Proxy;

#[test]
fn a_new_filter_answers() {
    let (_, module) = sample();
    let proxy = Proxy::start(&format!(
        r#"filter "new" {{
               module "{}"
               config {{ answer "hello.example" "192.0.2.7"; block "ads.example" }}
           }}
           zone "." {{ use "new"; forward "127.0.0.1:9" }}"#,
        module.display()
    ));
    let answer = proxy.query("hello.example", "A");
    assert_eq!(answer.answers(), ["hello.example. A 192.0.2.7"]);
    assert_eq!(proxy.query("x.ads.example", "A").rcode(), "NXDOMAIN");
    proxy.await_metric("dnsweir_filter_counter_total", &[("name", "blocked")], 1.0);
}

#[test]
fn its_own_tests_pass() {
    let (folder, _) = sample();
    let _alone = alone_with_cargo();
    let tested = cargo(&folder.join("sample"), &["test"]);
    let text = String::from_utf8_lossy(&tested.stdout);
    assert!(
        tested.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&tested.stderr)
    );
    assert!(text.contains("3 passed"), "{text}");
}

#[test]
fn nothing_is_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let there = folder.path().join("there");
    fs::create_dir(&there).expect("a folder");
    let output = dnsweir(folder.path(), &["filter", "new", "there"]);
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(fs::read_dir(&there).expect("a folder").count(), 0);
    for name in ["Loud", "self", "a b", "1st"] {
        let output = dnsweir(folder.path(), &["filter", "new", name]);
        assert_eq!(output.status.code(), Some(64), "{name}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}
