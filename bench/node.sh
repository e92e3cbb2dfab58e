#!/bin/bash
# Measures what a query from a pod costs a whole Kubernetes node: with dnsweir, with node-cache, and with neither;
# README.md describes the method.
#
#   KUBE_BIN=FOLDER NODE_CACHE=PROGRAM bench/node.sh [iptables|nftables]
#
# Needs the prerequisites of tests/cluster/run.sh, which also fills KUBE_BIN, a build of kubernetes-sigs/node-local-dns,
# and target/release of this repository. ROUNDS, SECONDS_EACH, RATE and MISSES set the number of rounds, their length and
# the queries per second.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}/release
export KUBE_BIN=${KUBE_BIN:-${target%/release}/cluster} KUBE_STATE=${KUBE_STATE:-/tmp/dnsweir-bench-node}
export DNSWEIR=${DNSWEIR:-$target/dnsweir} PATH=${CONTAINERD:+$CONTAINERD:}$PATH:/usr/sbin:/sbin
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-4} rate=${RATE:-5000} misses=${MISSES:-2000}
cluster_dns=10.96.0.10 zone=bench.example.net
work=$(mktemp -d)
processes=() stopped=()

finish() {
    [ $? = 0 ] || cat "$work/log" >&2
    kill -CONT "${stopped[@]}" 2>/dev/null || true
    kill "${processes[@]}" 2>/dev/null || true
    wait "${processes[@]}" 2>/dev/null || true
    "$here/../tests/cluster/node.sh" down
    rm -r "$work"
}
trap finish EXIT
"$here/../tests/cluster/node.sh" up "${1:-iptables}"
kubectl=$KUBE_STATE/kubectl
node() { exec nsenter --net=/var/run/netns/dnsweir-node "$@"; }

# Gives the cluster's DNS, on the other node, the names to query, and removes what the cluster's tests have deployed on
# this one.
"$kubectl" -n kube-system create configmap coredns --dry-run=client -o yaml --from-file=Corefile=<(cat <<END
.:53 {
    errors
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa
    template ANY ANY nx.$zone {
        rcode NXDOMAIN
        authority "$zone. 30 IN SOA ns.$zone. admin.$zone. 1 3600 600 86400 30"
    }
    template IN A $zone {
        answer "{{ .Name }} 30 IN A 192.0.2.2"
    }
    template ANY ANY . {
        authority ". 30 IN SOA ns.$zone. admin.$zone. 1 3600 600 86400 30"
    }
}
END
) | "$kubectl" apply -f - > /dev/null 2>&1
"$kubectl" -n kube-system rollout restart deployment/coredns > /dev/null
"$kubectl" -n kube-system rollout status deployment/coredns --timeout=90s > /dev/null
"$kubectl" -n kube-system delete daemonset/dnsweir --wait > /dev/null
"$kubectl" -n kube-system wait --for=delete pod -l k8s-app=dnsweir --timeout=60s > /dev/null

# process NODE CONTAINER: prints the PID of the container of this name on a node.
process() {
    local container number
    containers() { ctr -a "$KUBE_STATE/$node/containerd.sock" -n k8s.io "$@"; }
    local node=$1
    for container in $(containers containers ls -q "labels.\"io.kubernetes.container.name\"==$2"); do
        number=$(containers tasks ls | awk -v name="$container" '$1 == name && $3 == "RUNNING" { print $2 }')
        [ -z "$number" ] || { echo "$number" && return; }
    done
    echo "no $2 runs on $node" >&2
    return 1
}
coredns=$(process other coredns)
pod=$(process node client)

# node-cache's Corefile is that of the addon's manifest, once with force_tcp and once without.
for last in 10 11; do
    cat <<END
$zone:53 {
    errors
    cache {
        success 9984 30
        denial 9984 5
    }
    reload
    loop
    bind 169.254.20.$last
    forward . $cluster_dns {
        $([ $last = 10 ] && echo force_tcp)
    }
    prometheus :92$last
}
END
done > "$work/Corefile"
# If the kernel has no dummy devices, a bridge without ports works as well.
(node sh -c "ip link add nodelocaldns type dummy 2> /dev/null || ip link add nodelocaldns type bridge
    ip addr add 169.254.20.10/32 dev nodelocaldns; ip addr add 169.254.20.11/32 dev nodelocaldns; ip link set nodelocaldns up")
node "${NODE_CACHE:?}" -setupinterface=false -localip 169.254.20.10,169.254.20.11 -conf "$work/Corefile" >> "$work/log" 2>&1 &
node_cache=$!
processes+=("$node_cache")

# dnsweir ADDRESS PROTOCOL
dnsweir() {
    cat > "$work/$2.kdl" <<END
listen "$1"
zone "." {
    cache
    forward "$cluster_dns" { protocol "$2" }
}
node { interface "dnsweir-$2"; iptables; cluster-dns "$cluster_dns" }
END
    node "$DNSWEIR" run --log-level warn --config "$work/$2.kdl" >> "$work/log" 2>&1 &
    processes+=($!)
}
dnsweir 169.254.20.12 tcp
by_tcp=${processes[-1]}
dnsweir 169.254.20.13 udp
by_udp=${processes[-1]}

# The minimum cost of the client and a server: a fixed reply, in the pod.
nsenter --net="/proc/$pod/ns/net" "$target/dnsweir-bench" upstream --listen 127.0.0.1:5300 >> "$work/log" 2>&1 &
floor=$!
processes+=("$floor")
sleep 5

# Stops everything else on the node, so that its costs are not measured.
for name in kubelet-{node,other} proxy-{node,other} scheduler controllers apiserver etcd containerd-{node,other}; do
    stopped+=("$(cat "$KUBE_STATE/pid/$name")")
done
kill -STOP "${stopped[@]}"

servers=floor@127.0.0.1:5300@$floor
servers+=,"nothing@$cluster_dns:53@$coredns"
servers+=,"node-cache/TCP@169.254.20.10:53@$node_cache,node-cache/UDP@169.254.20.11:53@$node_cache"
servers+=,"dnsweir/TCP@169.254.20.12:53@$by_tcp,dnsweir/UDP@169.254.20.13:53@$by_udp"
for measured in hot:$rate misses:$misses nxdomain:$rate; do
    IFS=: read -r workload load <<< "$measured"
    echo "## $workload, $load queries per second"
    nsenter --net="/proc/$pod/ns/net" "$target/dnsweir-bench" ask --whole-machine --servers "$servers" --workload "$workload" \
        --loads "$load" --burst 4 --rounds "$rounds" --seconds "$seconds"
done
