#!/usr/bin/env python3
"""Checks that each step of a workflow runs one command, which can be run here as well.

That is a script of scripts/, a target of the Makefile, or the login of a registry. Permissions are given to jobs, each job has a
time limit, and each checkout leaves no credentials behind.
"""

import os
import re
import sys
from pathlib import Path

COMMAND = re.compile(r"(?:sudo (?:env (?:\"\S+\" )+)?)?(?:(scripts/\S+)|make (\S+))")
LOGIN = re.compile(r"(?:skopeo|helm registry) login ghcr\.io .*--password-stdin")
MATRIX = re.compile(r"^ +target:\n((?: +- .*\n)+)", re.MULTILINE)
JOB = re.compile(r"^  ([\w-]+):\n((?:    .*\n|\n|  #.*\n)+)", re.MULTILINE)


def commands(text):
    """The commands of the steps; those of a matrix are spelled out."""
    for line in re.findall(r"^ +(?:- )?run: (.+)$", text, re.MULTILINE):
        if line == "make $TARGET":
            (targets,) = MATRIX.findall(text)
            yield from (f"make {target}" for target in re.findall(r"- (.*)", targets))
        else:
            yield line


def problems(text, targets):
    for command in commands(text):
        found = COMMAND.match(command)
        if not found:
            if not LOGIN.match(command):
                yield f"`run: {command}`: call a script of scripts/ or a target of the Makefile, in one line"
        elif found[1] and not os.access(found[1], os.X_OK):
            yield f"{found[1]}: no such script"
        elif found[2] and found[2] not in targets:
            yield f"make {found[2]}: the Makefile has no such target"
    if not re.search(r"^permissions: \{\}$", text, re.MULTILINE):
        yield "write `permissions: {}`, and give each job what it needs"
    for name, job in JOB.findall(text[text.index("\njobs:\n") + len("\njobs:") :]):
        is_call = re.search(r"^    uses: \./", job, re.MULTILINE)
        if "    permissions:\n" not in job:
            yield f"job {name}: name its permissions"
        if not is_call and "    timeout-minutes: " not in job:
            yield f"job {name}: set timeout-minutes"
        if job.count("uses: actions/checkout@") != job.count("persist-credentials: false"):
            yield f"job {name}: check out with `persist-credentials: false`"


def main():
    os.chdir(Path(__file__).parents[1])
    targets = set(re.findall(r"^([a-z-]+):(?!=)", Path("Makefile").read_text(), re.MULTILINE))
    wrong = 0
    for workflow in sorted(Path(".github/workflows").glob("*.yml")):
        for problem in problems(workflow.read_text(), targets):
            print(f"{workflow}: {problem}", file=sys.stderr)
            wrong += 1
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
