#!/usr/bin/env python3
"""Measures `incumbent proxy` beside HAProxy, for docs/benchmarks.md, on this machine.

    scripts/bench-proxy.py PROGRAM [--seconds 5] [--rounds 3] [--faults 10]

PROGRAM is the release build of `incumbent`. Needs nats-server (scripts/install-nats.sh), PostgreSQL of Debian
(scripts/install-postgres.sh), HAProxy (scripts/install-packages.sh), and root: `make bench-proxy`. The leader is a
real PostgreSQL, then an HTTP server in Python, each the command of `incumbent run`.

1. pgbench, of prepared selects, and COPY of 2 GB: directly, through the proxy, and through HAProxy, in turn.
2. For how long the requests of one client fail or wait at a stop (SIGTERM), a move and a kill (SIGKILL) of the leader:
   one client through the proxy and one through HAProxy see the same faults.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from processes import Processes

ROOT = Path(__file__).resolve().parent.parent
HTTP_SERVER = """
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_GET(self):
        body = os.environ["INCUMBENT_TOKEN"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
ThreadingHTTPServer.request_queue_size = 64
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, look, limit=60):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            if found := look():
                return found
        time.sleep(0.01)
    sys.exit(f"waited {limit} s for {what}")


class Candidate:
    """One candidate of an election, which may be started again."""

    def __init__(self, fleet, number, command_of):
        self.fleet, self.identity = fleet, f"c{number}"
        self.port, self.http = free_port(), free_port()
        self.command = command_of(number, self.port)
        self.start()

    def start(self):
        self.process = self.fleet.processes.start(
            self.identity, *self.fleet.program, "run", self.fleet.name, "--identity", self.identity, "--lease", "5s",
            "--advertise", f"127.0.0.1:{self.port}", "--http", self.http, *self.fleet.lock, "--", *self.command,
        )  # fmt: skip

    def leads(self):
        return self.answers("leading")

    def answers(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{path}", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False


class Fleet:
    """Two candidates, a proxy and HAProxy in front of them."""

    def __init__(self, processes, program, server, name, command_of):
        self.processes, self.program, self.name = processes, [program], name
        self.lock = ["--server", server]
        self.candidates = [Candidate(self, number, command_of) for number in (1, 2)]
        self.paths = {"incumbent proxy": free_port(), "HAProxy": free_port()}
        listen = self.paths["incumbent proxy"]
        self.proxy = processes.start("proxy", program, "proxy", name, "--listen", listen, "--hold", "1m", *self.lock)
        config = processes.directory / f"{name}.cfg"
        servers = [
            f"    server {c.identity} 127.0.0.1:{c.port} check port {c.http}\n" for c in self.candidates
        ]
        config.write_text(
            "global\n    nbthread 2\ndefaults\n    mode tcp\n    timeout connect 1s\n    timeout client 1m\n"
            "    timeout server 1m\n    retries 0\n"
            f"frontend clients\n    bind 127.0.0.1:{self.paths['HAProxy']}\n    default_backend leader\n"
            "backend leader\n    option httpchk OPTIONS /leading\n"
            "    default-server inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions\n" + "".join(servers)
        )
        self.haproxy = processes.start("haproxy", "haproxy", "-db", "-f", config)

    def leader(self):
        return wait_for("a leader", lambda: next((c for c in self.candidates if c.leads()), None))

    def fault(self, kind):
        """Ends the term of the leader, and returns once the other one leads."""
        leader = self.leader()
        other = next(candidate for candidate in self.candidates if candidate is not leader)
        wait_for("the standby", lambda: other.answers("readyz") and other.answers("standby"))
        if kind == "move":
            move = [*self.program, "election", "move", self.name, "--to", other.identity, *self.lock]
            subprocess.run(move, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        else:
            leader.process.send_signal(signal.SIGTERM if kind == "stop" else signal.SIGKILL)
        wait_for("the next leader", other.leads)
        if kind != "move":
            leader.process.wait()
            leader.start()


class Client(threading.Thread):
    """Sends one request after the other, and keeps when each was answered."""

    def __init__(self, port, session):
        super().__init__(daemon=True)
        self.port, self.session = port, session
        self.answered, self.failed, self.stops = [], 0, False
        self.start()

    def run(self):
        while not self.stops:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=90) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    request = self.session(connection)
                    while not self.stops:
                        request()
                        self.answered.append(time.monotonic())
                        time.sleep(0.002)
            except OSError:
                self.failed += 1
                time.sleep(0.002)

    def silence(self, since):
        """Milliseconds between the two answers that are the farthest apart."""
        answered = [at for at in self.answered if at >= since]
        return max(1000 * (after - before) for before, after in zip(answered, answered[1:]))


def exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise ConnectionError("the connection ended")
    return data


def http_session(connection):
    stream = connection.makefile("rb")

    def request():
        connection.sendall(b"GET / HTTP/1.1\r\nHost: leader\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += exactly(stream, 1)
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError("another status")
        exactly(stream, int(re.search(rb"Content-Length: (\d+)", head)[1]))

    return request


def postgres_session(connection):
    stream = connection.makefile("rb")
    start = struct.pack("!I", 196608) + b"user\0postgres\0database\0postgres\0\0"
    connection.sendall(struct.pack("!I", len(start) + 4) + start)

    def until_ready():
        kind = b""
        while kind != b"Z":
            kind, length = struct.unpack("!cI", exactly(stream, 5))
            exactly(stream, length - 4)
            if kind == b"E":
                raise ConnectionError("an error response")

    def request():
        query = b"select 1\0"
        connection.sendall(b"Q" + struct.pack("!I", len(query) + 4) + query)
        until_ready()

    until_ready()
    return request


def faults(fleet, session, count):
    clients = {name: Client(port, session) for name, port in fleet.paths.items()}
    for client in clients.values():
        wait_for("an answer", lambda client=client: client.answered)
    print(f"| {fleet.name} | kind | silence: median / max, ms | failed requests |\n|---|---|---|---|")
    for kind in ("stop", "move", "kill"):
        silences = {name: [] for name in clients}
        failed = {name: client.failed for name, client in clients.items()}
        for _ in range(count):
            since = time.monotonic()
            fleet.fault(kind)
            for name, client in clients.items():
                seen = time.monotonic()
                wait_for("an answer", lambda c=client, at=seen: c.answered and c.answered[-1] > at + 0.5)
                silences[name].append(client.silence(since))
            time.sleep(0.5)
        for name, client in clients.items():
            middle, most = statistics.median(silences[name]), max(silences[name])
            fails = (client.failed - failed[name]) / count
            print(f"| {name} | {kind} | {middle:.0f} / {most:.0f} | {fails:.1f} |", flush=True)
    for client in clients.values():
        client.stops = True


def cpu(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pgbench(directory, port, clients, seconds):
    prefix = directory / "latencies"
    for old in directory.glob("latencies*"):
        old.unlink()
    done = subprocess.run(
        ["pgbench", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-n", "-S", "-M", "prepared",
         "-c", str(clients), "-T", str(seconds), "-l", f"--log-prefix={prefix}", "postgres"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    rate = float(re.search(r"tps = ([\d.]+)", done.stdout)[1])
    lines = (line for file in directory.glob("latencies*") for line in file.open())
    latencies = sorted(int(line.split()[2]) for line in lines)
    return rate, latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]


def copy(port):
    """MB/s of two gigabytes to a client that drops them."""
    query = "copy (select repeat('x', 7999) from generate_series(1, 250000)) to stdout"
    begun = time.monotonic()
    subprocess.run(
        ["psql", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-qc", query],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return 2000 / (time.monotonic() - begun)


def throughput(fleet, seconds, rounds):
    leader = fleet.leader()
    paths = {"direct": (leader.port, None)}
    for name, process in (("incumbent proxy", fleet.proxy), ("HAProxy", fleet.haproxy)):
        paths[name] = (fleet.paths[name], process)
    for port, _ in paths.values():
        wait_for("an answer", lambda port=port: pgbench(fleet.processes.directory, port, 1, 1))
    figures = {name: {"copy": [], 1: [], 16: []} for name in paths}
    for _ in range(rounds):
        for name, (port, process) in paths.items():
            for clients in (1, 16):
                before = cpu(process) if process else 0
                rate, p50, p99 = pgbench(fleet.processes.directory, port, clients, seconds)
                used = 1e6 * (cpu(process) - before) / (rate * seconds) if process else 0
                figures[name][clients].append((rate, p50, p99, used))
            before = cpu(process) if process else 0
            rate = copy(port)
            figures[name]["copy"].append((rate, cpu(process) - before if process else 0))
    print("| path | clients | requests/s | p50, us | p99, us | CPU of the proxy, us per request |")
    print("|---|---|---|---|---|---|")
    for clients in (1, 16):
        for name in paths:
            columns = [statistics.median(column) for column in zip(*figures[name][clients])]
            print(f"| {name} | {clients} | " + " | ".join(f"{value:,.0f}" for value in columns) + " |")
    print("| path | COPY, MB/s | CPU of the proxy, s per GB |\n|---|---|---|")
    for name in paths:
        rate, used = (statistics.median(column) for column in zip(*figures[name]["copy"]))
        print(f"| {name} | {rate:,.0f} | {used / 2:.2f} |", flush=True)


def data_directory(directory, number):
    """A new data directory, and the command that serves it. PostgreSQL refuses root."""
    as_user = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
    data = directory / f"data-{number}"
    data.mkdir()
    shutil.chown(data, "nobody", "nogroup")
    initdb = [*as_user, programs() / "initdb", "-U", "postgres", "-A", "trust", "--no-sync", "-D", data]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL)
    settings = ["-c", "fsync=off", "-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1"]
    return [*as_user, programs() / "postgres", "-D", data, *settings]


def programs():
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


def fill(port):
    fill_in = ["pgbench", "-i", "-q", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]
    look = lambda: subprocess.run(fill_in, capture_output=True).returncode == 0  # noqa: E731
    wait_for("PostgreSQL", look)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--faults", type=int, default=10)
    args = parser.parse_args()
    nats = ROOT / ".tools/nats-server-2.15.1/nats-server"
    missing = [name for name in ("haproxy", "pgbench", nats) if not shutil.which(str(name))]
    if missing:
        sys.exit(f"not measured: {missing[0]} is missing")
    with tempfile.TemporaryDirectory(prefix="incumbent-bench-") as directory:
        directory = Path(directory)
        directory.chmod(0o755)
        processes = Processes(directory)
        try:
            port = free_port()
            server = f"nats://127.0.0.1:{port}"
            processes.start("nats", nats, "-js", "-sd", directory / "js", "-a", "127.0.0.1", "-p", port)
            wait_for("nats-server", lambda: socket.create_connection(("127.0.0.1", port)).close() or True)
            data = {number: data_directory(directory, number) for number in (1, 2)}
            fleet = Fleet(processes, args.program, server, "PostgreSQL", lambda n, p: [*data[n], "-p", p])
            fill(fleet.leader().port)
            throughput(fleet, args.seconds, args.rounds)
            faults(fleet, postgres_session, args.faults)
            processes.end_all()
            port = free_port()
            server = f"nats://127.0.0.1:{port}"
            processes.start("nats", nats, "-js", "-sd", directory / "js2", "-a", "127.0.0.1", "-p", port)
            wait_for("nats-server", lambda: socket.create_connection(("127.0.0.1", port)).close() or True)
            command = lambda _, port: ["python3", "-c", HTTP_SERVER, port]  # noqa: E731
            faults(Fleet(processes, args.program, server, "HTTP", command), http_session, args.faults)
        finally:
            processes.end_all()


if __name__ == "__main__":
    main()
