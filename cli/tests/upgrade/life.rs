//! Leaders for life: a pod leads for as long as it exists, in whichever release its container runs.

use incumbent::kubernetes::Cluster;
use incumbent_test_support::KubeServer;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::Candidate;
use crate::fleet::{Journal, soon};
use crate::place::{ELECTION, Place};
use crate::release::Release;
use crate::worker;

const PODS: &str = "/api/v1/namespaces/default/pods";

struct Pods {
    place: Place,
    cluster: Cluster,
    journal: Journal,
    started: usize,
}

impl Pods {
    async fn new() -> Self {
        let server = KubeServer::start(&[]).await;
        let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await.expect("a cluster");
        let config = server.kubeconfig().display().to_string();
        let place = Place::new("kubernetes").with("KUBECONFIG", config).keep(server);
        let journal = Journal::new(place.home());
        Self { place, cluster, journal, started: 0 }
    }

    async fn send(&self, method: &str, path: &str, object: Value) {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(&object).expect("JSON")).expect("a request");
        self.cluster.client().request::<Value>(request).await.expect("the API server does so");
    }

    /// Creates a pod, which no kubelet runs, and starts its container in this release.
    async fn create(&mut self, release: Release) -> (String, Candidate) {
        self.started += 1;
        let pod = format!("{release}-{}", self.started);
        let containers = json!([{"name": "main", "image": "none"}]);
        let object = json!({"metadata": {"name": pod}, "spec": {"containers": containers}});
        self.send("POST", PODS, object).await;
        self.journal.started(&pod, 1);
        let container = self.container(release, &pod);
        (pod, container)
    }

    async fn delete(&self, pod: &str) {
        self.send("DELETE", &format!("{PODS}/{pod}"), json!({"gracePeriodSeconds": 0})).await;
    }

    /// Starts a container in a pod, whose messages are on standard output. All containers of a pod
    /// are one member to the judge, as they continue one term.
    fn container(&self, release: Release, pod: &str) -> Candidate {
        let namespace = ["--namespace", "default", "--pod", pod, "--grace", "200ms", "--"];
        let words = [&["life", ELECTION][..], &namespace].concat();
        let merged = ["sh", "-c", r#"exec "$0" "$@" 2>&1"#];
        let mut program = self.place.command_by(&merged, release, &words);
        worker::add(&mut program, &self.journal.path, 1, true);
        Candidate::start(program)
    }

    /// Waits until this pod leads, and returns its token. Both programs then read its name.
    async fn leads(&mut self, pod: &str) -> u64 {
        let line = self.journal.sign(|line| line.who == pod).await;
        assert!(line.is_some(), "waited in vain: pod {pod} leads");
        let (place, journal) = (&self.place, &self.journal);
        let words = ["election", "info", ELECTION, "--namespace", "default", "--kind", "for-life"];
        soon("both programs read the leader", || {
            let read = Release::BOTH.map(|release| place.json(release, &words));
            read.iter()
                .all(|read| read.as_ref().is_some_and(|read| read["elections"][0]["leader"] == pod))
                .then_some(())
        })
        .await;
        let newest = journal.holders.iter().rfind(|(_, holder)| *holder == pod);
        *newest.expect("it leads").0
    }
}

async fn end(mut container: Candidate, signal: Signal) {
    container.signal(signal);
    let code = container.exit_code().await;
    assert_eq!(code, (signal == Signal::TERM).then_some(128 + 15), "after {signal:?}");
    container.wait_for_no_descendants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_leader_for_life() {
    let mut pods = Pods::new().await;
    let (mut leader, mut container) = pods.create(Release::Last).await;
    let mut release = Release::Last;
    for signal in [Signal::KILL, Signal::KILL, Signal::TERM, Signal::TERM, Signal::KILL] {
        let token = pods.leads(&leader).await;
        let (next, mut waits) = pods.create(release.other()).await;
        let waiting = format!("waiting: pod {leader} leads");
        while !waits.line().await.contains(&waiting) {}

        // Its next container is of the other release, and continues the term.
        end(container, signal).await;
        let again = pods.container(release.other(), &leader);
        assert_eq!(pods.leads(&leader).await, token, "the same term");
        end(again, signal).await;

        pods.delete(&leader).await;
        (leader, container, release) = (next, waits, release.other());
    }
    pods.leads(&leader).await;

    // The other program evicts the last one.
    let words = ["election", "evict", ELECTION, "--namespace", "default", "--kind", "for-life"];
    let words = [&words[..], &["--force", "--wait", "0s"]].concat();
    let evicted = pods.place.json(release.other(), &words).expect("an eviction");
    assert_eq!(evicted["evicted"], *leader, "{evicted}");
    assert_eq!(container.exit_code().await, Some(3));
    container.wait_for_no_descendants().await;
    pods.journal.check(2);
}
