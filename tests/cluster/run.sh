#!/bin/bash
# Compares dnsweir with CoreDNS, and runs the node's tests on two real Kubernetes nodes: once with kube-proxy in iptables
# mode, once in nftables mode. `cargo xtask test cluster` calls it, and `cargo xtask test` with CI=true.
#
#   tests/cluster/run.sh [iptables|nftables]...
#   tests/cluster/run.sh prepare      only builds what is missing
#
# The first run builds Kubernetes (about eight minutes) into $KUBE_BIN, which later runs reuse, and downloads the schemas of
# Istio's and multicluster objects (1.5 MB). With NODE_CACHE=PATH, the program of kubernetes-sigs/node-local-dns is also
# replaced by the proxy and back; otherwise a stand-in of ours is used. With CONTAINERD=FOLDER, the nodes use the
# containerd, ctr and containerd-shim-runc-v2 there, for example built with `GOBIN=FOLDER go install` from
# github.com/containerd/containerd/v2/cmd/…; from 2.1 on, filters in image volumes are tested too, which Debian's lacks.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
target=${CARGO_TARGET_DIR:-$root/target}
export KUBE_BIN=${KUBE_BIN:-$target/cluster} KUBE_STATE=${KUBE_STATE:-/tmp/dnsweir-cluster}
export DNSWEIR=${DNSWEIR_PROGRAMS:-$target/release}/dnsweir PATH=${CONTAINERD:+$(realpath "$CONTAINERD"):}$PATH:/usr/sbin:/sbin

# The same convention as `needs` in tests/harness/tools.rs.
missing=()
[ "$(id -u)" = 0 ] || missing+=(root)
for program in etcd containerd ctr runc conntrack iptables nft ip nsenter python3 openssl busybox /usr/lib/cni/bridge; do
    command -v "$program" > /dev/null || missing+=("$program")
done
{ [ -x "$KUBE_BIN/coredns" ] && [ -x "$KUBE_BIN/helm" ] && [ -e "$KUBE_BIN/schemas/monitors.yaml" ]; } || command -v go > /dev/null || missing+=(go)
if [ ${#missing[@]} -gt 0 ]; then
    line="cluster: needs ${missing[*]}"
    case ${CI:-} in
    true | 1) echo "with CI=true nothing is skipped; $line" >&2; exit 1 ;;
    *) echo "skipped: $line" >&2; echo "$line" >> "${DNSWEIR_SKIPPED_TESTS:-/dev/null}"; exit ;;
    esac
fi

cd "$root"
# Namespaces, addresses and built programs are shared by the whole machine: one run at a time. Processes started by a run
# do not inherit the lock, so leftovers of a killed run cannot hold it.
exec 9> "$KUBE_STATE.lock"
flock --nonblock 9 || { echo "waiting for the other run on this machine"; flock 9; }
if [ ! -x "$KUBE_BIN/coredns" ] || [ ! -x "$KUBE_BIN/helm" ]; then
    echo "building Kubernetes and CoreDNS into $KUBE_BIN: about eight minutes"
    "$here/programs.sh" "$KUBE_BIN" 9>&-
fi
[ -e "$KUBE_BIN/schemas/monitors.yaml" ] || "$here/schemas.sh" "$KUBE_BIN/schemas" 9>&-
[ "${1:-}" != prepare ] || exit 0
# Runs the tests that need the programs built here, with the same build of dnsweir as other tests.
tests() {
    local release=()
    [ "${DNSWEIR_BUILD:-release}" = quick ] || release=(--release)
    cargo xtask test "${release[@]}" "$@"
}
if [ -n "${NODE_CACHE:-}" ]; then
    source=$(go mod download -json "k8s.io/kubernetes@v${KUBERNETES:-1.35.4}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
    NODE_CACHE=$(realpath "$NODE_CACHE")
    export NODE_CACHE NODE_CACHE_MANIFEST=$source/cluster/addons/dns/nodelocaldns/nodelocaldns.yaml
fi
COREDNS=$KUBE_BIN/coredns tests --test main -- --ignored --nocapture coredns:: 9>&-
[ $# -gt 0 ] || set -- iptables nftables
# Only rules depend on kube-proxy's mode; tests of objects and of the API server run once.
once=(chart cluster_dns ending manifests records searches service_entries several_clusters webhook who)
skipped=()
for mode; do
    trap '"$here/node.sh" down 9>&-' EXIT
    "$here/node.sh" up "$mode" 9>&-
    tests --test node -- --ignored --nocapture --test-threads 1 cluster:: "${skipped[@]}" 9>&-
    "$here/node.sh" down 9>&-
    trap - EXIT
    for part in "${once[@]}"; do skipped+=(--skip "cluster::$part::"); done
done
