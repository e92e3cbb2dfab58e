#!/bin/bash
# Two Kubernetes nodes in separate network namespaces: node.sh up iptables|nftables, node.sh down
#
#   node 10.200.0.2, pods 10.244.0.0/24 ──┐
#                                         ├── outside 10.200.0.1, a bridge: the world
#   other 10.200.0.3, pods 10.244.1.0/24 ─┘
#
# `node` has the control plane and the client pod; `other` has the cluster's DNS. Between them there are routes and no
# translation: neither the CNI plugin nor kube-proxy masquerades, since kube-proxy does not know which addresses are pods'.
#
# Needs root and: etcd-server containerd runc containernetworking-plugins busybox-static iptables nftables
# iproute2 python3. State is kept in $KUBE_STATE.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
outside=dnsweir-outside
nodes=(node other)
state=${KUBE_STATE:?} bin=${KUBE_BIN:?}

inside() { nsenter --net=/var/run/netns/dnsweir-"$@"; }
start() { # NODE NAME PROGRAM ARGUMENT...
    local namespace=dnsweir-$1 name=$2; shift 2
    # Not with `inside`: the PID would be that of a wrapping shell.
    nsenter --net=/var/run/netns/$namespace "$@" > "log/$name" 2>&1 & echo $! > "pid/$name"
}
containers() { local node=$1; shift; ctr -a "$state/$node/containerd.sock" -n k8s.io "$@"; }

# host NAME NUMBER: a namespace with an address on the bridge, whose last part is NUMBER.
host() {
    local node=dnsweir-$1 number=$2 pods=$(($2 - 2))
    ip netns add "$node"
    ip -n "$node" link add eth0 type veth peer name "$1" netns $outside
    ip -n $outside link set "$1" master lan up
    ip -n "$node" addr add "10.200.0.$number/24" dev eth0
    ip -n "$node" addr add "fd00:200::$number/64" dev eth0 nodad
    ip -n "$node" link set lo up && ip -n "$node" link set eth0 up
    ip -n "$node" route add default via 10.200.0.1 && ip -n "$node" -6 route add default via fd00:200::1
    inside "$1" sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
    # The route to its pods, for the others.
    ip -n $outside route add "10.244.$pods.0/24" via "10.200.0.$number"
    ip -n $outside -6 route add "fd00:244:0:$pods::/64" via "fd00:200::$number"
}

network() {
    ip netns add $outside
    ip -n $outside link set lo up
    ip -n $outside link add lan type bridge && ip -n $outside link set lan up
    ip -n $outside addr add 10.200.0.1/24 dev lan && ip -n $outside addr add fd00:200::1/64 dev lan nodad
    host node 2
    host other 3
    ip -n dnsweir-node route add 10.244.1.0/24 via 10.200.0.3
    ip -n dnsweir-node -6 route add fd00:244:0:1::/64 via fd00:200::3
    ip -n dnsweir-other route add 10.244.0.0/24 via 10.200.0.2
    ip -n dnsweir-other -6 route add fd00:244::/64 via fd00:200::2
}

# A group in every cgroup hierarchy, since a kubelet ends pods that it does not know.
groups() {
    local folder
    for folder in /sys/fs/cgroup/*/; do
        [ -e /sys/fs/cgroup/cgroup.controllers ] || mkdir -p "$folder/dnsweir-$1"
    done
    [ ! -e /sys/fs/cgroup/cgroup.controllers ] || mkdir -p "/sys/fs/cgroup/dnsweir-$1"
}

# join NAME NUMBER MODE: starts what runs on every node.
join() {
    local name=$1 number=$2 mode=$3 file
    mkdir -p "$name/cni" && groups "$name"
    for file in containerd.toml kubelet.yaml pods.conflist; do
        sed "s|STATE|$state/$name|g; s|NODE|$name|g; s|PODS|$((number - 2))|g" "$here/$file" > "$name/$file"
    done
    mv "$name/pods.conflist" "$name/cni/10-pods.conflist"
    echo nameserver 10.200.0.1 > "$name/resolv.conf"
    start "$name" "containerd-$name" containerd -c "$name/containerd.toml"
    # Without --cluster-cidr.
    printf '#!/bin/sh\nexec nsenter --net=/var/run/netns/dnsweir-%s "%s" --kubeconfig="%s" --proxy-mode=%s --hostname-override=%s --conntrack-max-per-core=0 "$@"\n' \
        "$name" "$bin/kube-proxy" "$state/kubeconfig" "$mode" "$name" > "kube-proxy-$name"
    chmod +x "kube-proxy-$name"
    start "$name" "proxy-$name" "./kube-proxy-$name"
    start "$name" "kubelet-$name" "$bin/kubelet" --config="$name/kubelet.yaml" --kubeconfig=kubeconfig \
        --hostname-override="$name" --node-ip="10.200.0.$number,fd00:200::$number" --root-dir="$state/$name/kubelet" \
        --cert-dir="$state/$name/kubelet-certs"
}

up() {
    mkdir -p "$state"/{certs,log,pid,image} && cd "$state"
    ip netns list | cut -d' ' -f1 | sort > namespaces
    network
    openssl genrsa -out account.key 2048 2> /dev/null && openssl rsa -in account.key -pubout -out account.pub 2> /dev/null
    echo 'secret,admin,1,"system:masters"' > tokens
    cp "$here/kubeconfig.yaml" kubeconfig

    start node etcd etcd --data-dir "$state/etcd" --listen-client-urls http://127.0.0.1:2379 \
        --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
    start node apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 \
        --bind-address=10.200.0.2 --advertise-address=10.200.0.2 --cert-dir=certs --token-auth-file=tokens \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=account.pub \
        --service-account-signing-key-file=account.key --service-cluster-ip-range=10.96.0.0/16,fd00:96::/112 \
        --authorization-mode=Node,RBAC --allow-privileged=true --kubelet-preferred-address-types=InternalIP
    printf '#!/bin/sh\nexec nsenter --net=/var/run/netns/dnsweir-node "%s" --kubeconfig "%s" "$@"\n' \
        "$bin/kubectl" "$state/kubeconfig" > kubectl
    chmod +x kubectl
    timeout 180 sh -c 'until ./kubectl get --raw /readyz > /dev/null 2>&1; do sleep 0.5; done'
    start node controllers "$bin/kube-controller-manager" --kubeconfig=kubeconfig --leader-elect=false \
        --service-account-private-key-file=account.key --root-ca-file=certs/apiserver.crt
    start node scheduler "$bin/kube-scheduler" --kubeconfig=kubeconfig --leader-elect=false
    join node 2 "$1"
    join other 3 "$1"
    local node
    for node in "${nodes[@]}"; do
        timeout 60 sh -c "until ctr -a '$state/$node/containerd.sock' version > /dev/null 2>&1; do sleep 0.2; done"
    done

    image box "$(command -v busybox)"
    image coredns "$bin/coredns"
    "$(dirname "$DNSWEIR")/dnsweir-packaging" --program "$DNSWEIR" --out image/shipped image > /dev/null
    import image/shipped/*.tar
    [ -z "${NODE_CACHE:-}" ] || image node-cache "$NODE_CACHE" "$(command -v xtables-nft-multi)"
    ./kubectl apply --validate=strict -f "$here/cluster.yaml" > /dev/null
    timeout 180 sh -c 'until ./kubectl get node/node node/other > /dev/null 2>&1; do sleep 0.5; done'
    ./kubectl wait --for=condition=Ready node/node node/other --timeout=60s > /dev/null
    ./kubectl -n kube-system rollout status deployment/coredns --timeout=90s > /dev/null
    ./kubectl apply --validate=strict -k "$here" > /dev/null
    ./kubectl -n kube-system rollout status daemonset/dnsweir --timeout=60s > /dev/null
    ./kubectl wait --for=condition=Ready pod/client --timeout=60s > /dev/null
    echo "two nodes with kube-proxy in $1 mode: $state/kubectl"
}

# image NAME PROGRAM...: packs programs with their libraries, and imports the image.
image() {
    local name=$1 root=image/$1 program library; shift
    mkdir -p "$root"/{bin,tmp,run,etc}
    for program; do
        cp "$program" "$root/bin/"
        for library in $(ldd "$program" 2> /dev/null | grep -o '/[^ ]*'); do
            install -D "$library" "$root$library"
        done
    done
    if [ -e "$root/bin/xtables-nft-multi" ]; then
        for program in iptables ip6tables iptables-nft-save ip6tables-nft-save; do
            ln -sf xtables-nft-multi "$root/bin/$program"
        done
        local extensions=/usr/lib/x86_64-linux-gnu/xtables
        mkdir -p "$root$extensions" && cp $extensions/*.so "$root$extensions/"
    fi
    python3 "$here/image.py" "$root" "docker.io/local/$name:1" "image/$name.tar"
    import "image/$name.tar"
}

# Imports an image on both nodes.
import() {
    local node
    for node in "${nodes[@]}"; do containers "$node" images import "$1" > /dev/null; done
}

down() {
    cd "$state" || exit 0
    local name node task
    for name in kubelet-{node,other} proxy-{node,other} scheduler controllers apiserver; do kill "$(cat "pid/$name")" || true; done
    for node in "${nodes[@]}"; do
        containers "$node" tasks ls -q | while read -r task; do containers "$node" tasks kill -s KILL "$task"; done || true
    done
    # The shims report the ends of their tasks.
    sleep 2
    for node in "${nodes[@]}"; do
        containers "$node" containers ls -q | while read -r task; do
            containers "$node" tasks rm -f "$task" || true; containers "$node" containers rm "$task" || true
        done
    done
    for name in containerd-{node,other} etcd; do kill "$(cat "pid/$name")" || true; done
    for name in kubelet-{node,other} containerd-{node,other} etcd; do
        timeout 10 tail --pid="$(cat "pid/$name")" -f /dev/null || true
    done
    awk -v state="$state/" 'index($2, state) == 1 { print $2 }' /proc/mounts | tac | xargs -r -n1 umount -l
    for node in "${nodes[@]}"; do find /sys/fs/cgroup -depth -type d -path "*/dnsweir-$node*" -exec rmdir {} + ; done || true
    # Other processes may have created some meanwhile.
    ip netns list | cut -d' ' -f1 | sort | comm -13 namespaces - | { grep -xE 'cni-.*|dnsweir-(node|other|outside)' || true; } |
        while read -r name; do ip netns del "$name"; done
    cd / && rm -rf "$state" || { sleep 1; rm -rf "$state"; }
}

case ${1:-} in
up) up "${2:?iptables or nftables}" ;;
down) down > /dev/null 2>&1 ;;
*) echo "node.sh up iptables|nftables, node.sh down" >&2; exit 64 ;;
esac
