#!/bin/bash
# Creates the pictures in docs/pictures: the dashboards and the status page of two proxies under a varying load, while an
# upstream fails and recovers. Takes five minutes. Needs prometheus, dnsperf, chromium, python3, and target/release of
# this repository.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}/release
pictures=$here/../../docs/pictures
ip=127.0.0.79
work=$(mktemp -d)
processes=()

finish() {
    kill "${processes[@]}" 2>/dev/null || true
    wait
    rm -r "$work"
}
trap finish EXIT
cd "$work"

start() {
    "$@" >>log 2>&1 &
    processes+=($!)
}

# ask ROUND PROXY QUERIES SECONDS: sends QUERIES per second for hot, rare and blocked names.
ask() {
    dnsperf -s "$ip" -p "$2" -d "names-$1" -Q "$3" -l "$4" >>log 2>&1
}

python3 - <<'END'
import random
random.seed(1)
for round in range(10):
    with open(f"names-{round}", "w") as names:
        for number in range(100_000):
            kind = random.random()
            if kind < 0.85:
                hot, qtype = int(random.paretovariate(0.6)) % 4000, random.choice(["A", "A", "AAAA"])
                print(f"h{hot}.hot.example {qtype}", file=names)
            elif kind < 0.97:
                print(f"u{round}-{number}.rare.example A", file=names)
            else:
                print(f"{number}.forbidden.example A", file=names)
END

start "$target/dnsweir-bench" upstream --listen "$ip:5300"
start "$target/dnsweir-bench" upstream --listen "$ip:5301"
second=${processes[1]}
for node in 1 2; do
    cat >"node-$node.kdl" <<END
listen "$ip:540$node"
admin "$ip:925$node"
workers 1
filter "names" { module "builtin:rewrite"; config { ttl "suffix" "rare.example" max="1m" } }
filter "blocked" { module "builtin:hosts"; config { host "*.forbidden.example" "0.0.0.0" } }
zone "." { use "names"; use "blocked"; cache { prefetch; serve-stale }; forward "$ip:5300" "$ip:5301" }
END
    "$target/dnsweir" check "node-$node.kdl"
    start "$target/dnsweir" run --log-level warn --config "node-$node.kdl"
done
cat >prometheus.yml <<END
global: { scrape_interval: 2s }
scrape_configs:
  - job_name: dnsweir
    static_configs: [ { targets: [ "$ip:9251", "$ip:9252" ] } ]
END
start prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address="$ip:9090" --log.level=error

for round in 1 2 3 4 5 6 7 8; do
    [ "$round" = 4 ] && kill -STOP "$second"
    [ "$round" = 6 ] && kill -CONT "$second"
    ask "$round" 5402 $((400 + 300 * (round % 3))) 30 &
    ask "$round" 5401 $((1000 + 700 * (round % 4))) 30
    wait $!
done

mkdir -p "$pictures"
ask 9 5402 700 40 &
ask 0 5401 2000 40 &
python3 "$here/draw.py" "http://$ip:9090" "$pictures" 235
photograph() {
    python3 "$here/photograph.py" "http://$ip:9251/" "$pictures/$1.png" "${@:2}" 2>>log
}
photograph status 1280 1400 10
photograph status-phone 480 1600 10
photograph status-dark 1280 1400 10 dark
