#!/bin/bash
# Measures what a cache hit costs over each transport, in dnsweir, unbound and dnsdist; README.md describes the method.
# Needs unbound, dnsdist, dnsperf, h2load (Debian: nghttp2-client), openssl, python3, and target/release of this
# repository. ROUNDS and SECONDS_EACH set the number of rounds and their length.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}/release
dnsweir=${DNSWEIR:-$target/dnsweir}
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-4}
ip=127.0.0.78 name=dns.example
work=$(mktemp -d)
processes=()
declare -A process port

finish() {
    kill -CONT "${processes[@]}" 2>/dev/null || true
    kill "${processes[@]}" 2>/dev/null || true
    wait
    rm -r "$work"
}
trap finish EXIT
cd "$work"

# One certificate for all.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=an authority" \
    -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$name" -keyout key.pem -out request.pem 2>/dev/null
openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -days 2 -out certificate.pem \
    -extfile <(echo "subjectAltName=DNS:$name,IP:$ip") 2>/dev/null

for number in {1..1000}; do echo "h$number.hot.example A"; done >names
# The same in URIs (RFC 8484 section 4.1).
python3 - <<'END' >queries
import base64, struct
for number in range(1, 1001):
    labels = b"".join(bytes([len(label)]) + label for label in (b"h%d" % number, b"hot", b"example"))
    query = struct.pack(">6H", 0, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
    print(base64.urlsafe_b64encode(query).rstrip(b"=").decode())
END

# start CORE COMMAND...: starts a program on a CPU.
start() {
    local core=$1
    shift
    taskset -c "$core" "$@" >>"$work/log" 2>&1 &
    processes+=($!)
}

start 1 "$target/dnsweir-bench" upstream --listen "$ip:5300"

port[dnsweir]=5400 port[unbound]=5410 port[dnsdist]=5420
# After its first port, for UDP and TCP, each has one for TLS, for HTTPS and for QUIC.
cat >dnsweir.kdl <<END
listen "$ip:5400" "tls://$ip:5401" "https://$ip:5402" ${QUIC-"\"quic://$ip:5403\""} {
    certificate "$work/certificate.pem" key="$work/key.pem"
}
workers 1
zone "." { cache; forward "$ip:5300" }
END
start 0 "$dnsweir" run --log-level warn --config dnsweir.kdl
process[dnsweir]=$!

cat >unbound.conf <<END
server:
    interface: $ip@5410
    interface: $ip@5411
    interface: $ip@5412
    tls-port: 5411
    https-port: 5412
    tls-service-pem: "$work/certificate.pem"
    tls-service-key: "$work/key.pem"
    do-daemonize: no
    use-syslog: no
    username: ""
    chroot: ""
    pidfile: ""
    directory: "$work"
    num-threads: 1
    module-config: "iterator"
    do-not-query-localhost: no
    incoming-num-tcp: 100
    minimal-responses: yes
remote-control:
    control-enable: no
forward-zone:
    name: "."
    forward-addr: $ip@5300
END
start 0 unbound -d -p -c unbound.conf
process[unbound]=$!

cat >dnsdist.conf <<END
setSecurityPollSuffix("")
setUDPMultipleMessagesVectorSize(32)
setMaxTCPQueriesPerConnection(0)
addLocal("$ip:5420")
addTLSLocal("$ip:5421", "$work/certificate.pem", "$work/key.pem")
addDOHLocal("$ip:5422", "$work/certificate.pem", "$work/key.pem", "/dns-query")
newServer({address="$ip:5300"}):setUp()
getPool(""):setCache(newPacketCache(200000, {maxTTL=86400, minTTL=0}))
END
start 0 dnsdist --supervised --disable-syslog -C dnsdist.conf
process[dnsdist]=$!

# Neither load generator is used over QUIC: another dnsweir, without a cache, sends the queries.
cat >asking.kdl <<END
listen "$ip:5430"
workers 1
zone "." { forward "quic://$ip%$name:5403" { concurrent 10000; tls { ca "$work/ca.pem" } } }
END
[ -n "${QUIC-yes}" ] && start 1 "$dnsweir" run --log-level warn --config asking.kdl
sleep 2

# ask SERVER TRANSPORT SECONDS: sends queries over 16 persistent connections, with 64 in flight; prints the number of
# answers. dnsperf 2.10 waits for acknowledgements between the parts of its HTTPS requests, so HTTPS uses h2load.
ask() {
    local at=${port[$1]} mode=(-m "$2")
    case $2 in
        doh)
            sed "s#^#https://$ip:$((at + 2))/dns-query?dns=#" queries >uris
            taskset -c 1 h2load -D "$3" -c 16 -m 4 -t 1 -i uris 2>>log |
                sed -n 's/^status codes: *\([0-9]*\) 2xx.*/\1/p'
            return
            ;;
        dot) at=$((at + 1)) ;;
        doq) at=5430 mode=(-m udp) ;;
    esac
    taskset -c 1 dnsperf "${mode[@]}" -s "$ip" -p "$at" -d names -l "$3" -c 16 -q 64 2>>log |
        sed -n 's/^ *Queries completed: *\([0-9]*\).*/\1/p'
}

# spent SERVER: nanoseconds of CPU time of all its threads.
spent() {
    cat /proc/"${process[$1]}"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

turns=()
for server in dnsweir unbound dnsdist; do
    for transport in udp tcp dot doh; do turns+=("$server $transport"); done
done
[ -n "${QUIC-yes}" ] && turns+=("dnsweir doq")

for server in dnsweir unbound dnsdist; do
    ask "$server" udp 1 >/dev/null
    kill -STOP "${process[$server]}"
done
for ((round = 0; round < rounds; round++)); do
    for ((place = 0; place < ${#turns[@]}; place++)); do
        read -r server transport <<<"${turns[(place + round) % ${#turns[@]}]}"
        kill -CONT "${process[$server]}"
        # Each measurement includes the handshakes of its connections: 16 for some 100 000 queries.
        ask "$server" "$transport" 1 >/dev/null
        before=$(spent "$server")
        answered=$(ask "$server" "$transport" "$seconds")
        after=$(spent "$server")
        kill -STOP "${process[$server]}"
        echo "$server $transport $((after - before)) ${answered:-0}" >>raw
        echo "$round $server $transport: ${answered:-0} answers" >&2
    done
done

echo "CPU time of the server per answer, µs: median (minimum to maximum) of $rounds rounds"
echo
awk '
    $4 > 0 { key = $1 " " $2; count[key]++; cost[key, count[key]] = $3 / $4 / 1000 }
    function cell(key, n, i, j, swap, sorted) {
        n = count[key]
        if (!n) return "–"
        for (i = 1; i <= n; i++) sorted[i] = cost[key, i]
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (sorted[j] < sorted[i]) {
            swap = sorted[i]; sorted[i] = sorted[j]; sorted[j] = swap
        }
        return sprintf("%.1f (%.1f to %.1f)", sorted[int((n + 1) / 2)], sorted[1], sorted[n])
    }
    END {
        print "| | UDP | TCP | TLS | HTTPS | QUIC |\n|---|--:|--:|--:|--:|--:|"
        split("dnsweir unbound dnsdist", servers); split("udp tcp dot doh doq", transports)
        for (s = 1; s <= 3; s++) {
            line = "| " servers[s] " |"
            for (t = 1; t <= 5; t++) line = line " " cell(servers[s] " " transports[t]) " |"
            print line
        }
    }' raw
