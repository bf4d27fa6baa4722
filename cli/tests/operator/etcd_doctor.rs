//! `doctor`, `campaign` and `election` on etcd.

use incumbent_test_support::{EtcdCluster, Port, eventually};

use crate::doctor::{doctor, expect_line};
use crate::shell::Shell;

fn url(cluster: &EtcdCluster, max_lease: &str) -> String {
    format!("etcd://{}/elections?max-lease={max_lease}", cluster.endpoints().join(","))
}

#[tokio::test]
async fn three_members_are_as_they_should_be() {
    let cluster = EtcdCluster::start(3, &[]).await;
    let (shell, lock) = (Shell::bare(), url(&cluster, "1m"));
    let lock = ["--lock", lock.as_str()];
    let report = doctor(&shell, &lock, 0);
    for member in cluster.endpoints() {
        expect_line(&report, "ok       members ", &format!("{member}: etcd 3."));
    }
    expect_line(&report, "ok       cluster ", "3 voting members");
    expect_line(&report, "ok       quorum ", "a majority");
    expect_line(&report, "ok       round trip ", "");
    for role in ["an observer", "a candidate", "an administrator"] {
        expect_line(&report, "ok       rights ", &format!("all rights of {role}"));
    }
    expect_line(&report, "ok       foreign ", "below elections/");
    assert_eq!(cluster.ctl(&["get", "", "--prefix"]).await, "", "nothing is stored");

    // One member is gone, then the majority.
    cluster.kill(2);
    let report = eventually("the others have a leader", async || {
        let report = shell.run(&[&["doctor"], &lock[..]].concat());
        (report.code == Some(1)).then_some(report)
    })
    .await;
    assert_eq!(report.stderr, "", "{report:?}");
    expect_line(&report, "warning  members ", "no connection to etcd at");
    cluster.kill(1);
    let doctor = [&["doctor"], &lock[..], &["--timeout", "2s"]].concat();
    shell.run_until(&doctor, "knows of no leader").await;
    let report = shell.run_until(&doctor, "error    quorum ").await;
    assert_eq!((report.stderr.as_str(), report.code), ("", Some(2)), "{report:?}");
}

#[tokio::test]
async fn the_commands_of_operators_work_on_etcd() {
    let cluster = EtcdCluster::start(1, &[]).await;
    let lock = url(&cluster, "20s");
    let shell = Shell::bare().with("INCUMBENT_LOCK", &*lock);
    let mut leader = shell.start(&["campaign", "my_app", "--identity", "first"]);
    leader.line_with("won");
    let info = shell.json(&["election", "info", "my_app", "-o", "json"]);
    assert_eq!(info["elections"][0]["leader"], "first", "{info}");
    assert!(shell.out(&["election", "list"]).contains("my_app"));
    let report = doctor(&shell, &["my_app"], 1);
    expect_line(&report, "warning  cluster ", "one voting member");
    // A person reads the entry with etcd's own program.
    let value = cluster.ctl(&["get", "elections/my_app"]).await;
    assert!(value.contains(r#""identity":"first""#), "{value}");
    let mut watch = shell.start(&["election", "watch", "my_app"]);
    watch.line_with("first");
    shell.out(&["election", "evict", "my_app", "--force"]);
    leader.line_with("lost");
    leader.end_with("TERM");
}

/// Go's `concurrency.Election`, as `etcdctl elect` uses it, would lead beside an election here.
#[tokio::test]
async fn candidates_of_etcds_own_elections_are_found_and_refused() {
    let cluster = EtcdCluster::start(1, &[]).await;
    let lock = url(&cluster, "20s");
    let shell = Shell::bare().with("INCUMBENT_LOCK", &*lock);
    let mut foreign =
        cluster.ctl_command().args(["elect", "elections/my_app", "go"]).spawn().unwrap();
    eventually("it leads", async || {
        cluster.ctl(&["get", "elections/my_app/", "--prefix"]).await.contains("go").then_some(())
    })
    .await;
    let report = doctor(&shell, &["my_app"], 2);
    let says = "is a candidate of etcd's own election, which would lead beside my_app";
    expect_line(&report, "error    foreign ", says);
    expect_line(&doctor(&shell, &[], 2), "error    foreign ", says);
    expect_line(&doctor(&shell, &["other"], 1), "ok       foreign ", "");
    let mut refused = shell.start(&["campaign", "my_app"]);
    refused.line_with(says);
    assert!(!shell.out(&["election", "list"]).contains("my_app/"), "it is no election here");
    foreign.kill().await.unwrap();
    refused.end_with("TERM");

    // One that comes later waits.
    let mut leader = shell.start(&["campaign", "shared"]);
    leader.line_with("won");
    let _waits = cluster.ctl_command().args(["elect", "elections/shared", "go"]).spawn().unwrap();
    eventually("it campaigns", async || {
        cluster.ctl(&["get", "elections/shared/", "--prefix"]).await.contains("go").then_some(())
    })
    .await;
    let says = "is a candidate of etcd's own election, which cannot lead beside shared";
    expect_line(&doctor(&shell, &["shared"], 1), "warning  foreign ", says);
    leader.end_with("TERM");
}

#[tokio::test]
async fn a_password_without_tls_is_reported() {
    let cluster = EtcdCluster::start(1, &[]).await;
    let lock = format!("etcd://me:secret@0.0.0.0:{}/elections", cluster.port(0));
    let report = doctor(&Shell::bare(), &["--lock", &lock], 1);
    expect_line(&report, "warning  password ", "it is sent without TLS");
    assert!(!report.stdout.contains("secret"), "{report:?}");
}

#[test]
fn an_unreachable_cluster_is_one_line() {
    let port = Port::pick();
    let lock = format!("etcd://me:secret@127.0.0.1:{}", port.number());
    let report = doctor(&Shell::bare(), &["--lock", &lock], 2);
    expect_line(&report, "error    members ", "no connection to etcd at 127.0.0.1:");
    assert!(!report.stdout.contains("secret"), "{report:?}");
}
