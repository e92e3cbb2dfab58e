#!/bin/bash
# The first process of the user-mode kernel; run.sh starts it.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t tmpfs tmp /run && mkdir /run/t
# Debian keeps this kernel's modules where neither our modprobe nor the kernel's looks.
release=$(uname -r)
mkdir -p /run/t/root/lib/modules && ln -s "/usr/lib/uml/modules/$release" "/run/t/root/lib/modules/$release"
printf '#!/bin/sh\nexec modprobe -d /run/t/root "$@"\n' > /run/t/modprobe && chmod +x /run/t/modprobe
echo /run/t/modprobe > /proc/sys/kernel/modprobe
for module in dummy ip_vs ip_vs_rr veth nf_conntrack xt_socket xt_CT xt_comment xt_nat xt_MASQUERADE \
    iptable_raw iptable_filter iptable_nat ip6table_raw ip6table_filter ip6table_nat; do
    modprobe -d /run/t/root $module
done
ip link set lo up
echo 1 > /proc/sys/net/ipv4/vs/conntrack; echo 1 > /proc/sys/net/ipv4/ip_forward

fail() { echo "! $*"; echo o > /proc/sysrq-trigger; sleep 9; }
check() { # WHAT COMMAND...
    local what=$1; shift
    "$@" > /run/t/output 2>&1 && echo "ok $what" || { sed 's/^/- /' /run/t/output; fail "$what"; }
}
rules() { for t in raw filter nat; do iptables-legacy -t $t -S; ip6tables-legacy -t $t -S; done; }
# Without the lifetimes of addresses, and without the state of duplicate address detection.
network() { ip -o link | sed 's/qlen.*//'; ip -o addr | sed 's/ tentative//; s/valid_lft.*//'; rules; }

cat > /run/t/dnsweir.kdl <<'X'
listen "169.254.20.10" "fd00:20::10"
admin "127.0.0.1:8080"
zone "example" { file "/run/t/proxy.zone" }
node { interface "nodelocaldns"; iptables; mode "link-local"; cluster-dns "10.96.0.10" }
X
# Zone files instead of a filter, whose time limit would pass while this kernel is paused.
zone_of() { printf '@ 60 SOA ns.example. root.example. 1 60 60 60 60\n@ 60 NS ns.example.\nns 60 A %s\nwww 60 A %s\n' "$1" "$1"; }
zone_of 192.0.2.1 > /run/t/proxy.zone; zone_of 192.0.2.2 > /run/t/cluster.zone
# Like kube-proxy in IPVS mode: the cluster's address on a separate link, with real servers behind it.
# The cluster's DNS is 10.244.8.2, in a namespace, and answers 192.0.2.2.
ip link add kube-ipvs0 type dummy && ip addr add 10.96.0.10/32 dev kube-ipvs0
ip netns add dns && ip link add to8 type veth peer name eth0 netns dns
ip addr add 10.244.8.1/24 dev to8 && ip link set to8 up
ip -n dns addr add 10.244.8.2/24 dev eth0 && ip -n dns link set eth0 up && ip -n dns link set lo up
ip -n dns route add default via 10.244.8.1
ip netns add pod && ip link add to7 type veth peer name eth0 netns pod
ip addr add 10.244.7.1/24 dev to7 && ip link set to7 up
ip -n pod addr add 10.244.7.2/24 dev eth0 && ip -n pod link set eth0 up && ip -n pod link set lo up
ip -n pod route add default via 10.244.7.1
ipvsadm -A -u 10.96.0.10:53 -s rr && ipvsadm -a -u 10.96.0.10:53 -r 10.244.8.2:53 -m
sed 's/listen.*/listen "10.244.8.2"/; s/proxy.zone/cluster.zone/; /^admin/d; /^node/d' /run/t/dnsweir.kdl > /run/t/cluster.kdl
ip netns exec dns "$DNSWEIR" run --config /run/t/cluster.kdl 2> /run/t/cluster.log &
# Marks the node's legacy tables as in use.
for c in iptables-legacy ip6tables-legacy; do $c -t raw -N KUBE-HINT; $c -t filter -N KUBE-HINT; $c -t nat -N KUBE-HINT; done

# This kernel pauses while its host runs other processes: dig retries if an answer comes too late.
answers() { # ADDRESS: also prints the answer
    ip netns exec pod timeout 90 dig +tries=8 +timeout=10 @169.254.20.10 www.example > /run/t/answer; cat /run/t/answer /run/t/cluster.log
    [ "$(awk '$4 == "A" { print $5 }' /run/t/answer)" = "$1" ]
}
until grep -q 'answering queries' /run/t/cluster.log; do sleep 0.1; done

network > /run/t/before
check "up" "$DNSWEIR" node up --config /run/t/dnsweir.kdl
check "the link is a dummy one" sh -c 'ip -d link show nodelocaldns | grep -w dummy'
check "the rules are legacy ones" sh -c 'iptables-legacy -t raw -S | grep "dnsweir: skip conntrack"'
check "no rule is an nft one" sh -c '! iptables-nft-save 2>/dev/null | grep -e "NodeLocal DNS Cache" -e "dnsweir: "'
check "status" "$DNSWEIR" node status --config /run/t/dnsweir.kdl
check "a pod gets the cluster's answer while nobody listens" answers 192.0.2.2
"$DNSWEIR" run --config /run/t/dnsweir.kdl 2> /run/t/log & proxy=$!
until grep -q 'answering queries' /run/t/log; do kill -0 $proxy || { cat /run/t/log; fail "it did not start"; }; sleep 0.1; done
check "a pod gets the proxy's answer while it listens" answers 192.0.2.1
kill -9 $proxy; wait $proxy 2> /dev/null
check "a pod gets the cluster's answer after kill -9" answers 192.0.2.2
check "down" "$DNSWEIR" node down --config /run/t/dnsweir.kdl
network > /run/t/after
check "everything is as before" diff /run/t/before /run/t/after
sed -i 's/mode "link-local"/mode "bypass"/' /run/t/dnsweir.kdl
check "up, bypass" "$DNSWEIR" node up --config /run/t/dnsweir.kdl
check "status, bypass" "$DNSWEIR" node status --config /run/t/dnsweir.kdl
check "up again does nothing" sh -c '[ -z "$($DNSWEIR node up --config /run/t/dnsweir.kdl)" ]'
check "down, bypass" "$DNSWEIR" node down --config /run/t/dnsweir.kdl
network > /run/t/after
check "everything is as before, bypass" diff /run/t/before /run/t/after
sed -i 's/^listen.*/listen "10.96.0.10"/; s/mode "bypass"/mode "fall-through"/' /run/t/dnsweir.kdl
check "up, fall-through" "$DNSWEIR" node up --config /run/t/dnsweir.kdl
check "what leaves is masqueraded" sh -c 'iptables-legacy -t nat -S POSTROUTING | grep "dnsweir: .*MASQUERADE"'
check "status, fall-through" "$DNSWEIR" node status --config /run/t/dnsweir.kdl
check "up again does nothing" sh -c '[ -z "$($DNSWEIR node up --config /run/t/dnsweir.kdl)" ]'
check "down, fall-through" "$DNSWEIR" node down --config /run/t/dnsweir.kdl
network > /run/t/after
check "everything is as before, fall-through" diff /run/t/before /run/t/after
echo "=== all well"
echo o > /proc/sysrq-trigger
sleep 9
