#!/usr/bin/env python3
"""Writes the sources of the documentation site into the folder of the argument, for mdBook.

The pages stay where they are: docs/SUMMARY.md lists them, those of docs/ and a few of the root. All come into one folder, so a
link to another page, a picture or a file of the repository is rewritten. Fails if a page of docs/ is not listed.
"""

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

SUMMARY = Path("docs/SUMMARY.md")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LISTED = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
# A link whose text is the name of the page.
NAMED = re.compile(r"\[(?:docs/)?([\w-]+\.md)\]\(")
FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
# What a page shows, and not what makes it.
PICTURES = {".svg", ".png"}


def place(path):
    """Where a file of the repository is in the site."""
    return path.relative_to("docs") if path.is_relative_to("docs") else path


class Site:
    def __init__(self, repository):
        self.repository = repository
        self.titles = {self.target(SUMMARY, link): title for title, link in LISTED.findall(SUMMARY.read_text())}
        self.pages = list(self.titles)
        self.names = {page.name: title for page, title in self.titles.items()}

    @staticmethod
    def target(page, link):
        return Path(os.path.normpath(page.parent / link))

    def link(self, page, link):
        """A link of a page, as it is in the site."""
        path, hash, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return link
        file = self.target(page, path)
        if not file.exists():
            sys.exit(f"{page}: {link}: no such file")
        if file == Path("README.md") and page != SUMMARY:
            return "index.html" + hash + anchor  # as mdBook calls it
        if file in self.pages or file.suffix in PICTURES:
            return str(place(file)) + hash + anchor
        kind = "tree" if file.is_dir() else "blob"
        return f"{self.repository}/{kind}/main/{file}{hash}{anchor}"

    def text(self, page):
        """A page with the links of the site; code stays as it is."""
        text = page.read_text()
        rewritten, at = [], 0
        for fence in [*FENCE.finditer(text), None]:
            end = fence.start() if fence else len(text)
            prose = LINK.sub(lambda found: found[1] + self.link(page, found[2]) + found[3], text[at:end])
            rewritten.append(NAMED.sub(lambda found: f"[{self.names.get(found[1], found[1])}](", prose))
            if fence:
                rewritten.append(fence[0])
                at = fence.end()
        return "".join(rewritten)


def main():
    out = Path(sys.argv[1]).absolute()
    os.chdir(Path(__file__).parents[1])
    package = tomllib.loads(Path("Cargo.toml").read_text())["workspace"]["package"]
    if "repository" not in package:
        sys.exit("Cargo.toml: workspace.package has no repository, which links to files need")
    site = Site(package["repository"].rstrip("/"))
    forgotten = set(Path("docs").glob("*.md")) - set(site.pages) - {SUMMARY}
    if forgotten:
        sys.exit(f"{SUMMARY}: add {', '.join(sorted(map(str, forgotten)))}")

    shutil.rmtree(out, ignore_errors=True)
    pictures = [file for file in Path("docs").rglob("*") if file.suffix in PICTURES]
    for file in [SUMMARY, *site.pages, *pictures]:
        to = out / place(file)
        to.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            to.write_text(site.text(file))
        else:
            shutil.copyfile(file, to)
    print(site.repository)


if __name__ == "__main__":
    main()
