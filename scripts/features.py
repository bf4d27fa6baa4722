#!/usr/bin/env python3
"""Prints the promised features of the library, one a line, without those that only name others."""

import json
import os
import subprocess

cargo = os.environ.get("CARGO", "cargo")
metadata = subprocess.run(
    [cargo, "metadata", "--no-deps", "--format-version", "1"], check=True, stdout=subprocess.PIPE
)
packages = json.loads(metadata.stdout)["packages"]
features = next(package["features"] for package in packages if package["name"] == "incumbent")
for name, enabled in sorted(features.items()):
    # One whose name begins with an underscore is not promised.
    if not name.startswith("_") and not features.keys() >= set(enabled):
        print(name)
