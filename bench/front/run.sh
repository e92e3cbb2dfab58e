#!/bin/bash
# Measures an answer cache in the kernel in front of the proxy; README.md describes the method. Needs root, clang,
# iproute2, ethtool, and target/release of this repository. Options are passed to `dnsweir-bench ask`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}/release
work=$(mktemp -d)
servers=()
places=()

finish() {
    kill "${servers[@]}" 2>/dev/null || true
    wait
    for name in client floor proxy front empty; do ip netns del "front-$name" 2>/dev/null || true; done
    rm -r "$work"
}
trap finish EXIT

# ready NAMESPACE ADDRESS: waits until something listens on it.
ready() {
    for _ in {1..100}; do
        ip netns exec "$1" bash -c "exec 3<>/dev/tcp/$2/53" 2>/dev/null && return
        sleep 0.1
    done
    echo "nothing answers on $2" >&2
    exit 1
}

# thread DEVICE CORE: pins the thread that receives the device's packets to a CPU, with the highest priority, like an
# interrupt. Prints its ID.
thread() {
    local id
    id=$(pgrep "^napi/$1-")
    taskset -p -c "$2" "$id" >/dev/null
    renice -n -20 -p "$id" >/dev/null
    echo "$id"
}

# link NUMBER NAME: a network namespace for a server, linked to the client's.
link() {
    local number=$1 server=front-$2 side namespace device
    ip netns add "$server"
    ip link add "fs$number" netns "$server" type veth peer name "fc$number" netns front-client
    ip -n "$server" addr add "10.97.$number.2/24" dev "fs$number"
    ip -n front-client addr add "10.97.$number.1/24" dev "fc$number"
    ip -n "$server" link set lo up
    for side in "$server fs$number" "front-client fc$number"; do
        read -r namespace device <<<"$side"
        ip -n "$namespace" link set "$device" up
        # Full checksums, as on a wire; GRO gives the device a poll loop.
        ip netns exec "$namespace" ethtool -K "$device" tx off gro on >/dev/null
        ip netns exec "$namespace" sh -c "echo 1 >/sys/class/net/$device/threaded"
    done
    ip -n front-client link set "fc$number" xdp obj "$work/front.o" program pass_all
    thread "fc$number" 1 >/dev/null
}

# serve NUMBER NAME COMMAND...: starts a server on CPU 0, and records the threads charged to it.
serve() {
    local number=$1 name=$2
    shift 2
    taskset -c 0 ip netns exec "front-$name" "$@" &
    servers+=($!)
    ready "front-$name" "10.97.$number.2"
    places+=("$name@10.97.$number.2:53@$(thread "fs$number" 0)+$!")
}

# proxy NUMBER NAME: starts the proxy, with an upstream on CPU 1.
proxy() {
    taskset -c 1 ip netns exec "front-$2" "$target/dnsweir-bench" upstream --listen 127.0.0.1:5300 &
    servers+=($!)
    cat >"$work/$2.kdl" <<END
listen "10.97.$1.2:53"
workers 1
zone "." {
    cache
    forward "127.0.0.1:5300"
}
END
    serve "$1" "$2" "$target/dnsweir" run --log-level warn --config "$work/$2.kdl"
}

# front NUMBER NAME: attaches the program to the server's end of the link; prints its ID.
front() {
    ip -n "front-$2" link set "fs$1" xdp obj "$work/front.o" program front
    ip -n "front-$2" link show "fs$1" | grep -oP 'prog/xdp id \K\d+'
}

clang -O2 -g -Wall -Wextra -Werror -target bpf -I"/usr/include/$(uname -m)-linux-gnu" -c "$here/front.c" -o "$work/front.o"
cc -O2 -Wall -Wextra -Werror -o "$work/fill" "$here/fill.c"

ip netns add front-client
ip -n front-client link set lo up
for place in 1:floor 2:proxy 3:front 4:empty; do link "${place%:*}" "${place#*:}"; done
serve 1 floor "$target/dnsweir-bench" floor --listen 10.97.1.2:53
for place in 2:proxy 3:front 4:empty; do proxy "${place%:*}" "${place#*:}"; done
program=$(front 3 front)
front 4 empty >/dev/null
seq -f 'h%010g.bench.example.net' 0 63 | ip netns exec front-front "$work/fill" "$program" 10.97.3.2

printf -v list '%s,' "${places[@]}"
ip netns exec front-client "$target/dnsweir-bench" ask --servers "${list%,}" "$@"
# Shows whether the program answered.
ip netns exec front-front ethtool -S fs3 | grep -E 'xdp_(packets|tx):'
