#!/usr/bin/env python3
"""Plots columns of a CSV file as an SVG picture, in the style of docs/diagrams.

    scripts/plot.py FILE.csv --x standbys --y deliveries --series groups --log x,y > FILE.svg

Lines that begin with `#:` at the top of the file hold options. With `--write` each FILE.csv that
has such lines is drawn into FILE.svg, and with `--check` the program fails if a picture differs.
Rows with an empty cell are left out.
"""

import argparse
import csv
import math
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

sys.dont_write_bytecode = True  # no folder of it beside the documentation
sys.path.append(str(Path(__file__).resolve().parent.parent / "docs" / "diagrams"))
from render import FAINT, PANEL, TEXT, WIDTH, picture, text  # noqa: E402

GRID = "#d0d7de"
# Distinct for the color-blind, too, and each with a mark of its own.
COLORS = ["#0969da", "#cf222e", "#1a7f37", "#8250df", "#9a6700", "#0b7285", "#bf3989", "#57606a"]
MARKS = ["circle", "square", "triangle", "diamond", "down", "cross", "ring", "box"]
RADIUS = 5
TOP, LEGEND_ROW, PANEL_HEIGHT, BOTTOM = 44, 22, 300, 64
LEFT, GAP, RIGHT = 76, 84, 28


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--x", required=True, help="the column of the horizontal axis")
    parser.add_argument("--y", required=True, help="columns, a panel for each: a,b")
    parser.add_argument("--series", help="the column whose values are drawn in colors of their own")
    parser.add_argument("--label", help="the column that is written beside each mark")
    parser.add_argument("--log", default="", help="columns, or x and y, whose axes are logarithmic")
    parser.add_argument("--where", action="append", default=[], help="COLUMN=VALUE: these rows only")
    parser.add_argument("--name", action="append", default=[], help="COLUMN=TEXT on its axis or its legend")
    parser.add_argument("--no-lines", action="store_true", help="do not join the marks of a series")
    parser.add_argument("--title", required=True)
    parser.add_argument("--description", default="", help="for those who cannot see the picture")
    return parser


def read(file):
    """The options and the rows of a CSV file."""
    lines = file.read_text().splitlines()
    words = [word for line in lines if line.startswith("#:") for word in shlex.split(line[2:])]
    return words, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def pairs(texts):
    for part in texts:
        column, equals, value = part.partition("=")
        if not equals:
            raise SystemExit(f"{part}: write COLUMN=VALUE")
        yield column, value


def number(row, column):
    """The number in a cell, or None if there is none."""
    if column not in row:
        raise SystemExit(f"there is no column {column}; there are {', '.join(row)}")
    return float(row[column].replace(",", "")) if row[column].strip() else None


def written(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Axis:
    """Positions of values between two ends of the picture."""

    def __init__(self, values, logarithmic, start, end):
        self.logarithmic, self.start, self.end = logarithmic, start, end
        low, high = min(values), max(values)
        if logarithmic:
            if low <= 0:
                raise SystemExit(f"a logarithmic axis cannot show {low:g}")
            low, high = math.log10(low), math.log10(high)
            margin = max(0.06 * (high - low), 0.05)
            low, high = low - margin, high + margin
        else:
            low, high = min(low, 0), high + 0.06 * (high - low) or 1
        self.low, self.high = low, high

    def at(self, value):
        value = math.log10(value) if self.logarithmic else value
        part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self):
        if not self.logarithmic:
            step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
            step *= next((n for n in (2, 5) if (self.high - self.low) / (step * n) <= 6), 10)
            first = math.ceil(self.low / step)
            return [number * step for number in range(first, math.floor(self.high / step) + 1)]
        steps = [1] if self.high - self.low > 2.5 else [1, 2, 5]
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        values = [step * 10.0**power for power in powers for step in steps]
        return [value for value in values if self.low <= math.log10(value) <= self.high]


def mark(kind, x, y, color):
    r = RADIUS
    outline = f'stroke="{PANEL}"'
    if kind in ("circle", "ring"):
        paint = f'fill="{color}" {outline}' if kind == "circle" else (
            f'fill="{PANEL}" stroke="{color}" stroke-width="2"')
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" {paint}/>'
    if kind == "cross":
        return (f'<path d="M{x - r:.1f} {y - r:.1f} l{2 * r} {2 * r} m0 -{2 * r} l-{2 * r} {2 * r}" '
                f'stroke="{color}" stroke-width="2.5" fill="none"/>')
    paint = f'fill="{color}" {outline}'
    path = {
        "square": f"M{x - r:.1f} {y - r:.1f} h{2 * r} v{2 * r} h-{2 * r} z",
        "triangle": f"M{x:.1f} {y - r - 1:.1f} l{r + 1} {2 * r + 1} h-{2 * r + 2} z",
        "down": f"M{x:.1f} {y + r + 1:.1f} l{r + 1} -{2 * r + 1} h-{2 * r + 2} z",
        "diamond": f"M{x:.1f} {y - r - 1:.1f} l{r + 1} {r + 1} l-{r + 1} {r + 1} l-{r + 1} -{r + 1} z",
    }
    if kind == "box":
        path["box"], paint = path["square"], f'fill="{PANEL}" stroke="{color}" stroke-width="2"'
    return f'<path d="{path[kind]}" {paint}/>'


def legend(of, names):
    """One entry for each series, in rows. Returns the parts and their height."""
    parts, x, row = [], 20, 0
    if of:
        parts.append(text(x, TOP + 13, of, anchor="start", fill=FAINT, size=13))
        x += 16 + 7.4 * len(of)
    for index, name in enumerate(names):
        width = 38 + sum(9.6 if letter.isupper() else 7.4 for letter in name)
        if x + width > WIDTH - 20 and x > 20:
            x, row = 20, row + 1
        y = TOP + row * LEGEND_ROW + 8
        parts.append(mark(MARKS[index % len(MARKS)], x + 6, y, COLORS[index % len(COLORS)]))
        parts.append(text(x + 18, y + 5, name, anchor="start", size=13))
        x += width
    return parts, (row + 1) * LEGEND_ROW if names else 0


def panel(args, rows, series, column, names, frame):
    left, right, top, bottom = frame
    points = [(row, number(row, args.x), number(row, column)) for row in rows]
    points = [point for point in points if None not in point]
    if not points:
        raise SystemExit(f"no row has both {args.x} and {column}")
    logs = args.log.split(",")
    x_axis = Axis([x for _, x, _ in points], "x" in logs or args.x in logs, left, right)
    y_axis = Axis([y for _, _, y in points], "y" in logs or column in logs, bottom, top)
    parts = []
    for value in y_axis.ticks():
        y = y_axis.at(value)
        parts.append(f'<line x1="{left:g}" y1="{y:.1f}" x2="{right:g}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(text(left - 8, round(y + 4, 1), written(value), "end", FAINT, size=12))
    free = left - RIGHT  # where the next label may begin
    for value in x_axis.ticks():
        x = x_axis.at(value)
        parts.append(f'<line x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}" stroke="{GRID}"/>')
        half = 3.6 * len(written(value))
        if x - half >= free:
            parts.append(text(round(x, 1), bottom + 18, written(value), fill=FAINT, size=12))
            free = x + half + 6
    parts.append(f'<path d="M{left:g} {top:g} V{bottom:g} H{right:g}" fill="none" stroke="{FAINT}"/>')
    middle = (top + bottom) / 2
    parts.append(text((left + right) / 2, bottom + 42, names.get(args.x, args.x), size=13))
    parts.append(f'<g transform="rotate(-90 {left - 54:g} {middle:g})">'
                 f"{text(left - 54, middle, names.get(column, column), size=13)}</g>")
    marks, labels = [], []
    for index, name in enumerate(series):
        color, kind = COLORS[index % len(COLORS)], MARKS[index % len(MARKS)]
        of_series = [point for point in points if not args.series or point[0][args.series] == name]
        places = [(x_axis.at(x), y_axis.at(y)) for _, x, y in of_series]
        if len(places) > 1 and not args.no_lines:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" '
                         f'stroke-width="1.5" opacity="0.6"/>')
        for (row, _, _), (x, y) in zip(of_series, places):
            marks.append(mark(kind, x, y, color))
            if args.label:
                label = row[args.label]
                labels.append((x, y, written(int(label)) if label.isdigit() else label))
    return parts + marks + label_parts(labels, right)


def label_parts(labels, right):
    """The labels beside their marks: on the right, unless another one or the edge is there."""
    parts, taken = [], [(x - RADIUS, x + RADIUS, y) for x, y, _ in labels]
    for x, y, label in labels:
        width = 6.6 * len(label)
        sides = [("start", x + 9, y + 4), ("end", x - 9, y + 4),
                 ("middle", x, y - 10), ("middle", x, y + 18)]

        def span(anchor, at):
            begins = at - {"start": 0, "end": width, "middle": width / 2}[anchor]
            return begins, begins + width

        def is_free(side):
            anchor, at, base = side
            begins, ends = span(anchor, at)
            hits = [1 for a, b, c in taken if a < ends and begins < b and abs(c - base + 4) < 12]
            return ends <= right + RIGHT and not hits

        anchor, at, base = next((side for side in sides if is_free(side)), sides[0])
        taken.append((*span(anchor, at), base - 4))
        halo = f'<g paint-order="stroke" stroke="{PANEL}" stroke-width="3">'
        label = text(round(at, 1), round(base, 1), label, anchor, TEXT, size=11)
        parts.append(f"{halo}{label}</g>")
    return parts


def draw(words, rows):
    args = options().parse_args(words)
    for column, value in pairs(args.where):
        rows = [row for row in rows if row.get(column) == value]
    if not rows:
        raise SystemExit("there are no rows to plot")
    if args.series and args.series not in rows[0]:
        raise SystemExit(f"there is no column {args.series}; there are {', '.join(rows[0])}")
    series = list(dict.fromkeys(row[args.series] for row in rows)) if args.series else [""]
    names = dict(pairs(args.name))
    parts, height = legend(names.get(args.series, ""), series if args.series else [])
    top, columns = TOP + height + 16, args.y.split(",")
    width = (WIDTH - LEFT - RIGHT - GAP * (len(columns) - 1)) / len(columns)
    for index, column in enumerate(columns):
        left = LEFT + index * (width + GAP)
        frame = (left, left + width, top, top + PANEL_HEIGHT)
        parts += panel(args, rows, series, column, names, frame)
    svg = picture(args.title, args.description or args.title, top + PANEL_HEIGHT + BOTTOM, parts)
    ElementTree.fromstring(svg)  # fails unless it is well-formed
    return svg


def main():
    words = sys.argv[1:]
    if words and words[0] in ("--write", "--check"):
        for file in map(Path, words[1:]):
            own, rows = read(file)
            if not own:
                raise SystemExit(f"{file} has no line with options: `#: --x … --y …`")
            svg, drawn = draw(own, rows), file.with_suffix(".svg")
            if words[0] == "--write":
                drawn.write_text(svg)
            elif not drawn.exists() or drawn.read_text() != svg:
                raise SystemExit(f"{drawn} is out of date: run `make diagrams`")
    elif words and not words[0].startswith("-"):
        own, rows = read(Path(words[0]))
        print(draw(own + words[1:], rows), end="")
    else:
        print(__doc__.strip(), end="\n\n")
        options().print_help()


if __name__ == "__main__":
    main()
