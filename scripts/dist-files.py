#!/usr/bin/env python3
"""Writes the parts of a release that no packager writes, the same bytes from the same files:

    dist-files.py licenses TARGET FILE              the licenses of what is linked, from the sources of the crates
    dist-files.py wheel VERSION TARGET FROM FOLDER  a Python wheel with the program in the folder FROM, written into FOLDER
    dist-files.py image VERSION FILE TARGET=FROM... an OCI image layout with a platform for each TARGET, as a tar archive

SOURCE_DATE_EPOCH is the time of everything in them. `image` reads the certificates from the file in CA_CERTIFICATES, and the
address of the project and its commit from REPOSITORY and COMMIT.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
SUMMARY = "Leader election from the command line: run a command on one host of many"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Nobody, as in the images of others.
USER = 65534


def linked(target):
    """The packages that the program is linked with, but for those of the workspace."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [package["id"] for package in metadata["packages"] if package["name"] == "incumbent-cli"]
    found = {}
    while todo:
        package = todo.pop()
        # A macro is a part of the compiler, not of the program.
        macro = any("proc-macro" in target["kind"] for target in packages[package]["targets"])
        if package not in found and not macro:
            found[package] = packages[package]
            dependencies = nodes[package]["deps"]
            todo += [d["pkg"] for d in dependencies if any(kind["kind"] is None for kind in d["dep_kinds"])]
    others = (package for package in found.values() if package["source"])
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def licenses(target, out):
    """The packages with their licenses, then each text once."""
    names = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
    listed, texts = [], {}
    for package in linked(target):
        name = f"{package['name']} {package['version']}"
        listed.append(f"{name}: {package['license'] or 'see below'}")
        for file in sorted(Path(package["manifest_path"]).parent.iterdir()):
            if file.is_file() and file.name.upper().startswith(names):
                text = file.read_text(errors="replace").replace("\r\n", "\n").strip()
                texts.setdefault(text, []).append(name)
    parts = ["incumbent is linked with the Rust standard library (MIT OR Apache-2.0), musl (MIT), and:\n"]
    parts.append("\n".join(listed))
    rule = "-" * 80
    parts += [f"\n{rule}\n{', '.join(owners)}\n{rule}\n{text}" for text, owners in texts.items()]
    Path(out).write_text("\n".join(parts) + "\n")


def wheel(version, target, source, folder):
    """The program is static: it runs with every C library, and is the same for every Python."""
    machine = target.split("-")[0]
    tags = [f"py3-none-{system}_{machine}" for system in ("manylinux_2_17", "manylinux2014", "musllinux_1_1")]
    info = f"incumbent-{version}.dist-info"
    # PyPI does not resolve links into the repository.
    at = f"{os.environ['REPOSITORY']}"
    readme = re.sub(r"!\[([^]]*)\]\((?!https?:)", rf"![\1]({at}/raw/v{version}/", Path("README.md").read_text())
    readme = re.sub(r"(?<!!)\[([^]]*)\]\((?!https?:)", rf"[\1]({at}/blob/v{version}/", readme)
    files = {f"incumbent-{version}.data/scripts/incumbent": Path(source, "incumbent").read_bytes()}
    for name in ("LICENSE", "THIRD-PARTY-LICENSES.txt"):
        files[f"{info}/licenses/{name}"] = Path(source, name).read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: incumbent\nVersion: {version}\nSummary: {SUMMARY}\n"
        f"License-Expression: Apache-2.0\nLicense-File: LICENSE\nLicense-File: THIRD-PARTY-LICENSES.txt\n"
        f"Project-URL: Source, {os.environ['REPOSITORY']}\nRequires-Python: >=3.8\n"
        f"Description-Content-Type: text/markdown\n\n{readme}"
    ).encode()
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: incumbent\nRoot-Is-Purelib: false\n" + "".join(f"Tag: {tag}\n" for tag in tags)
    ).encode()

    def digest(data):
        return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")

    record = f"{info}/RECORD"
    lines = [f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items()]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    systems = ".".join(tag.removeprefix("py3-none-") for tag in tags)
    with zipfile.ZipFile(Path(folder, f"incumbent-{version}-py3-none-{systems}.whl"), "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            archive.writestr(entry, data)


def layer(source):
    """What is in the image, as a tar archive: the program, the authorities that TLS trusts, and a user."""
    with Path(os.environ["CA_CERTIFICATES"]).open("rb") as file:
        certificates = file.read()
    content = {
        "etc": None,
        "etc/group": b"root:x:0:\nnobody:x:65534:\n",
        "etc/passwd": b"root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n",
        "etc/ssl": None,
        "etc/ssl/certs": None,
        "etc/ssl/certs/ca-certificates.crt": certificates,
        "incumbent": Path(source, "incumbent").read_bytes(),
        "licenses": None,
        "licenses/LICENSE": Path(source, "LICENSE").read_bytes(),
        "licenses/THIRD-PARTY-LICENSES.txt": Path(source, "THIRD-PARTY-LICENSES.txt").read_bytes(),
        "tmp": None,
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.mtime = EPOCH
            entry.mode = 0o755 if data is None or name == "incumbent" else 0o644
            if name == "tmp":
                entry.mode = 0o1777
            if data is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def image(version, out, *platforms):
    blobs = {}

    def add(data, kind, **more):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data), **more}

    def document(value):
        return json.dumps(value, indent=1).encode()

    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    labels = {
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.revision": os.environ["COMMIT"],
        "org.opencontainers.image.source": os.environ["REPOSITORY"],
        "org.opencontainers.image.title": "incumbent",
        "org.opencontainers.image.version": version,
    }
    manifests = []
    for platform in platforms:
        target, source = platform.split("=", 1)
        of = {"architecture": ARCHITECTURES[target.split("-")[0]], "os": "linux"}
        unpacked = layer(source)
        packed = add(gzip.compress(unpacked, 9, mtime=0), "layer.v1.tar+gzip")
        config = {
            "created": created,
            **of,
            "config": {
                "User": f"{USER}:{USER}",
                "Entrypoint": ["/incumbent"],
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]},
            "history": [{"created": created, "created_by": "scripts/dist.sh"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": add(document(config), "config.v1+json"),
            "layers": [packed],
            "annotations": labels,
        }
        manifests.append(add(document(manifest), "manifest.v1+json", platform=of))
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    # The one image of the layout, by its tag: the index of its platforms.
    tagged = add(document({**index, "annotations": labels}), "index.v1+json")
    tagged["annotations"] = {"org.opencontainers.image.ref.name": version}
    files = {
        "oci-layout": document({"imageLayoutVersion": "1.0.0"}),
        "index.json": document({**index, "manifests": [tagged]}),
        **dict(sorted(blobs.items())),
    }
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.mode, entry.size = EPOCH, 0o644, len(data)
            archive.addfile(entry, io.BytesIO(data))


def main():
    commands = {"licenses": licenses, "wheel": wheel, "image": image}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])


main()
