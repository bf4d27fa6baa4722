#!/usr/bin/env python3
"""Draws the SVG files of this folder from the text files of the same names: `make diagrams`.

With `--check` it writes nothing, and fails if a picture differs from its text.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

WIDTH = 960
# A panel of its own keeps the picture readable on light and on dark pages.
PANEL, BORDER, TEXT, FAINT = "#f6f8fa", "#8c959f", "#1f2328", "#59636e"
FILLS = {
    "leader": "#a5d6a7",
    "standby": "#dfe3e8",
    "cooldown": "#ffe082",
    "entry": "#b3d4fc",
    "empty": "#ffffff",
    "box": "#e3ebf5",
}
STYLE = f'font-family="system-ui, sans-serif" font-size="14" fill="{TEXT}"'


def directives(file):
    """The lines of a source as (word, rest), without comments."""
    for line in file.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.strip().partition(" ")
            yield word, rest


def text(x, y, label, anchor="middle", fill=TEXT, weight="normal", size=14):
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}" '
        f'font-weight="{weight}" font-size="{size}">{escape(label)}</text>'
    )


def box(x, y, width, height, kind):
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
        f'fill="{FILLS[kind]}" stroke="{BORDER}"/>'
    )


def line(x1, y1, x2, y2, dashes=""):
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{FAINT}"{dashed}/>'


def picture(title, description, height, parts):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-labelledby="title description" {STYLE}>',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8" '
        f'fill="{PANEL}" stroke="{BORDER}"/>',
        text(20, 28, title, anchor="start", weight="bold", size=15),
        *parts,
        "</svg>\n",
    ])


def timeline(source):
    left, right, top, row_height, bar_height = 130, WIDTH - 20, 84, 84, 32
    title = description = ""
    length, row, rows, moments, parts = 1.0, -1, [], [], []

    def at(instant):
        return left + float(instant) / length * (right - left)

    for word, rest in source:
        y = top + row * row_height
        if word == "title":
            title = rest
        elif word == "description":
            description = rest
        elif word == "length":
            length = float(rest)
        elif word == "moment":
            moments.append(rest.partition(" "))
        elif word == "row":
            row += 1
            rows.append(rest)
            parts.append(text(20, top + row * row_height + 21, rest, anchor="start", weight="bold"))
        elif word == "bar":
            start, end, kind, label = rest.split(" ", 3)
            parts.append(box(at(start), y, at(end) - at(start), bar_height, kind))
            size = 14 if at(end) - at(start) > 8 * len(label) else 12
            parts.append(text((at(start) + at(end)) / 2, y + 21, label, size=size))
        elif word in ("tick", "mark"):
            instant, _, label = rest.partition(" ")
            parts.append(line(at(instant), y + bar_height, at(instant), y + bar_height + 8))
            x, anchor = (at(instant), "middle") if word == "tick" else (at(instant) + 3, "end")
            parts.append(text(x, y + bar_height + 22, label, anchor=anchor, fill=FAINT, size=12))
        else:
            raise SystemExit(f"unknown word: {word}")
    bottom = top + len(rows) * row_height
    for instant, _, label in moments:
        parts.insert(0, line(at(instant), top - 14, at(instant), bottom - 20, dashes="4 4"))
        parts.append(text(at(instant), top - 20, label, weight="bold", size=13))
    parts.append(line(left, bottom, right, bottom))
    parts.append(f'<path d="M{right} {bottom} l-8 -4 v8 z" fill="{FAINT}"/>')
    parts.append(text(right, bottom + 18, "time", anchor="end", fill=FAINT, size=12))
    return picture(title, description, bottom + 32, parts)


def layers(source):
    left, top, height, gap = 20, 48, 52, 12
    title = description = ""
    parts, y = [], top
    for word, rest in source:
        if word == "title":
            title = rest
        elif word == "description":
            description = rest
        elif word == "layer":
            boxes = [part.strip().partition(": ") for part in rest.split("|")]
            width = (WIDTH - 2 * left - gap * (len(boxes) - 1)) / len(boxes)
            for column, (name, _, label) in enumerate(boxes):
                x = left + column * (width + gap)
                parts.append(box(x, y, width, height, "box"))
                parts.append(text(x + width / 2, y + 22, name, weight="bold"))
                parts.append(text(x + width / 2, y + 41, label, fill=FAINT, size=13))
            y += height + gap
        else:
            raise SystemExit(f"unknown word: {word}")
    return picture(title, description, y + 8, parts)


def main():
    folder = Path(__file__).parent
    for name, draw in {"takeover": timeline, "layers": layers}.items():
        svg = draw(directives(folder / f"{name}.txt"))
        ElementTree.fromstring(svg)  # fails unless it is well-formed
        file = folder / f"{name}.svg"
        if "--check" not in sys.argv:
            file.write_text(svg)
        elif file.read_text() != svg:
            raise SystemExit(f"{file} is out of date: run `make diagrams`")


if __name__ == "__main__":
    main()
