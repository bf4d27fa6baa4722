#!/usr/bin/env python3
"""Checks the relative links of the documentation, with their anchors, and the paths that texts and comments quote.

Prints each one that leads nowhere, and fails if there is any.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`((?:benches|cli|deploy|docker|docs|examples|scripts|src|tests)/[\w./-]+)")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors of a page's headings, as GitHub forms them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def broken_links(page):
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{target}: no such heading"


def broken_paths(file):
    """The quoted paths that are neither below the root of the repository nor below the file's own package."""
    roots = [Path(), *(folder for folder in file.parents if (folder / "Cargo.toml").exists())]
    for path in QUOTED.findall(file.read_text()):
        path = path.rstrip(".")
        if not any((root / path).exists() for root in roots):
            yield f"`{path}`: no such file"


def main():
    os.chdir(Path(__file__).parents[1])
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md", "*.rs", "*.toml", "*.yaml", "Makefile"], capture_output=True, check=True, text=True
    )
    wrong = 0
    for file in filter(Path.exists, map(Path, filter(None, listed.stdout.split("\0")))):
        for problem in [*(broken_links(file) if file.suffix == ".md" else []), *broken_paths(file)]:
            print(f"{file}: {problem}", file=sys.stderr)
            wrong += 1
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
