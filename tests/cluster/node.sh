#!/bin/bash
# One Kubernetes node in a network namespace of its own: node.sh up iptables|nftables, node.sh down
#
# Needs root and: etcd-server containerd runc containernetworking-plugins busybox-static iptables nftables
# iproute2 python3. A second namespace, 10.200.0.1, is the world outside. State is kept in $KUBE_STATE.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
node=dnsweir-kube outside=dnsweir-outside
state=${KUBE_STATE:?} bin=${KUBE_BIN:?}

inside() { nsenter --net=/var/run/netns/$node "$@"; }
start() { # NAME PROGRAM ARGUMENT...
    local name=$1; shift
    # Not by `inside`: the number would be that of a shell around it.
    nsenter --net=/var/run/netns/$node "$@" > "log/$name" 2>&1 & echo $! > "pid/$name"
}
containers() { ctr -a "$state/containerd.sock" -n k8s.io "$@"; }

up() {
    mkdir -p "$state"/{cni,certs,log,pid,image} && cd "$state"
    ip netns list | cut -d' ' -f1 | sort > namespaces
    ip netns add $node && ip netns add $outside
    ip -n $node link add eth0 type veth peer name eth0 netns $outside
    ip -n $outside addr add 10.200.0.1/24 dev eth0 && ip -n $node addr add 10.200.0.2/24 dev eth0
    ip -n $outside addr add fd00:200::1/64 dev eth0 nodad && ip -n $node addr add fd00:200::2/64 dev eth0 nodad
    for namespace in $node $outside; do
        ip -n $namespace link set lo up && ip -n $namespace link set eth0 up
    done
    ip -n $node route add default via 10.200.0.1
    ip -n $node -6 route add default via fd00:200::1
    inside sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'

    openssl genrsa -out account.key 2048 2> /dev/null && openssl rsa -in account.key -pubout -out account.pub 2> /dev/null
    echo 'secret,admin,1,"system:masters"' > tokens
    sed "s|STATE|$state|" "$here/kubeconfig.yaml" > kubeconfig
    sed "s|STATE|$state|" "$here/containerd.toml" > containerd.toml
    sed "s|STATE|$state|" "$here/kubelet.yaml" > kubelet.yaml
    sed "s|STATE|$state|" "$here/pods.conflist" > cni/10-pods.conflist
    echo nameserver 10.200.0.1 > resolv.conf

    start etcd etcd --data-dir "$state/etcd" --listen-client-urls http://127.0.0.1:2379 \
        --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
    start containerd containerd -c containerd.toml
    start apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 \
        --bind-address=10.200.0.2 --advertise-address=10.200.0.2 --cert-dir=certs --token-auth-file=tokens \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=account.pub \
        --service-account-signing-key-file=account.key --service-cluster-ip-range=10.96.0.0/16,fd00:96::/112 \
        --authorization-mode=Node,RBAC --allow-privileged=true --kubelet-preferred-address-types=InternalIP
    printf '#!/bin/sh\nexec nsenter --net=/var/run/netns/%s "%s" --kubeconfig "%s" "$@"\n' \
        $node "$bin/kubectl" "$state/kubeconfig" > kubectl
    chmod +x kubectl
    timeout 60 sh -c 'until ./kubectl get --raw /readyz > /dev/null 2>&1; do sleep 0.5; done'
    start controllers "$bin/kube-controller-manager" --kubeconfig=kubeconfig --leader-elect=false \
        --service-account-private-key-file=account.key --root-ca-file=certs/apiserver.crt \
        --cluster-cidr=10.244.0.0/16,fd00:244::/56 --allocate-node-cidrs=true
    start scheduler "$bin/kube-scheduler" --kubeconfig=kubeconfig --leader-elect=false
    start proxy "$bin/kube-proxy" --kubeconfig=kubeconfig --proxy-mode="$1" --cluster-cidr=10.244.0.0/16,fd00:244::/56 \
        --hostname-override=node --conntrack-max-per-core=0
    start kubelet "$bin/kubelet" --config=kubelet.yaml --kubeconfig=kubeconfig --hostname-override=node \
        --node-ip=10.200.0.2,fd00:200::2 --root-dir="$state/kubelet" --cert-dir="$state/kubelet-certs"

    image box "$(command -v busybox)"
    image coredns "$bin/coredns"
    image dnsweir "$DNSWEIR" "$(command -v xtables-nft-multi)" "$(command -v nft)"
    ./kubectl apply --validate=strict -f "$here/cluster.yaml" > /dev/null
    timeout 60 sh -c 'until ./kubectl get node/node > /dev/null 2>&1; do sleep 0.5; done'
    ./kubectl wait --for=condition=Ready node/node --timeout=60s > /dev/null
    ./kubectl -n kube-system rollout status deployment/coredns --timeout=90s > /dev/null
    ./kubectl apply --validate=strict -k "$here" > /dev/null
    ./kubectl -n kube-system rollout status daemonset/dnsweir --timeout=60s > /dev/null
    ./kubectl wait --for=condition=Ready pod/client --timeout=60s > /dev/null
    echo "a node with kube-proxy in $1 mode: $state/kubectl"
}

# Packs programs with the libraries they ask for, and imports the image: image NAME PROGRAM...
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
    containers images import "image/$name.tar" > /dev/null
}

down() {
    cd "$state" || exit 0
    for name in kubelet proxy scheduler controllers apiserver; do kill "$(cat pid/$name)" || true; done
    containers tasks ls -q | while read -r task; do containers tasks kill -s KILL "$task"; done || true
    # The shims report the ends of their tasks.
    sleep 2
    containers containers ls -q | while read -r name; do
        containers tasks rm -f "$name" || true; containers containers rm "$name" || true
    done
    for name in containerd etcd; do kill "$(cat pid/$name)" || true; done
    timeout 10 tail --pid="$(cat pid/kubelet)" --pid="$(cat pid/containerd)" --pid="$(cat pid/etcd)" -f /dev/null || true
    awk -v state="$state/" 'index($2, state) == 1 { print $2 }' /proc/mounts | tac | xargs -r -n1 umount -l
    ip netns list | cut -d' ' -f1 | sort | comm -13 namespaces - | while read -r name; do ip netns del "$name"; done
    cd / && rm -rf "$state" || { sleep 1; rm -rf "$state"; }
}

case ${1:-} in
up) up "${2:?iptables or nftables}" ;;
down) down > /dev/null 2>&1 ;;
*) echo "node.sh up iptables|nftables, node.sh down" >&2; exit 64 ;;
esac
