#!/usr/bin/env python3
"""Checks the documentation: relative links with their anchors, quoted paths and tests, and the length of lines.

Prints each broken link, each quoted path without a file, each quoted name as `module::test` that no source has, and
each line of prose or line comment with more than 100 characters, and fails if there is any. Tables, code blocks, and
lines that end in a link or a URL may be longer.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`((?:benches|cli|deploy|docker|docs|examples|scripts|src|tests)/[\w./-]+)")
TEST = re.compile(r"`(?:[a-z0-9_]+::)+([a-z0-9_]+)`")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
MAX_LINE = 100
# The pages whose lines are written by hand. A program writes docs/cli.md.
PROSE = re.compile(r"(README|CONTRIBUTING|RELEASING|SECURITY|CODE_OF_CONDUCT|docs/(?!cli\.)[\w-]+)\.md")
# Markdown cannot break these lines: tables, images, and one link or URL that alone is too long.
UNBREAKABLE = re.compile(r" *\||.*!\[|[^ ]* *[-*>]? *[^ ]*(https?://|\]\()[^ ]*$")
# To wrap them: cargo +nightly fmt --all -- --config wrap_comments=true,comment_width=100
COMMENT = re.compile(r" *//[/!]? ?")


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


def unknown_tests(page, words):
    """The quoted tests whose names no source has: a test that was renamed or removed proves nothing."""
    for name in TEST.findall(page.read_text()):
        if name not in words:
            yield f"`{name}`: no source has this name"


def long_lines(page):
    """The lines of prose that are longer than `MAX_LINE` characters."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            yield f"{number}: a conflict of a merge: resolve it"
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and len(line) > MAX_LINE and not UNBREAKABLE.match(line):
            yield f"{number}: {len(line)} characters, at most {MAX_LINE} are allowed"


def long_comments(file):
    """The line comments of a source that are longer than `MAX_LINE` characters. Code is rustfmt's."""
    fenced = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        comment = COMMENT.match(line)
        text = line[comment.end() :] if comment else ""
        if text.startswith("```"):
            fenced = not fenced
        elif comment and not fenced and len(line) > MAX_LINE and not UNBREAKABLE.match(text):
            yield f"{number}: a comment of {len(line)} characters, at most {MAX_LINE} are allowed"


def problems(file, words):
    if file.suffix == ".md":
        yield from broken_links(file)
        yield from unknown_tests(file, words)
    if PROSE.fullmatch(str(file)):
        yield from long_lines(file)
    if file.suffix == ".rs":
        yield from long_comments(file)
    yield from broken_paths(file)


def main():
    os.chdir(Path(__file__).parents[1])
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md", "*.rs", "*.toml", "*.yaml", "Makefile"], capture_output=True, check=True, text=True
    )
    wrong = 0
    files = list(filter(Path.exists, map(Path, filter(None, listed.stdout.split("\0")))))
    words = {word for file in files if file.suffix == ".rs" for word in re.findall(r"\w+", file.read_text())}
    for file in files:
        for problem in problems(file, words):
            print(f"{file}: {problem}", file=sys.stderr)
            wrong += 1
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
