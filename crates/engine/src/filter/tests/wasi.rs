//! WASI: what is granted, what is not, and that a guest that calls all of it can do no harm.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::runtime;
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmSignature, WasmType};
use wit_parser::{Resolve, WorldKey};

use super::*;
use crate::config::{Folder, Wasi};
use crate::filter::host_state::Context;
use crate::filter::sandbox::Sandbox;
use crate::filter::wasi::HANDLES;

/// Handles that the guest holds, one of every kind, plus some other numbers.
const VARIANTS: usize = 12;

/// A function that a guest can import: its interface, name and signature.
struct Import {
    interface: String,
    name: String,
    signature: WasmSignature,
}

/// The folder with the WIT files that wasmtime-wasi implements.
fn wasi_wit() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        // Not every crate of other platforms is here.
        .arg(format!(
            "--filter-platform={}-unknown-linux-gnu",
            std::env::consts::ARCH
        ))
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages
        .iter()
        .find(|package| package["name"] == "wasmtime-wasi")
        .unwrap();
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    manifest.with_file_name("src/p2/wit")
}

/// A guest that calls any WASI function: number `n` of the list with arguments of variant `k` when its name
/// has `16 n + k + 1` letters, or for a query of that type minus one.
fn caller() -> (Vec<u8>, Vec<Import>) {
    let mut resolve = Resolve::default();
    resolve
        .push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit"))
        .unwrap();
    let (wasi, _) = resolve.push_dir(wasi_wit()).unwrap();
    let all = resolve.select_world(&[wasi], Some("bindings")).unwrap();
    let mut imports = Vec::new();
    let mut world = String::from(
        "package test:guest;
         world guest {
             export dnsweir:filter/configure@0.1.0;
             export dnsweir:filter/queries@0.1.0;\n",
    );
    for key in resolve.worlds[all].imports.keys() {
        let WorldKey::Interface(id) = key else { continue };
        let interface = resolve.id_of(*id).unwrap();
        writeln!(world, "import {interface};").unwrap();
        for function in resolve.interfaces[*id].functions.values() {
            imports.push(Import {
                interface: interface.clone(),
                name: function.name.clone(),
                signature: resolve.wasm_signature(AbiVariant::GuestImport, function),
            });
        }
    }
    let mut module = wat::parse_str(text(&imports)).unwrap();
    let package = resolve.push_str("test.wit", &(world + "}")).unwrap();
    let world = resolve.select_world(&[package], Some("guest")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    (module, imports)
}

fn wasm(types: &[WasmType]) -> String {
    let names = types.iter().map(|kind| match kind {
        WasmType::I64 | WasmType::PointerOrI64 => " i64",
        WasmType::F32 => " f32",
        WasmType::F64 => " f64",
        WasmType::I32 | WasmType::Pointer | WasmType::Length => " i32",
    });
    names.collect()
}

/// Imports all of them, and calls the one with number `$n`.
fn calls(imports: &[Import]) -> (String, String) {
    let (mut declared, mut calls) = (String::new(), String::new());
    for (
        n,
        Import {
            interface,
            name,
            signature,
        },
    ) in imports.iter().enumerate()
    {
        let (params, results) = (wasm(&signature.params), wasm(&signature.results));
        let results = if results.is_empty() {
            results
        } else {
            format!("(result{results})")
        };
        writeln!(
            declared,
            "(import \"{interface}\" \"{name}\" (func $f{n} (param{params}) {results}))"
        )
        .unwrap();
        let mut arguments: Vec<&str> = (signature.params.iter())
            .map(|kind| match kind {
                WasmType::I64 | WasmType::PointerOrI64 => {
                    "(i64.extend_i32_s (i32.sub (local.get $k) (i32.const 1)))"
                }
                WasmType::F32 => "(f32.const 0)",
                WasmType::F64 => "(f64.const 0)",
                _ => "(local.get $k)",
            })
            .collect();
        if signature.retptr {
            *arguments.last_mut().unwrap() = "(i32.const 2048)";
        }
        let call = format!("(call $f{n} {})", arguments.join(" "));
        let call = if results.is_empty() {
            call
        } else {
            format!("(drop {call})")
        };
        writeln!(
            calls,
            "(if (i32.eq (local.get $n) (i32.const {n})) (then {call}))"
        )
        .unwrap();
    }
    (declared, calls)
}

/// Opens handles, from 1: standard input, output and error, a pollable for the end of time, a folder, a file
/// in it, a stream of that, and a listing.
fn prepare(imports: &[Import]) -> String {
    let number = |interface: &str, name: &str| {
        let is_it = |import: &Import| import.interface.starts_with(interface) && import.name == name;
        imports
            .iter()
            .position(is_it)
            .unwrap_or_else(|| panic!("no {interface} {name}"))
    };
    format!(
        "(drop (call $f{})) (drop (call $f{})) (drop (call $f{})) (drop (call $f{} (i64.const -1)))
         (call $f{} (i32.const 2048))
         (call $f{} (i32.const 5) (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 2048))
         (call $f{} (i32.const 6) (i64.const 0) (i32.const 2048))
         (call $f{} (i32.const 5) (i32.const 2048))",
        number("wasi:cli/stdin", "get-stdin"),
        number("wasi:cli/stdout", "get-stdout"),
        number("wasi:cli/stderr", "get-stderr"),
        number("wasi:clocks/monotonic-clock", "subscribe-duration"),
        number("wasi:filesystem/preopens", "get-directories"),
        number("wasi:filesystem/types", "[method]descriptor.open-at"),
        number("wasi:filesystem/types", "[method]descriptor.read-via-stream"),
        number("wasi:filesystem/types", "[method]descriptor.read-directory"),
    )
}

fn text(imports: &[Import]) -> String {
    let ((declared, calls), prepare) = (calls(imports), prepare(imports));
    format!(
        r#"(module
  {declared}
  (memory (export "memory") 64)
  (global $heap (mut i32) (i32.const 65536))
  ;; Handles, and what they are as text.
  (data (i32.const 4) "\04\00\00\00\04\00\00\00\04\00\00\00\04\00\00\00\04\00\00\00\04\00\00\00\04\00\00\00")
  (data (i32.const 64) "f")
  (data (i32.const 4116) "\01")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  (func $do (param $n i32) (param $k i32) {calls})
  (func (export "dnsweir:filter/configure@0.1.0#configure")
    (param i32) (param $length i32) (param i32 i32 i32 i32) (result i32)
    {prepare}
    (if (local.get $length) (then (call $do
      (i32.shr_u (i32.sub (local.get $length) (i32.const 1)) (i32.const 4))
      (i32.and (i32.sub (local.get $length) (i32.const 1)) (i32.const 15)))))
    (i32.const 4096))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries") (param i64 i32 i32 i32 i32) (result i32)
    (local $type i32)
    (local.set $type (i32.load16_u offset=22 (local.get 1)))
    (call $do (i32.shr_u (local.get $type) (i32.const 4)) (i32.and (local.get $type) (i32.const 15)))
    (i32.const 8192)))"#
    )
}

fn folder(path: &Path) -> Folder {
    Folder {
        name: "lists".into(),
        path: path.into(),
        state: 0,
    }
}

fn loaded(module: Vec<u8>, wasi: Wasi) -> Arc<Filter> {
    let mut block = block(module);
    block.name.clear();
    block.wasi = wasi;
    block.limits.memory = 16 << 20;
    Filter::load(&ENGINE, &block, &["example.".into()], None).unwrap()
}

/// Whether an instance starts whose name has this many letters.
fn starts(filter: &Filter, length: usize, wasi: &Wasi) -> bool {
    let block = config::Filter {
        wasi: wasi.clone(),
        limits: filter.context.limits,
        ..block(Vec::new())
    };
    let context = Arc::new(Context::new(
        &block,
        0,
        Arc::default(),
        Arc::clone(&ENGINE.output),
        Arc::clone(&ENGINE.ticker),
    ));
    let mut setup = filter.setup.clone();
    setup.name = "x".repeat(length);
    Sandbox::start(&filter.exports, &context, &setup, &Cancel::default()).is_ok()
}

/// Within a runtime, like a worker: blocking on another one would panic, and waiting for the end of time
/// would not return.
#[test]
fn whoever_calls_all_of_it_neither_waits_nor_panics() {
    let (module, imports) = caller();
    let lists = tempfile::tempdir().unwrap();
    fs::write(lists.path().join("f"), "a list\n").unwrap();
    let granted = Wasi {
        clock: true,
        random: true,
        env: vec!["PATH".into()],
        folders: vec![folder(lists.path())],
    };
    let worker = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    worker.block_on(async {
        let filter = loaded(module, granted.clone());
        let mut instance = filter.instantiate().unwrap();
        let mut done = [0, 0];
        for n in 0..imports.len() {
            let call = |k: usize| 16 * n + k;
            let starts = (0..VARIANTS).filter(|&k| starts(&filter, call(k) + 1, &granted));
            let answers = (0..VARIANTS).filter(|&k| {
                instance.let_pass(Duration::from_secs(100));
                ask(&mut instance, &batch(&[call(k) as u16])) == "-"
            });
            for (done, times) in done.iter_mut().zip([starts.count(), answers.count()]) {
                *done += usize::from(times > 0);
            }
        }
        // What is not implemented traps: sockets, and nothing else. Not every call has valid arguments.
        let there = imports
            .iter()
            .filter(|import| !import.interface.contains("sockets"))
            .count();
        assert!(
            done[0] > there * 3 / 4 && done[1] > there * 3 / 4,
            "{done:?} of {there}"
        );
    });
}

#[test]
fn handles_are_bounded() {
    let (module, imports) = caller();
    let lists = tempfile::tempdir().unwrap();
    fs::write(lists.path().join("f"), "").unwrap();
    let granted = Wasi {
        folders: vec![folder(lists.path())],
        ..Wasi::default()
    };
    let mut instance = loaded(module, granted).instantiate().unwrap();
    let stdout = imports
        .iter()
        .position(|import| import.name == "get-stdout")
        .unwrap();
    let mut more = || ask(&mut instance, &batch(&[16 * stdout as u16])) == "-";
    assert!(more());
    assert!((0..HANDLES).any(|_| !more()));
}

/// A guest that opens the file `f` of its folder in `configure`, and refuses with what the query's type
/// selects: the first byte of the file, the error of opening it again, the error of reading on, seconds since
/// 1970 in 2^26, random bytes, or bytes of its environment.
fn asking() -> Vec<u8> {
    let open = "(call $open (i32.const 3) (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 0) (i64.const 2) (i64.const 2) \
                (i32.const 0) (i32.const 520))";
    let read = "(call $read (i32.load (i32.const 520)) (i32.const 528) (i32.const 1) (i32.const 536))";
    let text = format!(
        r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 32) "\01")
  (data (i32.const 64) "f")
  ;; No descriptor, until one is opened.
  (data (i32.const 520) "\63")
  ;; One octet, to 544.
  (data (i32.const 528) "\20\02\00\00\01\00\00\00")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (if (i32.eqz {open}) (then (drop {read})))
    (i32.const 12))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries") (param i64 i32 i32 i32 i32) (result i32)
    (local $type i32) (local $is i32)
    (local.set $type (i32.load16_u offset=22 (local.get 1)))
    (if (i32.eq (local.get $type) (i32.const 1)) (then (local.set $is (i32.load8_u (i32.const 544)))))
    (if (i32.eq (local.get $type) (i32.const 2)) (then (local.set $is {open})))
    (if (i32.eq (local.get $type) (i32.const 3)) (then (local.set $is {read})))
    (if (i32.eq (local.get $type) (i32.const 4)) (then
      (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 600)))
      (local.set $is (i32.wrap_i64 (i64.div_u (i64.load (i32.const 600)) (i64.const 67108864000000000))))))
    (if (i32.eq (local.get $type) (i32.const 5)) (then
      (drop (call $random (i32.const 600) (i32.const 4)))
      (local.set $is (i32.and (i32.load (i32.const 600)) (i32.const 4095)))))
    (if (i32.eq (local.get $type) (i32.const 6)) (then
      (drop (call $environ (i32.const 600) (i32.const 604)))
      (local.set $is (i32.load (i32.const 600)))))
    (i32.store (i32.const 576) (i32.const 1024))
    (i32.store (i32.const 580) (i32.const 1))
    (i32.store8 (i32.const 1032) (i32.const 4))
    (i32.store16 (i32.const 1036) (local.get $is))
    (i32.const 576)))"#
    );
    wat::parse_str(text).unwrap()
}

fn says(wasi: &Wasi, qtype: u16) -> u32 {
    let mut instance = loaded(asking(), wasi.clone()).instantiate().unwrap();
    ask(&mut instance, &batch(&[qtype])).parse().unwrap()
}

#[test]
fn a_folder_is_there_while_configuring_and_only_if_it_is_granted() {
    let lists = tempfile::tempdir().unwrap();
    fs::write(lists.path().join("f"), "a list").unwrap();
    let granted = Wasi {
        folders: vec![folder(lists.path())],
        ..Wasi::default()
    };
    assert_eq!(says(&granted, 1), u32::from(b'a'));
    assert_eq!(says(&Wasi::default(), 1), 0);
    for wasi in [&granted, &Wasi::default()] {
        assert!(says(wasi, 2) > 0, "a query opens a file");
        assert!(says(wasi, 3) > 0, "a query reads one");
    }
    // Opening a pipe would wait for its writer; a link may not lead out of the folder.
    for other in ["pipe", "link"] {
        fs::remove_file(lists.path().join("f")).unwrap();
        match other {
            "pipe" => assert!(
                Command::new("mkfifo")
                    .arg(lists.path().join("f"))
                    .status()
                    .unwrap()
                    .success()
            ),
            _ => std::os::unix::fs::symlink("/etc/passwd", lists.path().join("f")).unwrap(),
        }
        assert_eq!(says(&granted, 1), 0, "{other}");
    }
}

#[test]
fn a_folder_that_is_gone_is_named() {
    let mut block = block(asking());
    block.wasi.folders = vec![folder(Path::new("/does/not/exist"))];
    let error = Filter::load(&ENGINE, &block, &[], None).unwrap_err().to_string();
    assert!(error.contains("/does/not/exist"), "{error}");
}

#[test]
fn the_time_is_there_only_if_it_is_granted() {
    let granted = Wasi {
        clock: true,
        ..Wasi::default()
    };
    assert!(says(&granted, 4) >= 25, "it is before 2023");
    assert_eq!(says(&Wasi::default(), 4), 0);
}

#[test]
fn random_numbers_differ_only_if_that_is_granted() {
    let granted = Wasi {
        random: true,
        ..Wasi::default()
    };
    let several = |wasi: &Wasi| -> Vec<u32> { (0..8).map(|_| says(wasi, 5)).collect() };
    let same = |numbers: &[u32]| numbers.iter().all(|number| *number == numbers[0]);
    assert!(!same(&several(&granted)));
    assert!(same(&several(&Wasi::default())));
}

#[test]
fn a_variable_is_there_only_if_it_is_granted() {
    let granted = Wasi {
        env: vec!["PATH".into(), "NOT_SET_ANYWHERE".into()],
        ..Wasi::default()
    };
    assert_eq!(says(&granted, 6), 1);
    assert_eq!(says(&Wasi::default(), 6), 0);
}
