//! Guests in WebAssembly text, against the canonical ABI of `wit/`, since no SDK lets a guest misbehave like
//! this.

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Bytes of a verdict and of one on a response in the canonical ABI, and the offsets in the latter of the
/// edit's discriminant and its `ttl-maximum`.
const VERDICT: usize = 160;
const RESPONSE_VERDICT: usize = 108;
const RESPONSE_EDIT: usize = 52;
const RESPONSE_TTL_MAXIMUM: usize = 96;

/// Allocates above the global `$heap`, aligned to 8 bytes, and never frees.
pub(super) const REALLOC: &str = r#"(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (local.get $at))"#;

/// Turns a core module into what cargo builds: the module and a section with its world.
fn module(text: &str, world: &str) -> Vec<u8> {
    encoded(text, world, StringEncoding::UTF8)
}

fn encoded(text: &str, world: &str, strings: StringEncoding) -> Vec<u8> {
    let mut resolve = Resolve::default();
    resolve
        .push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit"))
        .unwrap();
    let package = resolve.push_str("test.wit", world).unwrap();
    let world = resolve.select_world(&[package], Some("guest")).unwrap();
    let mut module = wat::parse_str(text).unwrap();
    embed_component_metadata(&mut module, &resolve, world, strings).unwrap();
    module
}

/// A guest whose action is selected by a query's type (or a response's rcode):
///
/// | | |
/// |---|---|
/// | 2 | refuses with 5, for a second |
/// | 3 | traps |
/// | 4 | runs for ever |
/// | 5 | allocates memory until none is left |
/// | 6 | gives a verdict on item 99 |
/// | 7 | makes an alias to a name without an end |
/// | 8 | gives two verdicts |
/// | 9 | prints and counts |
/// | 10 | refuses with the first byte of the name |
/// | 11 | passes, for a second |
pub(super) fn puppet() -> Vec<u8> {
    with_configure("(i32.const 16)")
}

/// The puppet with one more function, exported under this name, which traps.
pub(super) fn puppet_with_another(name: &str) -> Vec<u8> {
    let function = r#"(param i64 i32 i32 i32 i32) (result i32) unreachable"#;
    with_configure(&format!(r#"(i32.const 16)) (func (export "{name}") {function}"#))
}

/// The puppet with another `configure`, an expression that leaves the address of its result. At 16 there is a
/// manifest for all phases, at 128 a rejection, and 64 bytes at 256 may be written.
pub(super) fn with_configure(configure: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
  (import "dnsweir:filter/host@0.1.0" "log" (func $log (param i32 i32 i32)))
  (import "dnsweir:filter/host@0.1.0" "print" (func $print (param i32 i32)))
  (import "dnsweir:filter/host@0.1.0" "count" (func $count (param i32 i32 i32 i32 i64)))
  (memory (export "memory") 4)
  (global $heap (mut i32) (i32.const 65536))
  ;; result::ok, no types, no suffixes; queries, responses, events, no messages.
  (data (i32.const 16) "\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\01\01\01\00" "\00\00\00\00\00\00\00\00")
  ;; result::err with one error at 144: node 0, argument 1, its texts.
  (data (i32.const 128) "\01\00\00\00" "\90\00\00\00\01\00\00\00")
  (data (i32.const 144) "\01\00\00\00\00\00\00\00" "\01\00\00\00\01\00\00\00\00\00\00\00" "\c0\00\00\00\06\00\00\00" "\c8\00\00\00\04\00\00\00")
  (data (i32.const 192) "no\1b[2J" "\00\00" "help")
  (data (i32.const 512) "\3fab")
  ;; A list of one name at 520.
  (data (i32.const 520) "\00\02\00\00\03\00\00\00")
  (data (i32.const 528) "seen\n")
  (data (i32.const 544) "seen_total")
  {REALLOC}
  (func $misbehave (param $how i32)
    (if (i32.eq (local.get $how) (i32.const 3)) (then unreachable))
    (if (i32.eq (local.get $how) (i32.const 4)) (then (loop $for_ever (br $for_ever))))
    (if (i32.eq (local.get $how) (i32.const 5))
      (then (loop $more
        (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))
        unreachable)))
    (if (i32.eq (local.get $how) (i32.const 9))
      (then
        (call $log (i32.const 1) (i32.const 528) (i32.const 5))
        (call $print (i32.const 528) (i32.const 5))
        (call $count (i32.const 544) (i32.const 10) (i32.const 0) (i32.const 0) (i64.const 2)))))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    {configure})
  (func (export "dnsweir:filter/queries@0.1.0#on-queries")
    (param $now i64) (param $batch i32) (param $length i32) (param $bytes i32) (param $size i32) (result i32)
    (local $i i32) (local $at i32) (local $query i32) (local $type i32)
    (local.set $at (i32.const 1024))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (local.get $length)))
      (local.set $query (i32.add (local.get $batch) (i32.mul (local.get $i) (i32.const 40))))
      (local.set $type (i32.load16_u (i32.add (local.get $query) (i32.const 22))))
      (call $misbehave (local.get $type))
      (if (i32.ge_u (i32.const 11) (i32.add (local.get $type) (i32.const -1))) (then
        (if (i32.and (i32.ne (local.get $type) (i32.const 1)) (i32.ne (local.get $type) (i32.const 9))) (then
          (memory.fill (local.get $at) (i32.const 0) (i32.const {VERDICT}))
          (i32.store (local.get $at) (local.get $i))
          (i32.store8 offset=8 (local.get $at) (i32.const 4))
          (i32.store16 offset=12 (local.get $at) (i32.const 5))
          (if (i32.eq (local.get $type) (i32.const 2))
            (then (i32.store offset=4 (local.get $at) (i32.const 1000))))
          (if (i32.eq (local.get $type) (i32.const 6))
            (then (i32.store (local.get $at) (i32.const 99))))
          (if (i32.eq (local.get $type) (i32.const 7)) (then
            (i32.store8 offset=8 (local.get $at) (i32.const 3))
            (i32.store offset=12 (local.get $at) (i32.const 520))
            (i32.store offset=16 (local.get $at) (i32.const 1))))
          (if (i32.eq (local.get $type) (i32.const 8)) (then
            (memory.copy (i32.add (local.get $at) (i32.const {VERDICT})) (local.get $at) (i32.const {VERDICT}))
            (local.set $at (i32.add (local.get $at) (i32.const {VERDICT})))))
          (if (i32.eq (local.get $type) (i32.const 10)) (then
            (i32.store16 offset=12 (local.get $at)
              (i32.load8_u (i32.add (local.get $bytes) (i32.load offset=16 (local.get $query)))))))
          (if (i32.eq (local.get $type) (i32.const 11)) (then
            (i32.store offset=4 (local.get $at) (i32.const 1000))
            (i32.store8 offset=8 (local.get $at) (i32.const 0))))
          (local.set $at (i32.add (local.get $at) (i32.const {VERDICT})))))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (global.set $heap (i32.const 65536))
    (i32.store (i32.const 64) (i32.const 1024))
    (i32.store (i32.const 68) (i32.div_u (i32.sub (local.get $at) (i32.const 1024)) (i32.const {VERDICT})))
    (i32.const 64))
  (func (export "dnsweir:filter/responses@0.1.0#on-responses")
    (param $now i64) (param $batch i32) (param $length i32) (param $bytes i32) (param $size i32) (result i32)
    (local $i i32) (local $at i32) (local $rcode i32)
    (local.set $at (i32.const 1024))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (local.get $length)))
      (local.set $rcode (i32.load16_u offset=40 (i32.add (local.get $batch) (i32.mul (local.get $i) (i32.const 64)))))
      (call $misbehave (local.get $rcode))
      ;; An edit: TTLs of at most 30 seconds, not to be stored.
      (if (i32.eq (local.get $rcode) (i32.const 2)) (then
        (memory.fill (local.get $at) (i32.const 0) (i32.const {RESPONSE_VERDICT}))
        (i32.store (local.get $at) (local.get $i))
        (i32.store8 offset={RESPONSE_EDIT} (local.get $at) (i32.const 1))
        (i32.store offset={RESPONSE_TTL_MAXIMUM} (local.get $at) (i32.const 30))
        (local.set $at (i32.add (local.get $at) (i32.const {RESPONSE_VERDICT})))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (global.set $heap (i32.const 65536))
    (i32.store (i32.const 64) (i32.const 1024))
    (i32.store (i32.const 68) (i32.div_u (i32.sub (local.get $at) (i32.const 1024)) (i32.const {RESPONSE_VERDICT})))
    (i32.const 64))
  (func (export "dnsweir:filter/events@0.1.0#on-events")
    (param $batch i32) (param $length i32) (param $bytes i32) (param $size i32)
    (local $i i32)
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (local.get $length)))
      (call $misbehave (i32.load16_u offset=22 (i32.add (local.get $batch) (i32.mul (local.get $i) (i32.const 80)))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (global.set $heap (i32.const 65536))))"#
    );
    module(&text, PHASES)
}

const PHASES: &str = "package test:guest;
    world guest {
        import dnsweir:filter/host@0.1.0;
        export dnsweir:filter/configure@0.1.0;
        export dnsweir:filter/queries@0.1.0;
        export dnsweir:filter/responses@0.1.0;
        export dnsweir:filter/events@0.1.0;
    }";

const ALL: &str = "package test:guest; world guest { include dnsweir:filter/filter@0.1.0; }";

/// As a world: the query phase alone.
const QUERIES: &str = "package test:guest;
    world guest { export dnsweir:filter/configure@0.1.0; export dnsweir:filter/queries@0.1.0; }";

/// A guest that passes all queries without looking at them, and takes strings in UTF-16.
pub(super) fn passer_in_utf16() -> Vec<u8> {
    encoded(
        &hostile_text("(i32.const 1024)", "(i32.const 64)", "", ""),
        HOSTILE,
        StringEncoding::UTF16,
    )
}

/// A guest that behaves until it is configured. Then its `cabi_realloc` is the expression `realloc` (of
/// `$align` and `$size`), its query phase the expression `queries`, and its post-return `post`. `more` are
/// further fields of the module. There are two pages of memory, invalid UTF-8 at 512 and `fine` at 528;
/// `$fine` counts.
pub(super) fn hostile(realloc: &str, queries: &str, post: &str, more: &str) -> Vec<u8> {
    module(&hostile_text(realloc, queries, post, more), HOSTILE)
}

const HOSTILE: &str = "package test:guest;
    world guest {
        import dnsweir:filter/host@0.1.0;
        export dnsweir:filter/configure@0.1.0;
        export dnsweir:filter/queries@0.1.0;
    }";

fn hostile_text(realloc: &str, queries: &str, post: &str, more: &str) -> String {
    format!(
        r#"(module
  (import "dnsweir:filter/host@0.1.0" "log" (func $log (param i32 i32 i32)))
  (import "dnsweir:filter/host@0.1.0" "print" (func $print (param i32 i32)))
  (import "dnsweir:filter/host@0.1.0" "count" (func $count (param i32 i32 i32 i32 i64)))
  (memory (export "memory") 2)
  (global $configured (mut i32) (i32.const 0))
  (data (i32.const 36) "\01\00\00\00")
  (data (i32.const 512) "\ff\fe")
  (data (i32.const 528) "fine")
  (func $fine (call $count (i32.const 528) (i32.const 4) (i32.const 0) (i32.const 0) (i64.const 1)))
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (if (result i32) (global.get $configured) (then {realloc}) (else (i32.const 1024))))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (global.set $configured (i32.const 1))
    (i32.const 16))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries") (param i64 i32 i32 i32 i32) (result i32) {queries})
  (func (export "cabi_post_dnsweir:filter/queries@0.1.0#on-queries") (param i32) {post})
  {more})"#
    )
}

/// A guest that counts, as `sum`, all bytes that it gets in any phase, weighted by position.
pub(super) fn summer() -> Vec<u8> {
    let text = format!(
        r#"(module
  (import "dnsweir:filter/host@0.1.0" "count" (func $count (param i32 i32 i32 i32 i64)))
  (memory (export "memory") 4)
  (global $heap (mut i32) (i32.const 4096))
  (data (i32.const 36) "\01\01\01\00")
  (data (i32.const 512) "sum")
  {REALLOC}
  (func $sum (param $sum i64) (param $at i32) (param $size i32) (result i64)
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $size)))
      (local.set $sum (i64.add
        (i64.mul (local.get $sum) (i64.const 1099511628211))
        (i64.load8_u (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $size (i32.sub (local.get $size) (i32.const 1)))
      (br $next)))
    (local.get $sum))
  (func $tell (param $sum i64) (param $at i32) (param $size i32) (param $bytes i32) (param $length i32)
    (call $count (i32.const 512) (i32.const 3) (i32.const 0) (i32.const 0)
      (call $sum (call $sum (local.get $sum) (local.get $at) (local.get $size))
        (local.get $bytes) (local.get $length)))
    (memory.fill (i32.const 4096) (i32.const 0) (i32.sub (global.get $heap) (i32.const 4096)))
    (global.set $heap (i32.const 4096)))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    ;; What lies between fields is what was there before.
    (memory.fill (i32.const 4096) (i32.const 0) (i32.sub (global.get $heap) (i32.const 4096)))
    (global.set $heap (i32.const 4096))
    (i32.const 16))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries") (param i64 i32 i32 i32 i32) (result i32)
    (call $tell (local.get 0) (local.get 1) (i32.mul (local.get 2) (i32.const 40)) (local.get 3) (local.get 4))
    (i32.const 64))
  (func (export "dnsweir:filter/responses@0.1.0#on-responses") (param i64 i32 i32 i32 i32) (result i32)
    (call $tell (local.get 0) (local.get 1) (i32.mul (local.get 2) (i32.const 64)) (local.get 3) (local.get 4))
    (i32.const 64))
  (func (export "dnsweir:filter/query-answers@0.1.0#on-query-answers")
    (param i64 i32 i32 i32 i32 i32 i32) (result i32)
    (call $tell (call $sum (local.get 0) (local.get 3) (i32.mul (local.get 4) (i32.const 24)))
      (local.get 1) (i32.mul (local.get 2) (i32.const 56)) (local.get 5) (local.get 6))
    (i32.const 64))
  (func (export "dnsweir:filter/response-answers@0.1.0#on-response-answers")
    (param i64 i32 i32 i32 i32 i32 i32) (result i32)
    (call $tell (call $sum (local.get 0) (local.get 3) (i32.mul (local.get 4) (i32.const 24)))
      (local.get 1) (i32.mul (local.get 2) (i32.const 80)) (local.get 5) (local.get 6))
    (i32.const 64))
  (func (export "dnsweir:filter/events@0.1.0#on-events") (param i32 i32 i32 i32)
    (call $tell (i64.const 0) (local.get 0) (i32.mul (local.get 1) (i32.const 80)) (local.get 2) (local.get 3)))
  (func (export "dnsweir:filter/refresh@0.1.0#on-refresh") (param i64 i32 i32) (result i32) unreachable))"#
    );
    module(&text, ALL)
}

/// A guest whose verdicts are the bytes of a batch.
pub(super) fn echo() -> Vec<u8> {
    let text = format!(
        r#"(module
  (memory (export "memory") 4)
  (global $heap (mut i32) (i32.const 4096))
  (data (i32.const 32) "\01\00\00\00")
  {REALLOC}
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 16))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries") (param i64 i32 i32 i32 i32) (result i32)
    (i32.store (i32.const 64) (local.get 3))
    (i32.store (i32.const 68) (i32.div_u (local.get 4) (i32.const {VERDICT})))
    (global.set $heap (i32.const 4096))
    (i32.const 64)))"#
    );
    module(&text, QUERIES)
}

/// A guest with only the query phase and one more import, which `configure` calls.
pub(super) fn importing(package: &str, import: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
  (import "{import}" "open" (func $open))
  (memory (export "memory") 1)
  (data (i32.const 32) "\01\00\00\00")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (call $open)
    (i32.const 16))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries") (param i64 i32 i32 i32 i32) (result i32) (i32.const 64)))"#
    );
    let world = format!(
        "package test:guest;
         world guest {{
             import {import};
             export dnsweir:filter/configure@0.1.0;
             export dnsweir:filter/queries@0.1.0;
         }}
         package {package} {{ interface sockets {{ open: func(); }} }}"
    );
    module(&text, &world)
}

/// A guest whose manifest requests all phases and lookups, but whose module exports only the query phase.
pub(super) fn missing_phases() -> Vec<u8> {
    let text = r#"(module
  (memory (export "memory") 1)
  (data (i32.const 36) "\01\01\01\00\01")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 16))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries") (param i64 i32 i32 i32 i32) (result i32) (i32.const 64)))"#;
    let world = "package test:guest;
        world guest { export dnsweir:filter/configure@0.1.0; export dnsweir:filter/queries@0.1.0; }";
    module(text, world)
}

/// A guest with a table `t` of `octets`, whose `configure` is an expression that leaves 16 on the stack. A
/// query's type selects its action:
///
/// | | |
/// |---|---|
/// | 1 | takes one of two tokens from a bucket, and refuses with 5 if there is none |
/// | 2 | takes from a table that does not exist |
/// | 3 | puts entries for ever |
/// | 4 | puts a value that lies outside of its memory |
/// | 5 | puts an entry with a key of 64 KiB, and refuses with 5 if it is refused |
pub(super) fn keeper(octets: u16, configure: &str) -> Vec<u8> {
    let [low, high] = octets.to_le_bytes();
    let text = format!(
        r#"(module
  (import "dnsweir:filter/tables@0.1.0" "take" (func $take (param i32 i32 i32 i32 f64 i32) (result i32)))
  (import "dnsweir:filter/tables@0.1.0" "put" (func $put (param i32 i32 i32 i32 i32 i64) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 36) "\01\00\00\00\00\00\00\00" "\50\00\00\00\01\00\00\00")
  (data (i32.const 80) "\60\00\00\00\01\00\00\00" "\{low:02x}\{high:02x}\00\00\00" "\00\00\00" "t")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
  (func $take_one (param $table i32) (result i32)
    (call $take (local.get $table) (i32.const 80) (i32.const 4) (i32.const 1) (f64.const 0) (i32.const 2)))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    {configure})
  (func (export "dnsweir:filter/queries@0.1.0#on-queries")
    (param $now i64) (param $batch i32) (param $length i32) (param $bytes i32) (param $size i32) (result i32)
    (local $type i32) (local $done i32)
    (local.set $type (i32.load16_u offset=22 (local.get $batch)))
    (local.set $done (i32.const 1))
    (if (i32.eq (local.get $type) (i32.const 1)) (then
      (local.set $done (call $take_one (i32.const 0)))))
    (if (i32.eq (local.get $type) (i32.const 2)) (then
      (local.set $done (call $take_one (i32.const 1)))))
    (if (i32.eq (local.get $type) (i32.const 3)) (then
      (loop $more
        (i32.store (i32.const 8192) (i32.add (i32.load (i32.const 8192)) (i32.const 1)))
        (drop (call $put (i32.const 0) (i32.const 8192) (i32.const 4) (i32.const 0) (i32.const 99) (i64.const 0)))
        (br $more))))
    (if (i32.eq (local.get $type) (i32.const 4)) (then
      (drop (call $put (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 262140) (i32.const 5) (i64.const 0)))))
    (if (i32.eq (local.get $type) (i32.const 5)) (then
      (local.set $done
        (call $put (i32.const 0) (i32.const 0) (i32.const 65536) (i32.const 0) (i32.const 0) (i64.const 0)))))
    (memory.fill (i32.const 1024) (i32.const 0) (i32.const {VERDICT}))
    (i32.store8 (i32.const 1032) (i32.const 4))
    (i32.store16 (i32.const 1036) (i32.const 5))
    (i32.store (i32.const 64) (i32.const 1024))
    (i32.store (i32.const 68) (i32.eqz (local.get $done)))
    (i32.const 64)))"#
    );
    let world = "package test:guest;
        world guest {
            import dnsweir:filter/tables@0.1.0;
            export dnsweir:filter/configure@0.1.0;
            export dnsweir:filter/queries@0.1.0;
        }";
    module(&text, world)
}

/// A guest with data; a query's type selects its action. Unless noted it refuses with the length of what it
/// got, and passes if that is empty.
///
/// | | |
/// |---|---|
/// | 1 | finds the line of `b` |
/// | 2 | reads three bytes from the second on |
/// | 3 | reads far beyond the end |
/// | 4 | reads as much as it can |
/// | 5 | refuses with 5 if there is data 7 |
/// | 6 | looks for a key that lies outside of its memory |
/// | 7 | looks for a key that is all of its memory |
/// | 8 | reads for ever |
/// | 9 | searches for ever |
/// | 10 | reads to a place outside of its memory |
pub(super) fn reader(configure: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
  (import "dnsweir:filter/data@0.1.0" "size" (func $size (param i32 i32)))
  (import "dnsweir:filter/data@0.1.0" "read" (func $read (param i32 i64 i32 i32)))
  (import "dnsweir:filter/data@0.1.0" "find-line" (func $find_line (param i32 i32 i32 i32 i32)))
  (memory (export "memory") 4)
  (global $room (mut i32) (i32.const 131072))
  (data (i32.const 36) "\01\00\00\00\00\00\00\00")
  (data (i32.const 80) "b")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (global.get $room))
  (func $get (param $index i32) (param $offset i64) (param $length i32) (result i32)
    (call $read (local.get $index) (local.get $offset) (local.get $length) (i32.const 96))
    (i32.load (i32.const 100)))
  (func $find (param $index i32) (param $key i32) (param $length i32) (result i32)
    (call $find_line (local.get $index) (local.get $key) (local.get $length) (i32.const 32) (i32.const 96))
    (if (result i32) (i32.load8_u (i32.const 96)) (then (i32.load (i32.const 104))) (else (i32.const 0))))
  (func $has (param $index i32) (result i32)
    (call $size (local.get $index) (i32.const 96))
    (i32.load8_u (i32.const 96)))
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    {configure})
  (func (export "dnsweir:filter/queries@0.1.0#on-queries")
    (param $now i64) (param $batch i32) (param $length i32) (param $bytes i32) (param $size i32) (result i32)
    (local $type i32) (local $got i32)
    (local.set $type (i32.load16_u offset=22 (local.get $batch)))
    (if (i32.eq (local.get $type) (i32.const 1)) (then
      (local.set $got (call $find (i32.const 0) (i32.const 80) (i32.const 1)))))
    (if (i32.eq (local.get $type) (i32.const 2)) (then
      (local.set $got (call $get (i32.const 0) (i64.const 1) (i32.const 3)))))
    (if (i32.eq (local.get $type) (i32.const 3)) (then
      (local.set $got (call $get (i32.const 0) (i64.const -1) (i32.const -1)))))
    (if (i32.eq (local.get $type) (i32.const 4)) (then
      (local.set $got (i32.shr_u (call $get (i32.const 0) (i64.const 0) (i32.const -1)) (i32.const 8)))))
    (if (i32.eq (local.get $type) (i32.const 5)) (then
      (local.set $got (i32.mul (i32.const 5) (i32.or (call $has (i32.const 7)) (i32.or
        (call $get (i32.const 7) (i64.const 0) (i32.const 9))
        (call $find (i32.const -1) (i32.const 80) (i32.const 1))))))))
    (if (i32.eq (local.get $type) (i32.const 6)) (then
      (local.set $got (call $find (i32.const 0) (i32.const 262140) (i32.const 5)))))
    (if (i32.eq (local.get $type) (i32.const 7)) (then
      (local.set $got (call $find (i32.const 0) (i32.const 0) (i32.const 262144)))))
    (if (i32.eq (local.get $type) (i32.const 8)) (then
      (loop $more (drop (call $get (i32.const 0) (i64.const 0) (i32.const -1))) (br $more))))
    (if (i32.eq (local.get $type) (i32.const 9)) (then
      (loop $more (drop (call $find (i32.const 0) (i32.const 80) (i32.const 1))) (br $more))))
    (if (i32.eq (local.get $type) (i32.const 10)) (then
      (global.set $room (i32.const 262143))
      (local.set $got (call $get (i32.const 0) (i64.const 0) (i32.const 4)))))
    (memory.fill (i32.const 1024) (i32.const 0) (i32.const {VERDICT}))
    (i32.store8 (i32.const 1032) (i32.const 4))
    (i32.store16 (i32.const 1036) (local.get $got))
    (i32.store (i32.const 64) (i32.const 1024))
    (i32.store (i32.const 68) (i32.ne (local.get $got) (i32.const 0)))
    (i32.const 64)))"#
    );
    let exports = "export dnsweir:filter/configure@0.1.0; export dnsweir:filter/queries@0.1.0;";
    let world = format!("package test:guest; world guest {{ import dnsweir:filter/data@0.1.0; {exports} }}");
    module(&text, &world)
}

/// The text of [`refresher`], with placeholders VERDICT and REALLOC.
const REFRESHER: &str = r#"(module
  (import "dnsweir:filter/data@0.1.0" "published" (func $published (param i32 i32) (result i32)))
  (import "dnsweir:filter/data@0.1.0" "read" (func $read (param i32 i64 i32 i32)))
  (import "dnsweir:filter/output@0.1.0" "append" (func $append (param i32 i32 i32 i32) (result i32)))
  (import "dnsweir:filter/output@0.1.0" "publish" (func $publish (param i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (global $heap (mut i32) (i32.const 65536))
  (data (i32.const 16) "\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\01\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 80) "a\05no")
  REALLOC
  (func (export "dnsweir:filter/configure@0.1.0#configure") (param i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 16))
  (func $says (param $what i32) (param $at i32) (param $length i32) (result i32)
    (i32.store8 (i32.const 96) (local.get $what))
    (i32.store (i32.const 100) (local.get $at))
    (i32.store (i32.const 104) (local.get $length))
    (i32.const 96))
  (func $no (result i32) (call $says (i32.const 1) (i32.const 82) (i32.const 2)))
  (func (export "dnsweir:filter/refresh@0.1.0#on-refresh")
    (param $now i64) (param $sources i32) (param $length i32) (result i32)
    (local $how i32)
    (local.set $how (i32.wrap_i64 (local.get $now)))
    (if (i32.eq (local.get $how) (i32.const 1)) (then
      (drop (call $append (i32.const 80) (i32.const 1) (i32.const 81) (i32.const 1)))))
    (if (i32.eq (local.get $how) (i32.const 2)) (then
      (drop (call $publish (i32.const 80) (i32.const 1) (i32.load offset=16 (local.get $sources))))))
    (if (i32.eq (local.get $how) (i32.const 3)) (then unreachable))
    (if (i32.eq (local.get $how) (i32.const 4)) (then (loop $for_ever (br $for_ever))))
    (if (i32.eq (local.get $how) (i32.const 5)) (then
      (loop $more
        (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))
        unreachable)))
    (if (i32.eq (local.get $how) (i32.const 6)) (then
      (loop $more
        (br_if $more (call $append (i32.const 80) (i32.const 1) (i32.const 0) (i32.const 65536))))
      (return (call $no))))
    (if (i32.eq (local.get $how) (i32.const 7)) (then (return (call $no))))
    (if (i32.eq (local.get $how) (i32.const 8)) (then
      (return (call $says (i32.const 1) (i32.const 262140) (i32.const 5)))))
    (if (i32.eq (local.get $how) (i32.const 9)) (then
      (return (call $says (i32.const 7) (i32.const 0) (i32.const 0)))))
    (if (i32.eq (local.get $how) (i32.const 10)) (then
      (if (i32.eqz (call $publish (i32.const 80) (i32.const 1) (i32.const 99))) (then (return (call $no))))))
    (if (i32.eq (local.get $how) (i32.const 12)) (then
      (drop (call $append (i32.const 80) (i32.const 1) (i32.const 262140) (i32.const 5)))))
    (call $says (i32.const 0) (i32.const 0) (i32.const 0)))
  (func (export "dnsweir:filter/queries@0.1.0#on-queries")
    (param $now i64) (param $batch i32) (param $length i32) (param $bytes i32) (param $size i32) (result i32)
    (local $got i32)
    ;; Outside of a refresh it does nothing.
    (if (call $append (i32.const 80) (i32.const 1) (i32.const 81) (i32.const 1)) (then unreachable))
    (if (call $publish (i32.const 80) (i32.const 1) (i32.const 0)) (then unreachable))
    (call $read (call $published (i32.const 80) (i32.const 1)) (i64.const 0) (i32.const 1) (i32.const 96))
    (if (i32.load (i32.const 100)) (then (local.set $got (i32.load8_u (i32.load (i32.const 96))))))
    (memory.fill (i32.const 1024) (i32.const 0) (i32.const VERDICT))
    (i32.store8 (i32.const 1032) (i32.const 4))
    (i32.store16 (i32.const 1036) (local.get $got))
    (i32.store (i32.const 1028) (i32.const 1000))
    (i32.store (i32.const 64) (i32.const 1024))
    (i32.store (i32.const 68) (i32.ne (local.get $got) (i32.const 0)))
    (i32.const 64)))"#;

/// A guest whose refresh is selected by `now`, and which refuses queries with the first byte of what is
/// published as `a`, for a second:
///
/// | | |
/// |---|---|
/// | 1 | publishes 5 as `a` |
/// | 2 | publishes the first source as `a` |
/// | 3 | traps |
/// | 4 | runs for ever |
/// | 5 | allocates memory until none is left |
/// | 6 | writes until there is no room, and returns the error `no` |
/// | 7 | returns the error `no` |
/// | 8 | returns an error text outside of its memory |
/// | 9 | returns neither success nor failure |
/// | 10 | publishes data that does not exist, and returns the error `no` if it cannot |
/// | 11 | publishes nothing |
/// | 12 | writes bytes that lie outside of its memory |
pub(super) fn refresher() -> Vec<u8> {
    let text = REFRESHER
        .replace("REALLOC", REALLOC)
        .replace("VERDICT", &VERDICT.to_string());
    let exports = "export dnsweir:filter/configure@0.1.0; export dnsweir:filter/queries@0.1.0; \
        export dnsweir:filter/refresh@0.1.0;";
    let imports = "import dnsweir:filter/data@0.1.0; import dnsweir:filter/output@0.1.0;";
    module(
        &text,
        &format!("package test:guest; world guest {{ {imports} {exports} }}"),
    )
}
