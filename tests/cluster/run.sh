#!/bin/bash
# Runs the node's tests on a real Kubernetes node: once with kube-proxy in iptables mode, once in nftables
# mode. Needs root, Go and the packages that node.sh names.
#
#   tests/cluster/run.sh [iptables|nftables]...
#
# The first run builds Kubernetes (ten minutes) into $KUBE_BIN, which later ones use again.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
export KUBE_BIN=${KUBE_BIN:-$root/target/cluster/bin} KUBE_STATE=${KUBE_STATE:-/tmp/dnsweir-cluster}
[ -x "$KUBE_BIN/coredns" ] || "$here/programs.sh" "$KUBE_BIN"
cd "$root"
cargo build --release -p dnsweir
export DNSWEIR=${CARGO_TARGET_DIR:-$root/target}/release/dnsweir
[ $# -gt 0 ] || set -- iptables nftables
for mode; do
    trap '"$here/node.sh" down' EXIT
    "$here/node.sh" up "$mode"
    cargo test --release -p dnsweir --test node -- --ignored --nocapture --test-threads 1 cluster::
    "$here/node.sh" down
    trap - EXIT
done
