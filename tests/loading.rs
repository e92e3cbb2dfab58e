//! Filters that are hostile before their first query: they compile endlessly, need a gigabyte, or start
//! slowly. Loading happens in the background, within limits, and ends when its result is no longer needed.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Output;

use crate::harness::client::ask_from;
use crate::harness::{Message, Proxy, Upstream, eventually, forward_once, proxy, until};

/// A plain module with the interface of a filter that passes all queries. `configure` and `queries` are
/// instructions to run first in each, `more` are further fields.
fn filter(configure: &str, queries: &str, more: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
  (memory (export "memory") 1)
  (data (i32.const 36) "\01\00\00\00")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (local $i i32)
    {configure}
    (i32.const 16))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries")
    (param $now i64) (param $batch i32) (param $length i32) (param $bytes i32) (param $size i32) (result i32)
    {queries}
    (i32.const 64))
  {more})"#
    );
    wat::parse_str(text).expect("a module")
}

/// About ten kilobytes in which each of many blocks passes on a thousand values: a million values, and
/// minutes, for an optimizing compiler.
fn compile_bomb() -> Vec<u8> {
    let values = "i32 ".repeat(1000);
    let gets: String = (0..1000).map(|index| format!("local.get {index} ")).collect();
    let blocks = "block (type $t) i32.const 0 br_if 0 end ".repeat(1000);
    filter(
        "",
        "",
        &format!("(type $t (func (param {values}) (result {values}))) (func (type $t) {gets} {blocks})"),
    )
}

/// A folder with a module, and a configuration that uses it beside a calm zone.
struct Setup {
    folder: tempfile::TempDir,
}

impl Setup {
    fn new(module: &[u8]) -> Setup {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("hostile.wasm"), module).expect("a module");
        Setup { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A configuration with the hostile filter.
    fn text(&self, options: &str) -> String {
        let module = self.path("hostile.wasm");
        format!(
            "filter \"hostile\" {{\n    module \"{}\"\n    {options}\n}}\n\
             zone \"hostile.test\" {{ use \"hostile\"; use \"table\" }}\n{CALM}",
            module.display()
        )
    }

    /// Starts `run` with this text, and with an empty cache of compiled modules.
    fn launch(&self, text: &str) -> Proxy {
        let cache = self.path("compiled");
        Proxy::launch(text, &["--compiled-cache", &cache.display().to_string()])
    }

    /// The output of `check` for the configuration with the hostile filter.
    fn check(&self, options: &str) -> (Output, String) {
        let file = self.path("dnsweir.kdl");
        let text = format!("listen \"127.0.0.1\"\n{}", self.text(options));
        fs::write(&file, text).expect("a configuration file");
        let output = proxy::check(&file);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    }
}

/// A filter that answers, and a zone without the hostile one.
const CALM: &str = "filter \"table\" { module \"builtin:hosts\"; limits time=\"1s\"\n\
     config { host \"calm.test\" \"192.0.2.7\"; host \"a.hostile.test\" \"192.0.2.8\" } }\n\
     zone \"calm.test\" { use \"table\" }\n";

/// More time than any test takes, and enough memory.
const UNLIMITED: &str = "limits load-time=\"1h\" load-memory=\"4GiB\"";

/// Whether this process has a compiling child.
fn compiles(parent: u32) -> bool {
    let wanted = format!("--parent={parent}");
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    entries.into_iter().any(|entry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        words
            .split(|octet| *octet == 0)
            .any(|word| word == wanted.as_bytes())
    })
}

fn calm(proxy: &Proxy) {
    assert_eq!(
        proxy.query("calm.test", "A").answers(),
        ["calm.test. A 192.0.2.7"]
    );
}

#[test]
fn compiling_has_a_limit_of_time() {
    let (output, said) = Setup::new(&compile_bomb()).check("limits load-time=\"1s\" load-memory=\"4GiB\"");
    assert_eq!(output.status.code(), Some(64), "{said}");
    // On a slow machine, the wall-clock limit comes first.
    assert!(said.contains("`limits load-time=`"), "{said}");
    assert!(said.contains("dnsweir.kdl:3:"), "{said}");
}

#[test]
fn compiling_has_a_limit_of_memory() {
    let (output, said) = Setup::new(&compile_bomb()).check("limits load-time=\"1h\" load-memory=\"48MiB\"");
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("more than 48MiB of memory"), "{said}");
    assert!(said.contains("`limits load-memory=`"), "{said}");
}

/// The built-in filters need less than the smallest configurable limits.
#[test]
fn ordinary_filters_stay_far_below_the_limits() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let limits = "limits load-memory=\"32MiB\"";
    let text = format!(
        "listen \"127.0.0.1\"\n\
         filter \"a\" {{ module \"builtin:hosts\"; {limits}; config {{ host \"a.test\" \"192.0.2.7\" }} }}\n\
         filter \"b\" {{ module \"builtin:log\"; {limits} }}\n\
         filter \"c\" {{ module \"builtin:nodecache\"; {limits}; config {{ no-cache \"a.test\" }} }}\n\
         zone \".\" {{ use \"a\"; use \"b\"; use \"c\"; forward \"192.0.2.1\" }}\n"
    );
    fs::write(&file, text).expect("a configuration file");
    let output = proxy::check(&file);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Queries are answered while a reload compiles, and SIGTERM does not wait for it.
#[test]
fn sigterm_ends_a_reload_that_compiles() {
    let setup = Setup::new(&compile_bomb());
    let mut proxy = setup.launch(CALM);
    proxy.await_ready();
    proxy.rewrite(&setup.text(UNLIMITED));
    proxy.process.signal("HUP");
    until("the bomb to be compiled", || compiles(proxy.process.id()));
    for _ in 0..10 {
        calm(&proxy);
    }
    assert_eq!(proxy.generation(), 1.0);
    proxy.process.signal("TERM");
    assert!(proxy.process.ended().success(), "{:#?}", proxy.process.stderr());
    until("the compiler to be gone", || !compiles(proxy.process.id()));
}

/// Nor does it wait for the initial load.
#[test]
fn sigterm_ends_a_start_that_compiles() {
    let setup = Setup::new(&compile_bomb());
    let mut proxy = setup.launch(&setup.text(UNLIMITED));
    until("the bomb to be compiled", || compiles(proxy.process.id()));
    proxy.process.signal("TERM");
    assert!(proxy.process.ended().success(), "{:#?}", proxy.process.stderr());
    until("the compiler to be gone", || !compiles(proxy.process.id()));
}

/// The compiler ends with the proxy, however that ends.
#[test]
fn a_killed_proxy_leaves_no_compiler_behind() {
    let setup = Setup::new(&compile_bomb());
    let mut proxy = setup.launch(&setup.text(UNLIMITED));
    until("the bomb to be compiled", || compiles(proxy.process.id()));
    proxy.process.signal("KILL");
    proxy.process.ended();
    until("the compiler to be gone", || !compiles(proxy.process.id()));
}

/// A bomb in a new configuration leaves the old one in effect, and is reported.
#[test]
fn a_bomb_changes_nothing() {
    let setup = Setup::new(&compile_bomb());
    let mut proxy = setup.launch(CALM);
    proxy.await_ready();
    proxy.rewrite(&setup.text("limits load-time=\"1s\""));
    proxy.process.signal("HUP");
    proxy.process.logged("limits load-");
    proxy.await_metric("dnsweir_reloads_total", &[("result", "failed")], 1.0);
    assert_eq!(proxy.generation(), 1.0);
    calm(&proxy);
}

/// A newer configuration does not wait for the bomb to finish compiling.
#[test]
fn a_newer_configuration_does_not_wait_for_a_bomb() {
    let setup = Setup::new(&compile_bomb());
    let mut proxy = setup.launch(CALM);
    proxy.await_ready();
    proxy.rewrite(&setup.text(UNLIMITED));
    proxy.process.signal("HUP");
    until("the bomb to be compiled", || compiles(proxy.process.id()));
    proxy.reload(&CALM.replace("192.0.2.7", "192.0.2.9"));
    assert_eq!(
        proxy.query("calm.test", "A").answers(),
        ["calm.test. A 192.0.2.9"]
    );
    until("the compiler to be gone", || !compiles(proxy.process.id()));
}

/// A number in LEB128.
fn leb(mut number: usize) -> Vec<u8> {
    let mut octets = Vec::new();
    while number >= 0x80 {
        octets.push(number as u8 | 0x80);
        number >>= 7;
    }
    octets.push(number as u8);
    octets
}

/// A section: its ID, its size, and its content.
fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(content.len()), content].concat()
}

/// Sixty instances of a module with a million globals take a gigabyte without any linear memory.
#[test]
fn globals_count_as_memory() {
    // i32, immutable, `i32.const 0`, `end`.
    let globals = [leb(1_000_000), [0x7f, 0, 0x41, 0, 0x0b].repeat(1_000_000)].concat();
    let module = [&b"\0asm\x01\0\0\0"[..], &section(6, &globals)].concat();
    let instances = [leb(60), [0, 0, 0].repeat(60)].concat();
    let component = [
        &b"\0asm\x0d\0\x01\0"[..],
        &section(1, &module),
        &section(2, &instances),
    ]
    .concat();
    let (output, said) = Setup::new(&component).check("limits memory=\"1MiB\"");
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("60000000 globals"), "{said}");
    assert!(said.contains("`limits memory=`"), "{said}");
}

/// A filter that traps and restarts slowly does not block its worker: until it is back, `on-error` decides.
#[test]
fn a_slow_start_is_nobody_elses() {
    let spin = "(loop $again (br_if $again (i32.lt_u \
        (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 50000000))))";
    // Traps if the first byte of the name, a length, is that of `trap`.
    let trap = "(if (i32.eq (i32.load8_u (local.get $bytes)) (i32.const 4)) (then unreachable))";
    let setup = Setup::new(&filter(spin, trap, ""));
    let mut proxy = setup.launch(&format!("workers 1\n{}", setup.text("on-error \"refuse\"")));
    proxy.await_ready();
    let label = ("filter", "hostile");
    assert_eq!(proxy.query("a.hostile.test", "A").rcode(), "NOERROR");
    // The ready instances are soon used up. Names and clients all differ, so that none is blamed.
    let mut asked = 0;
    until("a query to come while the filter starts", || {
        let query = Message::query(&format!("{asked:04}.hostile.test"), "A");
        let client = IpAddr::from([127, 0, 1, asked]);
        assert_eq!(ask_from(client, proxy.address, &query).rcode(), "REFUSED");
        asked += 1;
        calm(&proxy);
        let starting = [label, ("reason", "starting")];
        proxy.metrics().sum("dnsweir_filter_uncalled_total", &starting) > 0.0
    });
    assert!(proxy.metrics().sum("dnsweir_filter_restarts_total", &[label]) >= 1.0);
    until("the filter to be there again", || {
        proxy.query("a.hostile.test", "A").rcode() == "NOERROR"
    });
}

/// An endless `configure` is a mistake in the configuration, not a hang.
#[test]
fn configuring_has_a_limit() {
    let setup = Setup::new(&filter("(loop $again (br $again))", "", ""));
    let (output, said) = setup.check("");
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("being configured"), "{said}");
}

/// All test cases share one limit, and end at the first difference.
#[test]
fn test_cases_have_one_limit() {
    let spin = "(loop $again (br $again))";
    let setup = Setup::new(&filter("", spin, ""));
    let mut cases = String::new();
    for number in 0..1000 {
        cases += &format!("query \"a{number}.test\" \"A\" {{ pass }}\n");
    }
    fs::write(setup.path("hostile.test-cases.kdl"), cases).expect("test cases");
    let (output, said) = setup.check("limits load-time=\"1s\"");
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("test case 1 of 1000"), "{said}");
}

/// A mistake in a file of test cases is reported with its line, at the module in the configuration.
#[test]
fn test_cases_that_are_not_valid_are_told() {
    let setup = Setup::new(&filter("", "", ""));
    let cases = "query \"a.test\" \"A\" { pass }\nquery \"a.test\" { pass }\n";
    fs::write(setup.path("hostile.test-cases.kdl"), cases).expect("test cases");
    let (output, said) = setup.check("");
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("hostile.test-cases.kdl are not valid"), "{said}");
    assert!(said.contains("line 2: `query` needs a value"), "{said}");
    assert!(said.contains("dnsweir.kdl:3:"), "{said}");
}

/// Otherwise, a supervisor would restart the process after longer and longer pauses.
#[test]
fn a_start_that_may_wait_begins_when_the_configuration_is_right() {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let right = format!("zone \".\" {{ cache; {} }}", forward_once(upstream.address));
    for (wrong, named) in [
        ("zone \".\" { cache; forwrad \"192.0.2.1\" }", "forwrad"),
        // Not KDL at all, but the line of `admin` can still be read.
        ("zone \".\" { cache", "dnsweir.kdl"),
        (
            "filter \"f\" { module \"builtin:hosts\"; config { host } }\nzone \".\" { use \"f\"; forward \"192.0.2.1\" }",
            "host",
        ),
    ] {
        let mut proxy = Proxy::launch(wrong, &["--wait"]);
        let said = eventually("the reason", || {
            let (status, said) = proxy::try_get(proxy.admin, "/ready")?;
            said.starts_with("waiting for a valid configuration")
                .then_some((status, said))
        });
        assert_eq!(said.0, 503);
        assert!(said.1.contains(named), "{}", said.1);
        assert_eq!(
            proxy::try_get(proxy.admin, "/health").map(|(status, _)| status),
            Some(200)
        );
        proxy
            .process
            .logged("nothing is served until the configuration is valid");
        assert!(std::net::UdpSocket::bind(proxy.address).is_ok(), "nobody listens");
        proxy.rewrite(&right);
        proxy.await_ready();
        assert_eq!(
            proxy.query("www.example", "A").answers(),
            ["www.example. A 192.0.2.1"]
        );
    }
}

#[test]
fn a_start_that_waits_ends_when_it_is_told_to() {
    let mut proxy = Proxy::launch("nonsense", &["--wait"]);
    proxy
        .process
        .logged("nothing is served until the configuration is valid");
    proxy.process.signal("TERM");
    assert!(proxy.process.ended().success());
}

/// The correction may be in any file, also where only a filter finds the mistake.
#[test]
fn a_start_that_waits_takes_a_correction_of_any_file() {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("filter.kdl");
    let write = |config: &str| {
        let text = format!("filter \"f\" {{ module \"builtin:hosts\"; config {{ {config} }} }}");
        fs::write(&file, text).expect("a file");
    };
    write("host");
    let zone = format!("zone \".\" {{ use \"f\"; {} }}", forward_once(upstream.address));
    let mut waiting = Proxy::launch(&format!("include {file:?}\n{zone}"), &["--wait"]);
    until("the mistake to be reported", || {
        proxy::try_get(waiting.admin, "/ready").is_some_and(|(_, said)| said.starts_with("waiting"))
    });
    write("host \"own.test\" \"192.0.2.7\"");
    waiting.await_ready();
    assert_eq!(
        waiting.query("own.test", "A").answers(),
        ["own.test. A 192.0.2.7"]
    );
}
