#!/bin/bash
# Measures what three block lists with together a million names cost dnsweir, dnsmasq and unbound: memory, time to load,
# and a query for a name that is on a list or on none; README.md describes the method. Needs dnsperf, python3 and
# target/release of this repository. dnsmasq and unbound are left out if they are not installed. NAMES, ROUNDS and RUNS
# set the number of names, of rounds, and how often each round asks for each of 5,000 names.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}/release
dnsweir=${DNSWEIR:-$target/dnsweir} upstream=${DNSWEIR_BENCH:-$target/dnsweir-bench}
names=${NAMES:-1000000} rounds=${ROUNDS:-3} runs=${RUNS:-40}
ip=127.0.0.79
PATH=$PATH:/usr/sbin
work=$(mktemp -d)
processes=()
declare -A process port

finish() {
    kill "${processes[@]}" 2>/dev/null || true
    wait || true
    rm -r "$work"
}
trap finish EXIT
cd "$work"

# The model: names like those of trackers, drawn by xorshift (Marsaglia 2003) from the same seed each time, as in
# benches/lists.rs. The first ones are the lists: two fifths in a hosts file, two fifths as names, a fifth as rules of
# an ad blocker. Those that follow, and are not below a listed name, are on none. Each list has a counterpart with one
# name, because an empty one is refused.
cat >names.py <<'END'
import sys

PARTS = "ad track pixel stat metric click tag media cdn api beacon push promo analytics shop cloud".split()
ENDS = ["com"] * 8 + ["net"] * 2 + ["org", "ru", "co.uk"] + ["cloudfront.net"] * 3
ASKED = 5000
state = 88172645463325252


def below(most):
    global state
    state ^= state << 13 & 0xFFFFFFFFFFFFFFFF
    state ^= state >> 7
    state ^= state << 17 & 0xFFFFFFFFFFFFFFFF
    return state % most


def drawn():
    above = "".join(PARTS[below(16)] + str(below(1000)) + "." for _ in range(below(3)))
    own = PARTS[below(16)] + PARTS[below(16)] + str(below(1000000))
    return above + own + "." + ENDS[below(16)]


def is_listed(name):
    labels = name.split(".")
    return any(".".join(labels[at:]) in listed for at in range(len(labels)))


def write(size, number, part):
    forms = ["0.0.0.0 {}\n", "{}\n", "||{}^\n"]
    with open(f"{size}.{number}", "w") as file:
        file.writelines(map(forms[number - 1].format, part))
    with open(f"{size}.{number}.rpz", "w") as file:
        file.write("$TTL 3600\n@ SOA localhost. root.localhost. 1 3600 600 86400 60\n@ NS localhost.\n")
        file.writelines(map("{} CNAME .\n".format, part))
    with open(f"{size}.dnsmasq", "a") as file:
        file.writelines(map("address=/{}/\n".format, part))


count, listed = int(sys.argv[1]), {}
while len(listed) < count:
    listed[drawn()] = None
others = {}
while len(others) < ASKED:
    name = drawn()
    if not is_listed(name):
        others[name] = None
every = list(listed)
parts = [every[: count * 2 // 5], every[count * 2 // 5 : count * 4 // 5], every[count * 4 // 5 :]]
for number, part in enumerate(parts, 1):
    write("million", number, part)
    write("three", number, [f"nothing-{number}.example"])
with open("off", "w") as file:
    file.writelines(f"{name} A\n" for name in others)
with open("on", "w") as file:
    file.writelines(f"{every[at * count // ASKED]} A\n" for at in range(ASKED))
with open("first", "w") as file:
    file.write(" ".join(part[-1] for part in parts) + "\n")
END
python3 names.py "$names"

# await.py IP PORT BEGUN NAME...: waits until all names are denied; prints the seconds since BEGUN.
cat >await.py <<'END'
import socket, struct, sys, time

ip, port, begun, waiting = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect((ip, port))
client.settimeout(0.2)
number = 0
while waiting:
    number += 1
    labels = b"".join(bytes([len(label)]) + label.encode() for label in waiting[0].split("."))
    query = struct.pack(">6H", number % 65536, 0x100, 1, 0, 0, 0) + labels + struct.pack(">B2H", 0, 1, 1)
    reply = b""
    try:
        client.send(query)
        # Replies to earlier queries may have been late.
        while reply[:2] != query[:2]:
            reply = client.recv(4096)
    except OSError:
        reply = b""
    if reply and reply[3] & 15 == 3:
        waiting.pop(0)
    elif time.time_ns() - begun > 120e9:
        sys.exit(f"{waiting[0]} is not denied on port {port}")
    else:
        time.sleep(0.005)
print(f"{(time.time_ns() - begun) / 1e9:.2f}")
END

# start CORE COMMAND...: starts a program on a CPU.
start() {
    local core=$1
    shift
    taskset -c "$core" "$@" >>"$work/log" 2>&1 &
    processes+=($!)
}

# start_dnsweir SIZE PORT, and so on: start a server whose lists have this size.
start_dnsweir() {
    cat >"$1.kdl" <<END
listen "$ip:$2"
workers 1
zone "." {
    lists {
        list "hosts" { source "$work/$1.1" }
        list "names" { source "$work/$1.2" }
        list "rules" { source "$work/$1.3" }
        wait "2m"
    }
    cache
    forward "$ip:5300" { concurrent 10000 }
}
END
    start 0 "$dnsweir" run --log-level warn --config "$1.kdl"
}

start_dnsmasq() {
    start 0 dnsmasq --keep-in-foreground --conf-file="$work/$1.dnsmasq" --bind-interfaces --no-resolv --no-hosts \
        --no-poll --user="$(id -un)" --pid-file= --cache-size=10000 --dns-forward-max=10000 --log-facility=- \
        --listen-address="$ip" --port="$2" --server="$ip#5300"
}

start_unbound() {
    {
        cat <<END
server:
    interface: $ip@$2
    port: $2
    access-control: 127.0.0.0/8 allow
    do-daemonize: no
    use-syslog: no
    username: ""
    chroot: ""
    pidfile: ""
    directory: "$work"
    num-threads: 1
    module-config: "respip iterator"
    do-not-query-localhost: no
    minimal-responses: yes
remote-control:
    control-enable: no
forward-zone:
    name: "."
    forward-addr: $ip@5300
END
        for number in 1 2 3; do
            printf 'rpz:\n    name: "list%s.rpz"\n    zonefile: "%s"\n' "$number" "$work/$1.$number.rpz"
        done
    } >"$1.conf"
    start 0 unbound -d -p -c "$1.conf"
}

# memory KIND SERVER: KiB, resident now (RSS) or at most so far (HWM).
memory() {
    awk -v field="Vm$1:" '$1 == field { print $2 }' /proc/"${process[$2]}"/status
}

# spent SERVER: nanoseconds of CPU time of all its threads.
spent() {
    cat /proc/"${process[$1]}"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# ask SERVER FILE RUNS RCODE: asks for each name so many times. All answers must have this response code.
ask() {
    taskset -c 1 dnsperf -s "$ip" -p "${port[$1]}" -d "$2" -n "$3" -c 16 -q 64 >answers 2>>log
    grep -q "Response codes: *$4 $((5000 * $3)) (100.00%)" answers || {
        echo "$1 gives other answers than $4 to the names that are $2 its lists:" >&2
        cat answers >&2
        exit 1
    }
}

start 1 "$upstream" upstream --listen "$ip:5300"
next=5400 servers=()
for server in dnsweir dnsmasq unbound; do
    command -v "${!server:-$server}" >/dev/null || {
        echo "$server is not installed" >&2
        continue
    }
    servers+=("$server")
    for size in three million; do
        begun=$(date +%s%N) each=$server-$size
        port[$each]=$((next++))
        "start_$server" "$size" "${port[$each]}"
        process[$each]=${processes[-1]}
        if [ "$size" = million ]; then read -ra denied <first; else denied=(nothing-{1,2,3}.example); fi
        took=$(python3 await.py "$ip" "${port[$each]}" "$begun" "${denied[@]}")
        echo "$server $size $took $(memory RSS "$each") $(memory HWM "$each")" >>loaded
        echo "$server with lists of $size: loaded in $took s" >&2
        # All other names come from the cache.
        ask "$each" off 1 NOERROR
        if [ "$size" = three ]; then ask "$each" on 1 NOERROR; fi
    done
done

for ((round = 0; round < rounds; round++)); do
    for server in "${servers[@]}"; do
        for turn in three:off:NOERROR million:off:NOERROR three:on:NOERROR million:on:NXDOMAIN; do
            IFS=: read -r size which rcode <<<"$turn"
            before=$(spent "$server-$size")
            ask "$server-$size" "$which" "$runs" "$rcode"
            after=$(spent "$server-$size")
            echo "$server $size-$which $((after - before)) $((5000 * runs))" >>raw
        done
    done
done

echo "Lists with $names names in all, beside lists with one name each"
echo
awk -v names="$names" '
    { seconds[$1, $2] = $3; rss[$1, $2] = $4; most[$1, $2] = $5; order[$1] = NR }
    END {
        print "| | loaded in | resident, three names | resident | most while loading | octets a name |"
        print "|---|--:|--:|--:|--:|--:|"
        for (i = 1; i <= NR; i++) for (s in order) if (order[s] == i)
            printf "| %s | %.2f s | %.1f MiB | %.1f MiB | %.1f MiB | %.1f |\n", s, seconds[s, "million"],
                rss[s, "three"] / 1024, rss[s, "million"] / 1024, most[s, "million"] / 1024,
                (rss[s, "million"] - rss[s, "three"]) * 1024 / names
    }' loaded
echo
echo "CPU time of the server per query, µs: median (minimum to maximum) of $rounds rounds of $((5000 * runs)) queries"
echo
awk '
    { key = $1 " " $2; count[key]++; cost[key, count[key]] = $3 / $4 / 1000; order[$1] = NR }
    function sort(key, sorted, i, j, swap) {
        for (i = 1; i <= count[key]; i++) sorted[i] = cost[key, i]
        for (i = 1; i <= count[key]; i++) for (j = i + 1; j <= count[key]; j++) if (sorted[j] < sorted[i]) {
            swap = sorted[i]; sorted[i] = sorted[j]; sorted[j] = swap
        }
    }
    function median(key, sorted) {
        sort(key, sorted)
        return sorted[int((count[key] + 1) / 2)]
    }
    function cell(key, sorted) {
        sort(key, sorted)
        return sprintf("%.2f (%.2f to %.2f)", median(key), sorted[1], sorted[count[key]])
    }
    END {
        print "| | on no list: three names | on no list | difference | not listed, from the cache | listed | difference |"
        print "|---|--:|--:|--:|--:|--:|--:|"
        for (i = 1; i <= NR; i++) for (s in order) if (order[s] == i) {
            line = "| " s " |"
            for (w = 1; w <= 2; w++) {
                which = w == 1 ? "off" : "on"
                line = line " " cell(s " three-" which) " | " cell(s " million-" which) " |"
                line = line sprintf(" %+.2f |", median(s " million-" which) - median(s " three-" which))
            }
            print line
        }
    }' raw
