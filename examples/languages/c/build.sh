#!/bin/sh
# Builds names.wasm into a folder, by default `target` beside this file. Needs clang and lld.
set -eu
{ command -v clang && command -v wasm-ld; } >/dev/null 2>&1 || { echo "C needs clang and lld, version 14 or later; Debian: apt-get install clang lld" >&2; exit 1; }
into=${1:-target}
cd "$(dirname "$0")"
mkdir -p "$into"
clang --target=wasm32 -std=c11 -Wall -Wextra -Werror -O2 -flto -ffreestanding -mbulk-memory -nostdlib \
    -Wl,--no-entry -Wl,--lto-O2 -Wl,--strip-all -Wl,-z,stack-size=16384 -o "$into/names.wasm" names.c dnsweir.c
