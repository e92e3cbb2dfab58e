#!/bin/sh
# Installs a package, uses it and removes it: install.sh PACKAGE FOLDER. Runs in its own namespaces, with an overlay in
# FOLDER for all writes; the machine's own system is unchanged.
package=$1 system=$2/overlay/system
mkdir "$2/overlay"
mount -t tmpfs tmpfs "$2/overlay"
mkdir "$2/overlay/above" "$2/overlay/work" "$system"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/overlay/above,workdir=$2/overlay/work" "$system"
for folder in proc dev sys; do mount --rbind "/$folder" "$system/$folder"; done
mount -t tmpfs tmpfs "$system/run"
mount -t tmpfs tmpfs "$system/tmp"
cp "$package" "$system/tmp/dnsweir.deb"
ip link set lo up

exec chroot "$system" sh -eu << 'INSIDE'
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
fail() { echo "$*"; exit 1; }
config=/etc/dnsweir/dnsweir.kdl
enabled=/etc/systemd/system/multi-user.target.wants/dnsweir.service
package() { dpkg "$@" > /tmp/log 2>&1 < /dev/null || fail "dpkg $*: $(cat /tmp/log)"; }

package -i /tmp/dnsweir.deb
[ -L $enabled ] || fail "without a running systemd, the service is not enabled"
dnsweir --version | grep -q '^dnsweir ' || fail "no version"
dnsweir check $config | grep -q valid || fail "the installed configuration is not valid"
zcat /usr/share/man/man1/dnsweir.1.gz | grep -q dnsweir || fail "no manual page"
bash -n /usr/share/bash-completion/completions/dnsweir || fail "no completions"

# The operator's own configuration, and an answer from it.
cat > $config << 'KDL'
listen "127.0.0.1"
admin "127.0.0.1:9253"
filter "names" { module "builtin:hosts"; config { host "www.example" "192.0.2.1" } }
zone "." { use "names"; forward "127.0.0.1:9" }
KDL
$(sed -n 's/^ExecStartPre=//p' /lib/systemd/system/dnsweir.service) > /tmp/log || fail "$(cat /tmp/log)"
# The unit's command, with the folders that systemd would make.
mkdir -m 700 -p $(sed -n 's|^RuntimeDirectory=|/run/|p' /lib/systemd/system/dnsweir.service)
$(sed -n 's/^ExecStart=//p' /lib/systemd/system/dnsweir.service) 2> /tmp/log &
pid=$!
answer() { dig +short +tries=1 +time=1 @127.0.0.1 www.example 2> /dev/null; }
tries=0
until [ "$(answer)" = 192.0.2.1 ]; do
    tries=$((tries + 1)) && [ $tries -lt 60 ] && kill -0 $pid || fail "no answer: $(cat /tmp/log)"
done
dnsweir health > /tmp/log 2>&1 || fail "it is not healthy: $(cat /tmp/log)"
dnsweir cache flush www.example > /tmp/log 2>&1 || fail "$(cat /tmp/log)"
dnsweir top --once --interval 1 > /tmp/log 2>&1 || fail "$(cat /tmp/log)"
kill $pid
wait $pid || fail "it did not end well: $(cat /tmp/log)"

# An upgrade and a removal keep the operator's configuration.
package -i /tmp/dnsweir.deb
grep -q www.example $config || fail "an upgrade lost the configuration"
package -r dnsweir
! ls /usr/bin/dnsweir* > /dev/null 2>&1 || fail "the programs are still there"
grep -q www.example $config || fail "a removal lost the configuration"
package -i /tmp/dnsweir.deb
[ -L $enabled ] || fail "installed again, the service is not enabled"

# Where systemd runs: a stand-in writes down what it is told. Images of containers have a policy that starts no service.
rm -f /usr/sbin/policy-rc.d
mkdir -p /run/systemd/system
cat > /tmp/systemctl << STUB
#!/bin/sh
case "\$*" in
*is-enabled*) [ -L $enabled ] && echo enabled || echo disabled ;;
*is-active*) [ -e /tmp/active ] ;;
*) echo "\$*" >> /tmp/told ;;
esac
STUB
chmod 755 /tmp/systemctl
mv /tmp/systemctl /usr/bin/systemctl
# What is done to the service: `is_told start`, or `is_told` for nothing.
is_told() {
    sed -n 's/^\(.* \)\?\([a-z]*\) dnsweir.service$/\2/p' /tmp/told > /tmp/log
    [ "$(cat /tmp/log)" = "$1" ] || fail "the service should be told '$1', not '$(cat /tmp/log)'"
    : > /tmp/told
}
: > /tmp/told
package -i /tmp/dnsweir.deb
is_told "" # The operator stopped it.
touch /tmp/active
package -i /tmp/dnsweir.deb
is_told restart
package -r dnsweir
is_told stop
rm /tmp/active
package -i /tmp/dnsweir.deb
is_told start
# As `systemctl disable` does.
rm $enabled
package -i /tmp/dnsweir.deb
[ ! -L $enabled ] || fail "an upgrade enabled what the operator disabled"
is_told ""

ln -s /lib/systemd/system/dnsweir.service $enabled
package -P dnsweir
[ ! -e /etc/dnsweir ] || fail "a purge left $(ls /etc/dnsweir)"
[ ! -e /var/cache/dnsweir ] || fail "a purge left compiled filters"
[ ! -L $enabled ] || fail "a purge left the service enabled"
echo "all as it should be"
INSIDE
