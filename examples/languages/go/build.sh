#!/bin/sh
# Builds names.wasm into a folder, `target` beside this file if none is given. Needs Go 1.24 or later.
set -eu
command -v go >/dev/null 2>&1 || { echo "Go needs its tools, version 1.24 or later: https://go.dev/dl" >&2; exit 1; }
into=${1:-target}
cd "$(dirname "$0")"
mkdir -p "$into"
GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags "-s -w" -o "$into/names.wasm" .
