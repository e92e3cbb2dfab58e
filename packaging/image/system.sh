#!/bin/sh
# Unpacks what an image takes from Debian, for another processor: system.sh ARCH FOLDER. Nothing is installed on this machine,
# and nothing of the other processor's is run.
set -eu
arch=$1
mkdir -p "$2"
folder=$(realpath "$2")
packages="iptables nftables libc6 libgcc-s1"

# The machine's own sources, with lists and a cache in a folder of their own.
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
    # What dpkg-query needs to say which package a file is of.
    { dpkg-deb --field "$package"; echo "Status: install ok installed"; echo; } >> "$folder/var/lib/dpkg/status"
    dpkg-deb --fsys-tarfile "$package" | tar -t | sed -e 's|^\./|/|' -e 's|/$||' > "$folder/var/lib/dpkg/info/$name.list"
done
rm -rf "$apt"
