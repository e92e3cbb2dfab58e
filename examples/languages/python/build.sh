#!/bin/sh
# Builds names.wasm into a folder, by default `target` beside this file. Needs Python 3.10 with pip, which fetches one
# package from PyPI.
set -eu
python3 -m pip --version >/dev/null 2>&1 || { echo "Python needs python3, 3.10 or later, with pip; Debian: apt-get install python3-pip" >&2; exit 1; }
into=${1:-target}
cd "$(dirname "$0")"
mkdir -p "$into"
into=$(cd "$into" && pwd)
[ -x "$into/packages/bin/componentize-py" ] ||
    python3 -m pip install --quiet --target "$into/packages" componentize-py==0.25.1
# Everything in the module's folder is packed, so it gets a separate one.
mkdir -p "$into/module"
cp names.py "$into/module/"
PYTHONPATH="$into/packages" "$into/packages/bin/componentize-py" --quiet \
    --wit-path ../../../wit --wit-path world.wit --world example:names/names \
    componentize --python-path "$into/module" --output "$into/names.wasm" names
