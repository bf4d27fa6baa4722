#!/usr/bin/env python3
"""The part of scripts/check-chart.sh that needs an API server.

It has the server validate what the chart and the kustomize base render. Then it installs, upgrades and uninstalls the chart, and runs the
container's command of the stored Deployment on this host, with a token of the chart's service account.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

CHART = Path("deploy/helm/incumbent")
NAMESPACE = "prod"
TIMEOUT = 60


class Failed(Exception):
    pass


def run(*command, stdin=None, env=None, code=0, timeout=TIMEOUT):
    """The standard output of a command that must exit with `code`."""
    done = subprocess.run(
        list(map(str, command)), input=stdin, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != code:
        what = " ".join(map(str, command))
        raise Failed(f"{what}: exit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(condition, what):
    if not condition:
        raise Failed(what)


def eventually(what, ask):
    end = time.monotonic() + TIMEOUT
    while not (found := ask()):
        expect(time.monotonic() < end, f"not within {TIMEOUT} s: {what}")
        time.sleep(0.1)
    return found


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """An API server without a kubelet: pods stay pending."""

    def __init__(self, directory, log):
        self.directory = directory
        command = [os.environ["KUBESERVER"], "-dir", directory]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        ready = self.process.stdout.readline().split()
        expect(ready[:1] == ["ready"], "the API server does not start")
        self.server = ready[1]
        self.env = {**os.environ, "KUBECONFIG": str(directory / "kubeconfig"), "HELM_CACHE_HOME": str(directory / "helm")}
        self.env |= {"HELM_CONFIG_HOME": str(directory / "helm"), "HELM_DATA_HOME": str(directory / "helm")}

    def helm(self, *args):
        return run(os.environ["HELM"], *args, "--namespace", NAMESPACE, env=self.env)

    def kubectl(self, *args, stdin=None):
        return run(os.environ["KUBECTL"], *args, "--namespace", NAMESPACE, stdin=stdin, env=self.env)

    def get(self, kind, name):
        return json.loads(self.kubectl("get", kind, name, "--output", "json"))

    def validate(self, manifests, *flags):
        """As `kubectl apply` would create it: unknown fields and warnings, as of the pod security standard, are errors."""
        flags = ["--dry-run=server", "--validate=strict", "--warnings-as-errors", *flags]
        return self.kubectl("apply", *flags, stdin=manifests).splitlines()

    def environment_of(self, account):
        """Of a container: the credentials of its service account, and who it is."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.server, "certificate-authority": str(self.directory / "ca.crt")}}],
            "users": [{"name": "u", "user": {"token": self.kubectl("create", "token", account).strip()}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = self.directory / f"{account}.json"
        file.write_text(json.dumps(config))
        kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        return {**kept, "KUBECONFIG": str(file), "POD_NAMESPACE": NAMESPACE}

    def deployed(self, name):
        """The container of a Deployment."""
        [container] = self.get("deployment", name)["spec"]["template"]["spec"]["containers"]
        return container


class Candidate:
    """The command of a container, on this host."""

    def __init__(self, container, pod, env, port=None):
        args = [*container.get("command", ["incumbent"])[1:], *container.get("args", [])]
        if port:
            args = [arg if not arg.startswith("0.0.0.0:") else f"127.0.0.1:{port}" for arg in args]
        env = {**env, "POD_NAME": pod}
        self.output = tempfile.TemporaryFile("w+")
        command = [os.environ["INCUMBENT"], *args]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output)

    def said(self):
        self.output.seek(0)
        return self.output.read()

    def says(self, text):
        def ask():
            ended = self.process.poll() is not None
            said = self.said()
            expect(text in said or not ended, f"the candidate ended before it said {text!r}:\n{said}")
            return text in said

        eventually(f"the candidate says {text!r}", ask)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(TIMEOUT)


def incumbent(env, *args, code=0):
    return run(os.environ["INCUMBENT"], *args, env=env, code=code)


def set_up(cluster):
    labels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("label", "namespace", NAMESPACE, *labels)
    for name in ("servicemonitors", "prometheusrules"):
        file = f"{os.environ['CUSTOM_RESOURCES']}/monitoring.coreos.com_{name}.yaml"
        cluster.kubectl("create", "--filename", file)
        # `kubectl wait` fails on one that has no condition yet.
        await_established(cluster, f"{name}.monitoring.coreos.com")


def await_established(cluster, name):
    def ask():
        conditions = cluster.get("crd", name).get("status", {}).get("conditions") or []
        return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)

    eventually(f"{name} are served", ask)


def validate(cluster):
    seen = set()
    sets = [CHART / "values.yaml", *sorted(CHART.glob("ci/*.yaml"))]
    for values in sets:
        manifests = cluster.helm("template", "my-app", CHART, "--values", values)
        accepted = cluster.validate(manifests, "--filename=-")
        expect(len(accepted) == manifests.count("\nkind: "), f"not every object of {values} was validated: {accepted}")
        seen |= {line.split("/")[0] for line in accepted}
    kinds = {"poddisruptionbudget.policy", "service", "servicemonitor.monitoring.coreos.com", "prometheusrule.monitoring.coreos.com"}
    kinds |= {"lease.coordination.k8s.io", "deployment.apps", "clusterrole.rbac.authorization.k8s.io", "pod"}
    expect(kinds <= seen, f"no set of values has these kinds: {kinds - seen}")
    print(f"the API server accepts what {len(sets)} sets of values render, and pods of the restricted standard")

    for file in sorted(Path("deploy").glob("kubernetes*.yaml")):
        # Its binding names the namespace `default`.
        run(os.environ["KUBECTL"], "apply", "--dry-run=server", "--validate=strict", "--filename", file, env=cluster.env)
    objects = cluster.validate(None, "--kustomize", "deploy/kustomize")
    expect(len(objects) == 4, f"the kustomize base has other objects: {objects}")
    documented = Path("docs/kubernetes.md").read_text().split("\n## Install with kustomize\n")[1].split("```")[1]
    overlay = cluster.directory / "overlay"
    overlay.mkdir()
    base = os.path.relpath("deploy/kustomize", overlay.resolve())
    (overlay / "kustomization.yaml").write_text(re.sub(r"https://\S*//deploy/kustomize\S*", base, documented.removeprefix("yaml\n")))
    accepted = cluster.validate(None, "--kustomize", overlay)
    expect(len(accepted) == len(objects), f"the documented overlay has other objects: {accepted}")
    print("the API server accepts the manifests, the kustomize base and the documented overlay")


def holder(cluster):
    spec = cluster.get("lease", "my-app")["spec"]
    return spec.get("holderIdentity"), spec.get("leaseTransitions")


def take_part(cluster):
    port = free_port()
    values = {
        "mode": "run",
        "replicaCount": 2,
        "election": {"lease": "120s"},
        "app": {"image": "my-app", "command": ["sh", "-c"], "args": ["echo works with $INCUMBENT_TOKEN; exec sleep 600"]},
        "http": {"port": port},
    }
    file = cluster.directory / "values.json"
    file.write_text(json.dumps(values))
    notes = cluster.helm("install", "my-app", CHART, "--values", file)
    expect("get lease my-app" in notes, f"NOTES.txt does not say how to see who leads:\n{notes}")
    lease = cluster.get("lease", "my-app")
    expect(lease["metadata"]["annotations"].get("incumbent/new") == "true", f"the Lease is not of a new election: {lease}")

    # What the server says to somebody without the Role.
    cluster.kubectl("create", "serviceaccount", "stranger")
    stranger = cluster.environment_of("stranger")
    election = ["my-app", "--lock", "kubernetes"]
    incumbent(stranger, "election", "info", *election, code=5)

    env = cluster.environment_of("my-app")
    container = cluster.deployed("my-app")
    began = time.monotonic()
    with Candidate(container, "pod-1", env) as first:
        first.says("works with ")
        expect(time.monotonic() - began < 60, "the first leader waited out a lease")
        for probe in ("livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT) as response:
                expect(response.status == 200, f"{path}: {response.status}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT) as response:
            expect("incumbent_leader{" in response.read().decode(), "/metrics does not have incumbent_leader")
        report = incumbent(env, "doctor", *election, "--role", "candidate")
        expect("all rights of a candidate" in report, f"a permission is missing:\n{report}")
        print("`incumbent run` of the Deployment leads at once with the chart's service account, and answers its probes")

        # As `helm test` would.
        pod = cluster.helm("template", "my-app", CHART, "--values", file, "--show-only", "templates/tests/election.yaml")
        pod = json.loads(cluster.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=pod))
        [test] = pod["spec"]["containers"]
        shown = incumbent({**env, "POD_NAME": "test"}, *test["args"])
        expect("pod-1" in shown, f"the test does not see the leader:\n{shown}")
        absent = ["absent" if arg == "my-app" else arg for arg in test["args"]]
        # The Role names its election: another one is denied, not absent.
        incumbent(env, *absent, code=5)
        print("the command of the test pod finds the election")

        before = holder(cluster)
        cluster.helm("upgrade", "my-app", CHART, "--values", file, "--set", "replicaCount=3", "--force")
        cluster.helm("rollback", "my-app", "1")
        cluster.helm("uninstall", "my-app")
        cluster.helm("install", "my-app", CHART, "--values", file)
        cluster.environment_of("my-app")  # the account is another one now, and `incumbent` reads the new token when the old one is refused
        expect(holder(cluster) == before, f"the leader changed: {before}, {holder(cluster)}")
        expect(first.process.poll() is None, f"the leader ended:\n{first.said()}")
        expect(first.said().count("works with ") == 1, f"the work began anew:\n{first.said()}")
        print("an upgrade by force, a rollback, an uninstall and a new install leave the Lease to its leader")

        with Candidate(container, "pod-2", env, port=free_port()) as second:
            members = eventually("both answer a roll call", lambda: both(incumbent(env, "election", "members", *election)))
            moved = eventually("the leader moves", lambda: moves(env, election))
            second.says("works with ")
            expect(holder(cluster)[0] == "pod-2", f"after the roll call and the move another one leads:\n{members}{moved}")
        events = cluster.kubectl("get", "events", "--field-selector", "reason=LeaderElection", "--output", "name").split()
        expect(events, "there are no Events")
        print("a roll call, a handover and Events work with the permissions of the chart")


def moves(env, election):
    try:
        return incumbent(env, "election", "move", *election, "--to", "pod-2")
    except Failed:
        return None  # on a busy machine an answer to its roll call may be late


def both(members):
    return members if "pod-1" in members and "pod-2" in members else None


def create_pod(cluster, template, name):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": name}, "spec": template["spec"]}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod))


def follow(cluster):
    """A Service and the marks of a pod follow the leader. Nobody starts the pod."""
    values = {
        "mode": "run",
        "app": {"image": "a", "command": ["sh", "-c", "echo works; exec sleep 600"]},
        "http": {"port": free_port()},
        "traffic": {
            "service": {"name": "work", "ports": [{"port": 80, "targetPort": "http"}]},
            "leaderLabel": "role=leader",
            "podDeletionCost": 100,
        },
    }
    file = cluster.directory / "traffic.json"
    file.write_text(json.dumps(values))
    cluster.helm("install", "follows", CHART, "--values", file)
    create_pod(cluster, cluster.get("deployment", "follows")["spec"]["template"], "follower")
    status = {"status": {"podIP": "10.9.0.1", "podIPs": [{"ip": "10.9.0.1"}]}}
    cluster.kubectl("patch", "pod", "follower", "--subresource=status", "--type=merge", f"--patch={json.dumps(status)}")

    def directed():
        endpoints = cluster.get("endpointslice", "work-leader-ipv4")["endpoints"] or []
        metadata = cluster.get("pod", "follower")["metadata"]
        cost = metadata.get("annotations", {}).get("controller.kubernetes.io/pod-deletion-cost")
        return [endpoint["addresses"] for endpoint in endpoints], metadata["labels"].get("role"), cost

    with Candidate(cluster.deployed("follows"), "follower", cluster.environment_of("follows")) as leader:
        leader.says("works")
        expect(directed() == ([["10.9.0.1"]], "leader", "100"), f"requests do not follow the leader: {directed()}")
    expect(directed() == ([], None, None), f"requests are still directed: {directed()}")
    cluster.helm("uninstall", "follows")
    print("a Service and the marks of a pod follow the leader of the Deployment with the permissions of the chart")


def live(cluster):
    """A leader for life. Its pod is an object that nobody starts."""
    values = ["--set", "mode=life,app.image=a,app.command={sh,-c,echo works; exec sleep 600}"]
    cluster.helm("install", "for-life", CHART, *values)
    template = cluster.get("deployment", "for-life")["spec"]["template"]
    create_pod(cluster, template, "pod-1")
    env = cluster.environment_of("for-life")
    with Candidate(cluster.deployed("for-life"), "pod-1", env) as leader:
        leader.says("works")
        report = incumbent(env, "doctor", "for-life", "--lock", "kubernetes", "--kind", "for-life", "--role", "candidate")
        expect("all rights of a candidate" in report, f"a permission is missing:\n{report}")
    cluster.helm("uninstall", "for-life")
    print("`incumbent life` of the Deployment leads with the chart's service account")


def take_part_on_nats(cluster):
    """The same with a bucket as the lock, and without permissions on the API server."""
    port = free_port()
    store = cluster.directory / "nats"
    command = [os.environ["NATS_SERVER"], "--jetstream", "--store_dir", store, "--addr", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        nats = ["lock.url=nats", f"lock.nats.server=nats://127.0.0.1:{port}", "lock.nats.bucket=elections", f"http.port={free_port()}"]
        work = ["mode=run", "app.image=a", "app.command={sh,-c,echo works; exec sleep 600}", "election.lease=2s"]
        values = [arg for value in [*nats, *work] for arg in ("--set", value)]
        cluster.helm("install", "on-nats", CHART, *values)
        absent = cluster.kubectl("get", "role,rolebinding,lease", "--selector=app.kubernetes.io/instance=on-nats", "--output=name")
        expect(not absent, f"there are objects that no lock on NATS needs: {absent}")
        container = cluster.deployed("on-nats")
        env = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        with Candidate(container, "pod-1", {"PATH": os.environ["PATH"], **env}) as leader:
            leader.says("works")
        cluster.helm("uninstall", "on-nats")
    finally:
        server.terminate()
        server.wait(TIMEOUT)
    print("`incumbent run` of the Deployment leads with a NATS bucket, and no permissions in the cluster")


def main():
    os.chdir(Path(__file__).parents[1])
    with tempfile.TemporaryDirectory(prefix="check-chart-", ignore_cleanup_errors=True) as directory, contextlib.ExitStack() as stack:
        log = stack.enter_context(open(Path(directory) / "log", "w+"))
        cluster = None
        try:
            cluster = Cluster(Path(directory), log)
            for step in (set_up, validate, take_part, follow, live, take_part_on_nats):
                step(cluster)
        except (Failed, subprocess.TimeoutExpired, OSError) as error:
            print(f"check-chart: failed: {error}", file=sys.stderr)
            log.seek(0)
            print("".join(log.readlines()[-20:]), file=sys.stderr)
            return 1
        finally:
            if cluster:
                cluster.process.terminate()
                cluster.process.wait(TIMEOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
