#!/bin/sh
# Builds names.wasm into a folder, by default `target` beside this file. Needs Node.js 20 with npm, which fetches one
# package.
set -eu
command -v npm >/dev/null 2>&1 || { echo "JavaScript needs Node.js 20 or later with npm: https://nodejs.org" >&2; exit 1; }
into=${1:-target}
cd "$(dirname "$0")"
mkdir -p "$into"
into=$(cd "$into" && pwd)
[ -x "$into/node_modules/.bin/componentize-qjs" ] ||
    npm install --silent --no-audit --no-fund --no-save --prefix "$into" componentize-qjs@0.4.5
# The tool needs the world and its dependencies in one folder.
mkdir -p "$into/wit/deps/filter"
cp world.wit "$into/wit/"
cp ../../../wit/*.wit "$into/wit/deps/filter/"
"$into/node_modules/.bin/componentize-qjs" --sync --opt-size --wit "$into/wit" --world names \
    --js names.js --output "$into/names.wasm"
