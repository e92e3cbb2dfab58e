#!/bin/bash
# Measures the queries that pods of a real Kubernetes node lose when something breaks: with dnsweir, with dnsweir in
# node-cache's place, and with node-cache.
#
#   KUBE_BIN=FOLDER NODE_CACHE=PROGRAM bench/troubles.sh TABLE [iptables|nftables]
#
# Needs the prerequisites of tests/cluster/run.sh, which also fills KUBE_BIN; a build of kubernetes-sigs/node-local-dns;
# cc, and musl-gcc for the musl clients. Lines SUBJECT;EVENT;CLIENT;ASKED;LOST;SLOW are appended to the file TABLE;
# combinations already in it are not measured again. ROWS selects events, separated by |. It takes an hour.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
target=${CARGO_TARGET_DIR:-target}
export KUBE_BIN=${KUBE_BIN:-$(realpath "$target/cluster")} KUBE_STATE=${KUBE_STATE:-/tmp/dnsweir-troubles}
export DNSWEIR=${DNSWEIR:-$(realpath "$target/release/dnsweir")} PATH=$PATH:/usr/sbin:/sbin
export NODE_CACHE DNSWEIR_TROUBLES
NODE_CACHE=$(realpath "${NODE_CACHE:?a build of kubernetes-sigs/node-local-dns}") DNSWEIR_TROUBLES=$(realpath "${1:?the table}")
source=$(go mod download -json "k8s.io/kubernetes@v${KUBERNETES:-1.35.4}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
export NODE_CACHE_MANIFEST=$source/cluster/addons/dns/nodelocaldns/nodelocaldns.yaml
trap 'tests/cluster/node.sh down' EXIT
tests/cluster/node.sh up "${2:-iptables}"
cargo xtask test --release --test node -- --ignored --nocapture --test-threads 1 cluster::troubles
