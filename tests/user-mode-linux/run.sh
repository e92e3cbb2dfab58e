#!/bin/bash
# Tests the node's setup on a kernel with dummy links, IPVS and legacy iptables: Debian's user-mode-linux, with this
# machine's files as its root. Needs root and: user-mode-linux kmod iptables iproute2 ipvsadm
# bind9-dnsutils, and a C compiler.
#
#   tests/user-mode-linux/run.sh PATH/TO/dnsweir
set -euo pipefail
here=$(dirname "$(realpath "$0")")
dnsweir=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
log=$folder/log
cc -O1 -shared -fPIC -o "$folder/extended-state.so" "$here/extended-state.c"
LD_PRELOAD=$folder/extended-state.so timeout 600 linux.uml rootfstype=hostfs rootflags=/ root=/dev/root rw mem=512M quiet con=null con0=fd:0,fd:1 \
    init="$here/inside.sh" DNSWEIR="$dnsweir" < /dev/null > "$log" 2>&1 || true
grep -a '^[-=+ok!]' "$log" || cat "$log"
grep -aq '^=== all well' "$log"
