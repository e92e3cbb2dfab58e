#!/bin/sh
# Builds names.wasm into a folder, `target` beside this file if none is given. Needs clang and lld.
set -eu
into=${1:-target}
cd "$(dirname "$0")"
mkdir -p "$into"
clang --target=wasm32 -std=c11 -Wall -Wextra -Werror -O2 -flto -ffreestanding -mbulk-memory -nostdlib \
    -Wl,--no-entry -Wl,--lto-O2 -Wl,--strip-all -Wl,-z,stack-size=16384 -o "$into/names.wasm" names.c dnsweir.c
