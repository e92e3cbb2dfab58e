#!/bin/sh
# Builds rewrite and nodecache with one constant changed, so that their verdicts are not remembered and the proxy calls
# them for every query. For the peer `dnsweir+3-called`.
#
# usage: bench/called-filters.sh FOLDER      (from the root of the repository)
set -eu
into=${1:?usage: bench/called-filters.sh FOLDER}
mkdir -p "$into"
into=$(cd "$into" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git archive HEAD | tar -x -C "$copy"
for filter in rewrite nodecache; do
    file=$copy/filters/$filter/src/lib.rs
    sed -i 's/^const REMEMBER: Duration = .*;/const REMEMBER: Duration = Duration::ZERO;/' "$file"
    grep -q 'REMEMBER: Duration = Duration::ZERO' "$file" || {
        echo "$filter has no constant REMEMBER any more; change this script" >&2
        exit 1
    }
done
# The copy is deleted; compiled files are kept.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/called-filters"
cd "$copy"
cargo build --release --target wasm32-unknown-unknown -p dnsweir-filter-rewrite -p dnsweir-filter-nodecache
for filter in rewrite nodecache; do
    cp "$CARGO_TARGET_DIR/wasm32-unknown-unknown/release/dnsweir_filter_$filter.wasm" "$into/$filter.wasm"
done
