#!/bin/sh
# Builds names.wasm into a folder, by default `target` beside this file. Needs Rust with the target
# wasm32-unknown-unknown.
set -eu
into=${1:-target}
cd "$(dirname "$0")"
cargo build --quiet --release --target wasm32-unknown-unknown --target-dir "$into"
cp "$into/wasm32-unknown-unknown/release/names.wasm" "$into/names.wasm"
