#!/bin/sh
# Builds names.wasm into a folder, by default `target` beside this file. Needs Go 1.24 or later.
set -eu
command -v go >/dev/null 2>&1 || { echo "Go needs its tools, version 1.24 or later: https://go.dev/dl" >&2; exit 1; }
into=${1:-target}
cd "$(dirname "$0")"
mkdir -p "$into"
# Go uses all memory after its data as its heap. The WASI adapter that dnsweir adds has allocated two pages there, one of
# them at the first reading of the clock. So the patched runtime reads the clock first, and starts its heap after them.
runtime=$(go env GOROOT)/src/runtime/os_wasm.go
sed -e 's/^\tinitBloc()$/\tnanotime1()\n&/' -e 's/^\tblocMax = uintptr(currentMemory.*/&\n\tbloc = blocMax/' "$runtime" > "$into/os_wasm.go"
grep -q 'bloc = blocMax$' "$into/os_wasm.go" || { echo "$runtime has changed; adapt build.sh" >&2; exit 1; }
printf '{ "Replace": { "%s": "%s/os_wasm.go" } }\n' "$runtime" "$(cd "$into" && pwd)" > "$into/overlay.json"
GOOS=wasip1 GOARCH=wasm go build -overlay "$into/overlay.json" -buildmode=c-shared -ldflags "-s -w" -o "$into/names.wasm" .
rm "$into/os_wasm.go" "$into/overlay.json"
