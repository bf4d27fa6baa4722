#!/usr/bin/env python3
"""Prints who led when, and the gaps between two leaders, from the lines of scripts/demo.sh on standard input.

    scripts/timeline.py < LINES              terms, gaps, and a bar of 80 columns
    scripts/timeline.py --svg FILE < LINES   draws the same as a picture, too

A line counts if it is `HH:MM:SS.mmm WORKER leads, with token N`, `… stops its work`, `… leads no more: CAUSE` or
`… is killed`. `--check` tests this program, and that docs/pictures/demo.svg is drawn from the lines beside it.
"""

import argparse
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True  # no folder of it beside the documentation
sys.path.append(str(ROOT / "docs" / "diagrams"))
from render import timeline  # noqa: E402

LINE = re.compile(
    r"(\d\d):(\d\d):(\d\d)\.(\d{3}) (\S+) (leads, with token|leads no more:|stops its work|is killed) ?(.*)"
)
DAY = 24 * 3600 * 1000
COLUMNS = 80
MEASURED = """\
A gap lasts from when the former leader stops its work (killed: from just before
the signal is sent) to when the next one begins, by the clock of this machine."""


class Term:
    def __init__(self, leader, token, start):
        self.leader, self.token, self.start = leader, token, start
        self.end = None  # when it stopped its work
        self.how = "continues"


def terms_of(lines):
    """The terms in their order, with times in milliseconds."""
    terms, before = [], None
    for line in lines:
        found = LINE.fullmatch(line.strip())
        if not found:
            continue
        hours, minutes, seconds, millis = map(int, found.groups()[:4])
        worker, what, rest = found.groups()[4:]
        at = ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis
        if before is not None and at < before - DAY // 2:
            at += DAY  # past midnight
        before = at if before is None else max(before, at)
        if what.startswith("leads, "):
            terms.append(Term(worker, rest, at))
            continue
        term = next((term for term in reversed(terms) if term.leader == worker), None)
        if term is None:
            continue
        if term.end is None:
            term.end = at
        if what == "is killed":
            term.how = "killed"
        elif what == "leads no more:":
            term.how = rest
    return sorted(terms, key=lambda term: term.start)


def gaps_of(terms):
    """The milliseconds between each term and the next; negative if two led at once."""
    return [after.start - before.end for before, after in zip(terms, terms[1:]) if before.end is not None]


def clock(at):
    seconds, millis = divmod(at % DAY, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis:03}"


def lasting(milliseconds):
    return f"{milliseconds} ms" if milliseconds else "less than 1 ms"


def letter(leader):
    """The last digit of its number: worker-10 is 0."""
    return leader[-1]


def bar(terms, end):
    """A column for each part of the time: the leader, or a point where there was none. A gap has one at least."""
    start = terms[0].start
    width = max(end - start, 1) / COLUMNS
    led = [(term.start, end if term.end is None else term.end, letter(term.leader)) for term in terms]
    gaps = [(before[1], after[0]) for before, after in zip(led, led[1:]) if before[1] <= after[0]]
    columns = []
    for number in range(COLUMNS):
        begins = start + number * width
        middle, ends = begins + width / 2, begins + width
        gap = any(begin < ends and (until > begins or begins <= begin) for begin, until in gaps)
        leaders = [name for begin, until, name in led if begin <= middle < until]
        columns.append("." if gap or not leaders else leaders[0])
    return "".join(columns)


def printed(terms):
    """The lines of the timeline."""
    wide = max(len(term.token) for term in [*terms, Term("", "token", 0)])
    yield f"{'leader':<10}  {'token':<{wide}}  {'from':<12}  {'to':<12}  how it ended"
    for number, term in enumerate(terms):
        to = "" if term.end is None else clock(term.end)
        yield f"{term.leader:<10}  {term.token:<{wide}}  {clock(term.start)}  {to:<12}  {term.how}"
        if number + 1 < len(terms) and term.end is not None:
            gap = terms[number + 1].start - term.end
            yield f"   no leader for {lasting(gap)}" if gap >= 0 else f"   TWO LEADERS for {-gap} ms"
    end = max(term.start if term.end is None else term.end for term in terms)
    yield ""
    yield bar(terms, end)
    yield f"{clock(terms[0].start)}{clock(end):>{COLUMNS - 12}}"
    legend = ", ".join(f"{letter(name)} {name}" for name in dict.fromkeys(term.leader for term in terms))
    yield f"{legend}, . nobody"
    if len(terms) > 1:
        yield from MEASURED.splitlines()


def drawn(terms):
    """The directives of docs/diagrams/render.py that draw the terms."""
    start = terms[0].start
    end = max(term.start if term.end is None else term.end for term in terms)

    def at(instant):
        return f"{(instant - start) / 1000:.3f}"

    gaps = [(before, after) for before, after in zip(terms, terms[1:]) if before.end is not None]
    yield "title", "Ten workers: who led when"
    yield "description", "; ".join(
        f"{term.leader} leads with token {term.token} for {(end if term.end is None else term.end) - term.start} ms, "
        f"then: {term.how}" for term in terms
    ) + ". Without a leader: " + ", ".join(lasting(after.start - before.end) for before, after in gaps) + "."
    yield "length", at(end + (end - start) // 50 + 1)
    for term in terms:
        if term.how == "killed":
            yield "moment", f"{at(term.end)} kill -9"
        elif term.end is not None:
            yield "moment", f"{at(term.end)} stop"
    for name in dict.fromkeys(term.leader for term in terms):
        yield "row", name
        for term in terms:
            if term.leader == name:
                ended = end if term.end is None else term.end
                yield "bar", f"{at(term.start)} {at(ended)} leader leads"
                yield "tick", f"{at((term.start + ended) // 2)} token {term.token}"
    yield "row", "no leader"
    for before, after in gaps:
        yield "bar", f"{at(before.end)} {at(max(after.start, before.end))} cooldown "
        yield "tick", f"{at((before.end + after.start) // 2)} {lasting(after.start - before.end)}"


SAMPLE = """\
23:59:58.000 worker-3 leads, with token 1
23:59:59.000 worker-3 is at work
23:59:59.500 worker-3 is killed
00:00:04.500 worker-10 leads, with token 6
== a line of the demo
00:00:06.000 worker-10 stops its work
00:00:06.000 worker-10 leads no more: stopped
00:00:06.003 worker-7 leads, with token 11
00:00:08.000 worker-7 stops its work
00:00:08.001 worker-7 leads no more: stopped
"""


def check():
    """Tests that the terms and the gaps are those of a sample, past midnight."""
    terms = terms_of(SAMPLE.splitlines())
    assert [(term.leader, term.token, term.how) for term in terms] == [
        ("worker-3", "1", "killed"), ("worker-10", "6", "stopped"), ("worker-7", "11", "stopped"),
    ]
    assert gaps_of(terms) == [5000, 3], gaps_of(terms)
    lines = list(printed(terms))
    assert all(len(line) <= COLUMNS for line in lines), lines
    row = next(line for line in lines if line.startswith("333"))
    assert re.fullmatch(r"3+\.+0+\.7+", row) and len(row) == COLUMNS, row
    assert row.count(".") in (41, 42), row  # 5 s of 10 s, and one for 3 ms
    assert "   no leader for 5000 ms" in lines and "   no leader for 3 ms" in lines, lines
    ElementTree.fromstring(timeline(drawn(terms)))
    overlap = terms_of([
        "10:00:00.000 worker-1 leads, with token 1", "10:00:00.900 worker-2 leads, with token 2",
        "10:00:01.000 worker-1 is killed",
    ])
    assert "   TWO LEADERS for 100 ms" in printed(overlap)
    assert terms_of(["", "nonsense", "10:00:00.000 worker-1 is killed"]) == []
    picture = ROOT / "docs" / "pictures" / "demo.svg"
    lines = picture.with_suffix(".log").read_text().splitlines()
    if picture.read_text() != timeline(drawn(terms_of(lines))):
        raise SystemExit(f"{picture} is not drawn from the lines beside it: run `make pictures`")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the timeline into this file, too")
    parser.add_argument("--check", action="store_true", help="test this program, and the picture of the documentation")
    args = parser.parse_args()
    if args.check:
        return check()
    terms = terms_of(sys.stdin)
    if not terms:
        raise SystemExit("timeline: no worker led: the input has no line `… leads, with token …`")
    print("\n".join(printed(terms)))
    if args.svg:
        svg = timeline(drawn(terms))
        ElementTree.fromstring(svg)  # fails unless it is well-formed
        try:
            args.svg.write_text(svg)
        except OSError as error:
            raise SystemExit(f"timeline: cannot write {args.svg}: {error.strerror}") from None


main()
