#!/bin/sh
# Builds names.wasm into a folder, `target` beside this file if none is given. Needs Go 1.24 or later.
set -eu
command -v go >/dev/null 2>&1 || { echo "Go needs its tools, version 1.24 or later: https://go.dev/dl" >&2; exit 1; }
into=${1:-target}
cd "$(dirname "$0")"
mkdir -p "$into"
# Go uses all memory after its data as its heap. dnsweir's adapter between it and WASI has allocated two pages there,
# one of them when the clock is first read. So the runtime reads the clock first, and starts its heap after them.
runtime=$(go env GOROOT)/src/runtime/os_wasm.go
sed -e 's/^\tinitBloc()$/\tnanotime1()\n&/' -e 's/^\tblocMax = uintptr(currentMemory.*/&\n\tbloc = blocMax/' "$runtime" > "$into/os_wasm.go"
grep -q 'bloc = blocMax$' "$into/os_wasm.go" || { echo "$runtime is not as build.sh knows it" >&2; exit 1; }
printf '{ "Replace": { "%s": "%s/os_wasm.go" } }\n' "$runtime" "$(cd "$into" && pwd)" > "$into/overlay.json"
GOOS=wasip1 GOARCH=wasm go build -overlay "$into/overlay.json" -buildmode=c-shared -ldflags "-s -w" -o "$into/names.wasm" .
rm "$into/os_wasm.go" "$into/overlay.json"
