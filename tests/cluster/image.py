"""Packs a folder into an image that `ctr images import` takes: image.py FOLDER TAG OUT.tar"""

import hashlib
import io
import json
import sys
import tarfile


def pack(folder, tag, out):
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(folder, arcname=".", filter=owned_by_root)
    layer = layer.getvalue()
    config = json.dumps({
        "architecture": "amd64",
        "os": "linux",
        # Pods specify their command; their sandbox, which also uses the box image, does not.
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/busybox", "sleep", "infinity"]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(out, "w") as tar:
        for path, content in (("manifest.json", manifest), (name, config), ("layer.tar", layer)):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def owned_by_root(entry):
    entry.uid = entry.gid = 0
    return entry


if __name__ == "__main__":
    pack(*sys.argv[1:])
