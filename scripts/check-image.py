#!/usr/bin/env python3
"""Checks an image as scripts/dist.sh writes it, and unpacks it:

    check-image.py ARCHIVE ARCHITECTURE FOLDER

Every blob must have its digest and size, as every registry and runtime checks. Prints the user and the entry point of the
platform, whose layers it unpacks into FOLDER.
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile

LABELS = {"created", "description", "licenses", "revision", "source", "title", "version"}


def require(condition, otherwise):
    if not condition:
        sys.exit(f"the image is broken: {otherwise}")


def main(path, architecture, folder):
    with tarfile.open(path) as archive:
        files = {entry.name: archive.extractfile(entry).read() for entry in archive}
    used = {"oci-layout", "index.json"}

    def blob(descriptor):
        name = "blobs/" + descriptor["digest"].replace(":", "/")
        data = files[name]
        used.add(name)
        require(len(data) == descriptor["size"], f"{name}: the size differs")
        require(hashlib.sha256(data).hexdigest() == name.rpartition("/")[2], f"{name}: the digest differs")
        return data

    require(json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}, "no OCI layout")
    tagged = json.loads(files["index.json"])["manifests"]
    require(len(tagged) == 1, "not one image")
    found = None
    for platform in json.loads(blob(tagged[0]))["manifests"]:
        manifest = json.loads(blob(platform))
        config = json.loads(blob(manifest["config"]))
        require(config["architecture"] == platform["platform"]["architecture"], "a platform has another architecture")
        labels = {name.removeprefix("org.opencontainers.image.") for name in config["config"]["Labels"]}
        require(labels == LABELS, f"labels: {labels}")
        layers = [gzip.decompress(blob(layer)) for layer in manifest["layers"]]
        digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        require(digests == config["rootfs"]["diff_ids"], "a layer is another one than the configuration says")
        if config["architecture"] == architecture:
            found = config["config"]
            for layer in layers:
                with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                    # As they are: Python's filters take rights away, as from /tmp.
                    archive.extraction_filter = lambda member, _: member
                    archive.extractall(folder)
    require(used == files.keys(), f"unused: {files.keys() - used}")
    require(found, f"no platform {architecture}")
    print(found["User"], *found["Entrypoint"])


main(*sys.argv[1:])
