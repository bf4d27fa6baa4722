//! `election create`: what a new election needs before anybody stands.

use std::time::{Duration, Instant};

use super::scene::{OBSERVER, Scene};
use crate::shell::Shell;
use serde_json::json;

const MANIFEST: &str = include_str!("../../../../deploy/kubernetes.yaml");

/// Its first leader does not wait out its lease, which is an hour here.
fn is_led_at_once(scene: &Scene, kind: &str) {
    let began = Instant::now();
    let args = scene.args(&["campaign", "my-app", "--lease", "3600s", "--kind", kind]);
    let mut first = scene.shell.start(&args);
    first.line_with("won: leading with token");
    assert!(began.elapsed() < Duration::from_secs(3600));
    first.end_by("TERM");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_that_was_created_is_led_at_once() {
    for (kind, name) in [("lease", "Lease"), ("configmap", "ConfigMap")] {
        let scene = Scene::new().await;
        let create = ["election", "create", "my-app", "--kind", kind];
        let made = scene.out(&create);
        assert_eq!(made, format!("created the {name} {}/my-app\n", scene.namespace));
        scene.refuses(&create, "already", 1);
        is_led_at_once(&scene, kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_the_manifest_is_led_at_once() {
    let scene = Scene::new().await;
    let lease = MANIFEST.split("---\n").find(|part| part.contains("\nkind: Lease\n"));
    let lease: serde_json::Value = {
        let (_, annotation) = lease.expect("a Lease").split_once("annotations:\n").unwrap();
        let (key, value) = annotation.trim().split_once(": ").unwrap();
        json!({"metadata": {"name": "my-app", "annotations": {key: value.trim_matches('"')}}})
    };
    scene.post(&scene.leases(), lease).await;
    is_led_at_once(&scene, "lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_created_is_told() {
    let scene = Scene::new().await;
    scene.refuses(&["election", "create", "my_app"], "is not a valid name of a Lease", 2);
    scene.refuses(&["election", "create", "a", "--kind", "for-life"], "nothing to create", 2);
    let lock = ["--lock", "kubernetes", "--namespace", "absent"];
    let args = [&["election", "create", "a"][..], &lock].concat();
    scene.shell.refuses(&args, "no namespace absent", 3);
    let observer = Shell::bare().with("KUBECONFIG", scene.config_of(OBSERVER));
    observer.refuses(
        &scene.args(&["election", "create", "a"]),
        "the right to create is missing",
        5,
    );
    let file = format!("sqlite:{}", scene.shell.home().join("elections.db").display());
    let made = scene.shell.out(&["election", "create", "a", "--lock", &file]);
    assert!(made.contains("exists: a needs nothing else"), "{made}");
}
