#!/usr/bin/env python3
"""Queries a real Prometheus for each expression of the dashboard and of the alerts. It scrapes two candidates and a member
of a set.

scripts/check-dashboards.sh runs it. NATS_SERVER and INCUMBENT name the programs. It prints a line for each part, and
fails with one line: an expression is wrong, one of the dashboard returns nothing, or an alert does not notice a fault.
"""

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from processes import Processes

RULES = Path("deploy/helm/incumbent/files/prometheus-alerts.yaml").resolve()
DASHBOARD = Path("deploy/grafana-dashboard.json")
ELECTION = "billing"
SET, SHARDS = "indexers", 2
# How long what is awaited may take; on an idle machine it takes seconds.
LIMIT = 60
# What Grafana puts into expressions.
VARIABLES = {"$election": ".+", "$__rate_interval": "5m"}
COLUMNS = 24
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: incumbent
    static_configs: [targets: {targets}]
"""


class Failure(Exception):
    """What is wrong, in one line."""


class Prometheus:
    def __init__(self, url):
        self.url = url

    def get(self, path, **parameters):
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise Failure(f"{one_line(error.read().decode())}: {one_line(parameters)}") from None

    def ready(self):
        """Whether it answers queries; before that it answers them with plain text."""
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=10):
            return True

    def query(self, expression):
        """The samples that are numbers."""
        data = self.get("query", query=expression)
        return [sample for sample in data["result"] if not math.isnan(float(sample["value"][1]))]

    def rules(self):
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


def one_line(value):
    return " ".join(str(value).split())


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait(processes, what, condition):
    """Returns what `condition` does, once that is true."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        try:
            if result := condition():
                return result
        except OSError:
            pass  # not started yet
        if ended := processes.ended():
            raise Failure(ended)
        time.sleep(0.2)
    raise Failure(f"not within {LIMIT} s: {what}")


def check_layout(dashboard):
    """That panels have ids of their own and do not overlap, and query the selected data source alone."""
    taken, ids = {}, set()
    for panel in dashboard["panels"]:
        title, place = panel["title"], panel["gridPos"]
        if panel["id"] in ids:
            raise Failure(f"panel {title!r} has the id of another one")
        ids.add(panel["id"])
        if place["x"] + place["w"] > COLUMNS:
            raise Failure(f"panel {title!r} is wider than the dashboard")
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if (x, y) in taken:
                    raise Failure(f"panels {title!r} and {taken[x, y]!r} overlap")
                taken[x, y] = title
        for source in [panel, *panel["targets"]]:
            if source["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
                raise Failure(f"panel {title!r} has a data source of its own")
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    if names != {"datasource", "election"}:
        raise Failure(f"the dashboard has the variables {sorted(names)}")


def dashboard_queries(dashboard):
    """Each expression with the title of its panel."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            if "$" in expression:
                raise Failure(f"panel {panel['title']!r} has an unknown variable: {expression}")
            yield panel["title"], expression


def check_dashboard(processes, prometheus):
    try:
        dashboard = json.loads(DASHBOARD.read_text())
        check_layout(dashboard)
        queries = list(dashboard_queries(dashboard))
    except (KeyError, ValueError) as error:
        raise Failure(f"{DASHBOARD}: {type(error).__name__}: {error}") from None
    for title, expression in queries:
        wait(
            processes,
            f"panel {title!r} returns series for {expression}",
            lambda: prometheus.query(expression),
        )
    query = dashboard["templating"]["list"][1]["query"]["query"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
    values = prometheus.get(f"label/{label}/values", **{"match[]": metric})
    if values != [ELECTION, *(f"{SET}.{shard}" for shard in range(SHARDS))]:
        raise Failure(f"the variable election has the values {values}")
    print(f"the {len(queries)} expressions of the dashboard return series")


def check_alerts(processes, prometheus):
    """That Prometheus evaluates each alert without an error, and has what it compares with a number."""
    rules = prometheus.rules()
    for rule in rules:
        prometheus.query(rule["query"])
        compared = re.sub(r" (>|==) [\d.]+$", "", rule["query"])
        if compared != rule["query"]:
            wait(
                processes,
                f"{rule['name']} has something to compare: {compared}",
                lambda: prometheus.query(compared),
            )

    def evaluated():
        states = {rule["name"]: rule for rule in prometheus.rules()}
        for name, rule in states.items():
            if rule["health"] == "err":
                raise Failure(f"{name}: {rule['lastError']}")
        return all(rule["health"] == "ok" for rule in states.values())

    wait(processes, "Prometheus evaluates each alert", evaluated)
    print(f"the {len(rules)} alerts are evaluated without an error, and find their metrics")


def check_noticed(processes, prometheus, fault, *alerts):
    """That these alerts are pending or firing after a fault, and their texts are whole."""
    for name in alerts:

        def raised():
            found = prometheus.get("alerts")["alerts"]
            return [alert for alert in found if alert["labels"]["alertname"] == name]

        for alert in wait(processes, f"{name} notices {fault}", raised):
            for text in alert["annotations"].values():
                if "<no value>" in text or "<error" in text:
                    raise Failure(f"{name} has a wrong template: {text}")
    print(f"{' and '.join(alerts)} {'notice' if len(alerts) > 1 else 'notices'} {fault}")


def check(directory, processes):
    nats, incumbent = os.environ["NATS_SERVER"], os.environ["INCUMBENT"]
    nats_port, web_port, member_port, *candidate_ports = free_ports(5)
    lock = ["--server", f"nats://127.0.0.1:{nats_port}"]
    sick = directory / "sick"

    def start_candidate(number, port):
        check = f"test ! -e {sick}"
        often = ["--check-interval", "500ms", "--check-failures", "1", "--drain", "1s"]
        flags = ["--lease", "5s", "--identity", f"c{number}", "--check", check, *often]
        serving = ["--http", f"127.0.0.1:{port}"]
        command = ["sleep", "infinity"]
        name = f"candidate-{number}"
        processes.start(name, incumbent, "run", ELECTION, *lock, *flags, *serving, "--", *command)

    options = ["--addr", "127.0.0.1", "--port", str(nats_port), "--jetstream"]
    processes.start("nats-server", nats, *options, "--store_dir", str(directory / "store"))
    start_candidate(1, candidate_ports[0])
    metrics = f"http://127.0.0.1:{candidate_ports[0]}/metrics"

    def leads():
        with urllib.request.urlopen(metrics, timeout=10) as response:
            return re.search(rb"^incumbent_leader\{.*\} 1$", response.read(), re.MULTILINE)

    # Before the first scrape, as the alert of late renewals wants leaders that have led in each.
    wait(processes, "a candidate leads", leads)
    start_candidate(2, candidate_ports[1])
    targets = json.dumps([f"127.0.0.1:{port}" for port in [*candidate_ports, member_port]])
    config = directory / "prometheus.yml"
    config.write_text(CONFIG.format(rules=json.dumps(str(RULES)), targets=targets))
    processes.start(
        "prometheus",
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{web_port}",
    )
    prometheus = Prometheus(f"http://127.0.0.1:{web_port}")
    wait(processes, "Prometheus is ready", prometheus.ready)

    candidates = "count(incumbent_leader) == 2 and sum(incumbent_leader) == 1"
    wait(processes, "a leader and a standby are scraped", lambda: prometheus.query(candidates))
    print("Prometheus scrapes a leader and a standby")
    check_alerts(processes, prometheus)

    def move():
        command = [incumbent, "election", "move", ELECTION, *lock]
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0

    def pause():
        command = [incumbent, "election", "pause", ELECTION, "--for", "1s", *lock]
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0

    wait(processes, "the leader hands over", move)
    wait(processes, "the election is paused", pause)
    serving = ["--http", f"127.0.0.1:{member_port}"]
    command = ["set", "run", SET, "--shards", str(SHARDS), *lock, "--lease", "5s", *serving]
    processes.start("member", incumbent, *command, "--", "sleep", "infinity")
    check_dashboard(processes, prometheus)

    sick.touch()
    check_noticed(processes, prometheus, "candidates whose checks fail", "IncumbentLeaderSick")
    sick.unlink()
    processes.signal("nats-server", signal.SIGSTOP)
    alerts = ["IncumbentNoLeader", "IncumbentTermLost", "IncumbentLockFailing"]
    check_noticed(processes, prometheus, "a lock that hangs", *alerts)
    processes.signal("nats-server", signal.SIGCONT)
    for number in range(1, len(candidate_ports) + 1):
        processes.end(f"candidate-{number}")
    check_noticed(processes, prometheus, "the end of all candidates", "IncumbentElectionGone")


def main():
    sys.stdout.reconfigure(line_buffering=True)
    # As an exception, so that what was started ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="incumbent-dashboards.") as directory:
        processes = Processes(Path(directory))
        try:
            check(Path(directory), processes)
        except Failure as failure:
            sys.exit(f"check-dashboards: {one_line(failure)}")
        except KeyboardInterrupt:
            sys.exit(130)
        finally:
            processes.end_all()


main()
