#!/bin/sh
# Unpacks the Debian packages of an image for another architecture: system.sh ARCH FOLDER. Nothing is installed on this
# machine, and no program of the other architecture is run.
set -eu
arch=$1
mkdir -p "$2"
folder=$(realpath "$2")
packages="iptables nftables libc6 libgcc-s1"

# Uses the machine's package sources, with separate lists and cache.
apt="$folder/apt"
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$folder/var/lib/dpkg/info"
: > "$apt/status"
: > "$folder/var/lib/dpkg/status"
apt() {
    apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State::status="$apt/status" \
        -o Dir::State::lists="$apt/lists" -o Dir::Cache::archives="$apt/archives" -o APT::Sandbox::User=root "$@"
}
apt update
# shellcheck disable=SC2086
apt install --yes --no-install-recommends --download-only $packages > /dev/null

for package in "$apt"/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder"
    name=$(dpkg-deb --field "$package" Package)
    # dpkg-query needs this to find the package of a file.
    { dpkg-deb --field "$package"; echo "Status: install ok installed"; echo; } >> "$folder/var/lib/dpkg/status"
    dpkg-deb --fsys-tarfile "$package" | tar -t | sed -e 's|^\./|/|' -e 's|/$||' > "$folder/var/lib/dpkg/info/$name.list"
done
rm -rf "$apt"
