//! What no guest can do, however it is built: `docs/trust.md` names these tests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::calls::patient;
use super::*;
use crate::filter::bindings::dnsweir::filter::types::ResourceRecord;
use crate::filter::time_limit::{PATIENCE, thread_clock};

/// A guest whose query phase is this expression, returning no verdicts.
fn doing(queries: &str, more: &str) -> Vec<u8> {
    let queries = format!("{queries} (i32.const 64)");
    guests::hostile("(i32.const 1024)", &queries, "", more)
}

/// Calls a guest once. Returns how often it failed, and the last reason.
#[track_caller]
fn failures(module: &[u8]) -> Vec<(String, u64)> {
    let filter = patient(module);
    let mut instance = filter.instantiate().unwrap();
    let said = ask(&mut instance, &batch(&[1]));
    let traps = &filter.counters().traps;
    let counts = [
        ("trap", &traps.trap),
        ("time", &traps.time),
        ("memory", &traps.memory),
        ("garbage", &traps.garbage),
    ]
    .map(|(reason, count)| (reason.to_owned(), count.load(Ordering::Relaxed)));
    let counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(said == "!", !counts.is_empty(), "{said} {counts:?}");
    counts
}

fn once(reason: &str) -> Vec<(String, u64)> {
    vec![(reason.to_owned(), 1)]
}

#[test]
fn recursion_without_end_is_a_trap() {
    let deep = "(func $deep (call $deep) (call $fine))";
    assert_eq!(failures(&doing("(call $deep)", deep)), once("trap"));
}

/// An engine whose epoch races while this lives, as if the worker's thread waited most of the time.
struct Racing {
    engine: Engine,
    done: Arc<AtomicBool>,
}

impl Racing {
    fn start() -> Racing {
        let engine = Engine::printing_to(io::sink()).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        std::thread::spawn({
            let (wasm, done) = (engine.wasm.clone(), Arc::clone(&done));
            move || {
                while !done.load(Ordering::Relaxed) {
                    // Farther than any deadline here.
                    (0..2000).for_each(|_| wasm.increment_epoch());
                    std::thread::yield_now();
                }
            }
        });
        Racing { engine, done }
    }

    fn instance(&self, module: Vec<u8>, limit: Duration) -> Instance {
        let mut block = block(module);
        block.limits.time = limit;
        let zones = ["example.".into()];
        let filter = Filter::load(&self.engine, &block, &zones, None).unwrap();
        filter.instantiate().unwrap()
    }
}

impl Drop for Racing {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_call_has_its_time_to_run_and_not_to_wait() {
    // A millisecond or more on any machine; the epoch passes its deadlines immediately.
    let counting = doing(
        "(loop $on (br_if $on (i32.ne (i32.const 1000000)
           (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))))",
        "(global $n (mut i32) (i32.const 0))",
    );
    let racing = Racing::start();
    let mut instance = racing.instance(counting, Duration::from_secs(1));
    assert_eq!(ask(&mut instance, &batch(&[1])), "-");
    // But one that runs for ever ends, after at least half of its limit, or when patience runs out because
    // other threads have the processor.
    let limit = Duration::from_millis(50);
    let mut instance = racing.instance(guests::puppet(), limit);
    let (begun, begin) = (Instant::now(), thread_clock());
    assert_eq!(ask(&mut instance, &batch(&[4])), "!");
    assert!(thread_clock() - begin >= limit / 2 || begun.elapsed() >= limit * PATIENCE);
    assert_eq!(instance.filter().counters().traps.time.load(Ordering::Relaxed), 1);
}

#[test]
fn a_table_has_a_largest_size() {
    let grow = |by: u32| {
        let fails = format!("(i32.eq (table.grow (ref.null func) (i32.const {by})) (i32.const -1))");
        doing(&format!("(if {fails} (then unreachable))"), "(table 1 funcref)")
    };
    assert_eq!(failures(&grow(1000)), []);
    assert_eq!(failures(&grow(100_000)), once("trap"));
    let error = load(&ENGINE, doing("", "(table 100000 funcref)")).unwrap_err();
    assert!(error.to_string().contains("table"), "{error}");
}

#[test]
fn a_call_carries_a_mebibyte_out_and_no_more() {
    // A list of bytes that is the text of a line; the guest has room for it.
    let print = |octets: u32| {
        let call = format!(
            "(drop (memory.grow (i32.const 30))) (call $print (i32.const 65536) (i32.const {octets}))"
        );
        doing(&call, "")
    };
    assert_eq!(failures(&print(1 << 19)), []);
    assert_eq!(failures(&print((1 << 20) + 1)), once("trap"));
}

/// The SDK reckons with this much for a text and a record, besides their bytes (`guest-sdk/src/budget.rs`).
#[test]
fn what_is_carried_out_counts_as_the_sdk_reckons() {
    assert_eq!((size_of::<String>(), size_of::<ResourceRecord>()), (24, 56));
}

#[test]
fn a_giant_list_of_verdicts_is_a_failure() {
    for length in [30_000_u32, u32::MAX] {
        // A list that claims to begin at 0 and to have this many verdicts.
        let result = format!("(i32.store (i32.const 68) (i32.const {length}))");
        let [(_, count)] = failures(&doing(&result, ""))[..] else {
            panic!("{length} verdicts are no failure")
        };
        assert_eq!(count, 1);
    }
}

#[test]
fn text_that_is_not_utf8_is_a_trap() {
    for call in [
        "(call $log (i32.const 0) (i32.const 512) (i32.const 2))",
        "(call $print (i32.const 512) (i32.const 2))",
        "(call $count (i32.const 512) (i32.const 2) (i32.const 0) (i32.const 0) (i64.const 1))",
    ] {
        assert_eq!(failures(&doing(call, "")), once("trap"), "{call}");
    }
}

#[test]
fn composed_components_compile_and_are_refused_like_others() {
    // Two components that call each other across separate memories, neither of which is a filter.
    let composed = r#"(component
      (component $a
        (core module $m
          (memory (export "memory") 1)
          (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
          (func (export "f") (param i32 i32)))
        (core instance $i (instantiate $m))
        (func (export "f") (param "s" string)
          (canon lift (core func $i "f") (memory $i "memory") (realloc (func $i "realloc")))))
      (component $b
        (import "f" (func $f (param "s" string)))
        (core module $memory (memory (export "memory") 1))
        (core instance $memory (instantiate $memory))
        (core func $lowered (canon lower (func $f) (memory $memory "memory")))
        (core module $m (import "" "f" (func (param i32 i32))))
        (core instance (instantiate $m (with "" (instance (export "f" (func $lowered)))))))
      (instance $a (instantiate $a))
      (instance (instantiate $b (with "f" (func $a "f")))))"#;
    let error = load(&ENGINE, wat::parse_str(composed).unwrap()).unwrap_err();
    assert!(matches!(error, LoadError::Interface(_)), "{error}");
}

/// Calls the function of WASI preview 1 that the query's type selects, and refuses with its result.
fn wanting(functions: &[(&str, &str, &str)]) -> Vec<u8> {
    let (mut imports, mut calls) = (String::new(), String::new());
    for (index, (name, signature, call)) in functions.iter().enumerate() {
        imports += &format!("(import \"wasi_snapshot_preview1\" \"{name}\" (func ${name} {signature}))\n");
        calls += &format!(
            "(if (i32.eq (local.get $type) (i32.const {})) (then (local.set $is {call})))\n",
            index + 1
        );
    }
    let text = format!(
        r#"(module
  {imports}
  (memory (export "memory") 1)
  (data (i32.const 32) "\01")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 12))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries") (param i64 i32 i32 i32 i32) (result i32)
    (local $type i32) (local $is i32)
    (local.set $type (i32.load16_u offset=22 (local.get 1)))
    {calls}
    (i32.store (i32.const 64) (i32.const 1024))
    (i32.store (i32.const 68) (i32.const 1))
    (i32.store8 (i32.const 1032) (i32.const 4))
    (i32.store16 (i32.const 1036) (local.get $is))
    (i32.const 64)))"#
    );
    wat::parse_str(text).unwrap()
}

/// The module has no section that states its interface: exporting it is enough.
#[test]
fn a_module_is_known_by_its_exports() {
    let mut instance = load(&ENGINE, wanting(&[])).unwrap().instantiate().unwrap();
    assert_eq!(ask(&mut instance, &batch(&[1])), "0");
}

#[test]
fn preview_1_is_an_empty_world() {
    const EBADF: &str = "8";
    let pair = "(param i32 i32) (result i32)";
    let clock = "(param i32 i64 i32) (result i32)";
    let open = "(param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)";
    let filter = wanting(&[
        (
            "sock_accept",
            "(param i32 i32 i32) (result i32)",
            "(call $sock_accept (i32.const 3) (i32.const 0) (i32.const 512))",
        ),
        (
            "path_open",
            open,
            "(call $path_open (i32.const 3) (i32.const 0) (i32.const 512) (i32.const 1) (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 520))",
        ),
        // For a descriptor, and for two microseconds.
        (
            "poll_oneoff",
            "(param i32 i32 i32 i32) (result i32)",
            "(block (result i32)
               (i32.store8 (i32.const 520) (i32.const 1))
               (i64.store (i32.const 536) (i64.const 2000))
               (call $poll_oneoff (i32.const 512) (i32.const 600) (i32.const 1) (i32.const 700))
               (i32.store8 (i32.const 520) (i32.const 0))
               (i32.add (call $poll_oneoff (i32.const 512) (i32.const 600) (i32.const 1) (i32.const 700))))",
        ),
        (
            "fd_prestat_get",
            pair,
            "(call $fd_prestat_get (i32.const 3) (i32.const 512))",
        ),
        (
            "fd_read",
            "(param i32 i32 i32 i32) (result i32)",
            "(call $fd_read (i32.const 0) (i32.const 512) (i32.const 1) (i32.const 600))",
        ),
        (
            "args_sizes_get",
            pair,
            "(i32.add (call $args_sizes_get (i32.const 512) (i32.const 516)) (i32.load (i32.const 512)))",
        ),
        (
            "environ_sizes_get",
            pair,
            "(i32.add (call $environ_sizes_get (i32.const 512) (i32.const 516)) (i32.load (i32.const 512)))",
        ),
        (
            "clock_time_get",
            clock,
            "(i32.add (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 512)) (i32.load (i32.const 512)))",
        ),
        (
            "random_get",
            pair,
            "(i32.add (call $random_get (i32.const 512) (i32.const 4)) (i32.load8_u (i32.const 512)))",
        ),
    ]);
    // Sockets trap; waiting returns immediately, and standard input is at its end.
    let mut expected = vec!["!", EBADF, "0", EBADF, "0", "0", "0", "3000"];
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut instance = load(&ENGINE, filter.clone()).unwrap().instantiate().unwrap();
        seen.push(
            (1..=9)
                .map(|qtype| ask(&mut instance, &batch(&[qtype])))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(
        seen[0], seen[1],
        "the clock and the random octets are those of every instance"
    );
    expected.push(&seen[0][8]);
    assert_eq!(seen[0], expected);
}

#[test]
fn an_exit_is_a_trap() {
    let exits = wanting(&[(
        "proc_exit",
        "(param i32)",
        "(block (result i32) (call $proc_exit (i32.const 0)) (i32.const 0))",
    )]);
    let mut instance = load(&ENGINE, exits).unwrap().instantiate().unwrap();
    assert_eq!(ask(&mut instance, &batch(&[1])), "!");
}

#[test]
fn modules_that_import_something_else_are_refused_with_its_name() {
    for (module, name, expected) in [
        ("wasi_snapshot_preview1", "sock_open", "sock_open"),
        ("env", "system", "env"),
        ("wasi_unstable", "fd_write", "wasi_unstable"),
    ] {
        let text = format!(
            r#"(module (import "{module}" "{name}" (func)) (memory (export "memory") 1)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
            (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 0)))"#
        );
        let error = load(&ENGINE, wat::parse_str(text).unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{module}: {error}");
    }
}

#[test]
fn code_that_was_compiled_elsewhere_is_refused() {
    let component =
        wasmtime::component::Component::from_binary(&ENGINE.wasm, &wat::parse_str("(component)").unwrap())
            .unwrap();
    let error = load(&ENGINE, component.serialize().unwrap()).unwrap_err();
    assert!(matches!(error, LoadError::NotWasm), "{error}");
}
