//! `doctor` of elections in a PostgreSQL database.

use incumbent_test_support::{Pooler, PostgresServer, eventually};

use crate::doctor::{doctor, expect_line};
use crate::shell::Shell;

const FILE: &str = include_str!("../../../deploy/postgres.sql");
/// The grants of a candidate in deploy/postgres.sql.
const GRANTS: [&str; 2] = [
    "GRANT SELECT, INSERT, UPDATE ON incumbent_elections TO candidate",
    "GRANT SELECT ON incumbent_settings TO candidate",
];
const CHECKPOINT_GRANT: &str = "GRANT SELECT, INSERT, UPDATE ON incumbent_checkpoints TO candidate";

#[tokio::test]
async fn database_is_checked_for_the_needs_of_elections() {
    let server = PostgresServer::start(&["fsync=on"]).await;
    let shell = Shell::bare();
    let admin = server.url("postgres");
    let report = doctor(&shell, &["--lock", &admin], 0);
    expect_line(&report, "ok       server ", ", a primary");
    expect_line(&report, "ok       clock ", "off the server's");
    expect_line(&report, "ok       round trip ", "with a lease of 1m");
    expect_line(
        &report,
        "ok       tables ",
        "none yet: the first candidate creates them, in schema public",
    );
    expect_line(&report, "unknown  rights ", "rights on tables that do not exist");
    expect_line(
        &report,
        "ok       durability ",
        "writes are synced to disk, and there is no replica",
    );
    expect_line(&report, "ok       hints ", "notifications arrive");
    let none = "SELECT 1 / (to_regclass('incumbent_elections') IS NULL)::integer";
    server.sql("postgres", &[none, "CREATE ROLE candidate LOGIN"]);

    // A user without the permission to create tables is referred to the file that creates them.
    let candidate = server.url_as("candidate", "postgres");
    let report = doctor(&shell, &["--lock", &candidate], 2);
    expect_line(
        &report,
        "error    tables ",
        "none, and this user may not create them; run deploy/postgres.sql as a user that may create tables",
    );
    server.sql("postgres", &[FILE]);
    let report = doctor(&shell, &["--lock", &candidate], 2);
    let needs =
        expect_line(&report, "error    rights ", "a candidate needs SELECT on incumbent_elections");
    assert!(needs.contains("GRANT INSERT ON incumbent_elections TO"), "{needs}");
    server.sql("postgres", &GRANTS);
    let report = doctor(&shell, &["--lock", &candidate, "my_app"], 0);
    expect_line(&report, "ok       tables ", "complete, in schema public");
    expect_line(&report, "ok       rights ", "all rights of a candidate");
    let checkpoint = ["--lock", &candidate, "my_app", "--checkpoint"];
    let report = doctor(&shell, &checkpoint, 2);
    expect_line(
        &report,
        "error    rights ",
        "a candidate needs SELECT on incumbent_checkpoints, INSERT on incumbent_checkpoints, UPDATE",
    );
    expect_line(&report, "error    checkpoint ", "permission denied");
    server.sql("postgres", &[CHECKPOINT_GRANT]);
    let report = doctor(&shell, &checkpoint, 0);
    expect_line(&report, "ok       checkpoint ", "none yet: the first leader creates it");
    let history = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";
    // The function reads the identity of the server with the permissions of its owner.
    let owned_by = |role| format!("ALTER FUNCTION incumbent_incarnation() OWNER TO {role}");
    server.sql("postgres", &[history, &owned_by("candidate")]);
    let report = doctor(&shell, &["--lock", &candidate], 1);
    expect_line(&report, "warning  tables ", "grant EXECUTE on pg_control_system");
    server.sql(
        "postgres",
        &[
            "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC",
            &owned_by("postgres"),
            "REVOKE UPDATE ON incumbent_elections FROM candidate",
        ],
    );
    let report = doctor(&shell, &["--lock", &candidate], 2);
    expect_line(
        &report,
        "error    rights ",
        "a candidate needs UPDATE on incumbent_elections; GRANT UPDATE ON",
    );
    expect_line(&report, "ok       rights ", "all rights of an observer");
    doctor(&shell, &["--lock", &candidate, "--role", "observer"], 0);
    server.sql(
        "postgres",
        &["INSERT INTO incumbent_elections (name, lease_duration) VALUES ('my_app', '1s')"],
    );
    server.kill();
    server.restart().await;
    let report = doctor(&shell, &["--lock", &candidate, "--role", "observer"], 0);
    expect_line(
        &report,
        "ok       tables ",
        "1 elections were last written before the server was started; if",
    );
    let report = doctor(&shell, &["--lock", &admin, "--lease", "2m"], 2);
    expect_line(&report, "error    round trip ", "see --lease");

    server.sql("postgres", &["ALTER TABLE incumbent_elections DISABLE TRIGGER incumbent_guard"]);
    let report = doctor(&shell, &["--lock", &admin], 2);
    expect_line(
        &report,
        "error    tables ",
        "a table, a function or a trigger is missing in schema public",
    );
    server.sql(
        "postgres",
        &[
            "ALTER TABLE incumbent_elections ENABLE TRIGGER incumbent_guard",
            "UPDATE incumbent_settings SET version = 9",
        ],
    );
    let report = doctor(&shell, &["--lock", &admin], 2);
    expect_line(&report, "error    tables ", "are of version 9, and version 1 is supported");
}

#[tokio::test]
async fn replica_and_durability_of_a_primary_are_reported() {
    let server = PostgresServer::start(&[]).await;
    let report = doctor(&Shell::bare(), &["--lock", &server.url("postgres")], 1);
    expect_line(&report, "warning  durability ", "fsync is off: a crash of the machine may lose");
    server.sql("postgres", &["ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()"]);
    let replica = server.replica(&[]).await;
    let shell = Shell::bare();
    let report = doctor(&shell, &["--lock", &replica.url("postgres")], 2);
    expect_line(
        &report,
        "error    server ",
        "a replica or in recovery: elections are held on the primary",
    );
    assert!(!report.stdout.contains(" hints "), "{report:?}");
    let primary = server.url("postgres");
    let first = eventually("the replica follows", async || {
        let report = shell.run(&["doctor", "--lock", &primary]);
        report.stdout.contains("1 asynchronous replicas").then_some(report)
    });
    let report = first.await;
    assert_eq!(report.code, Some(1));
    expect_line(&report, "warning  durability ", "set synchronous_standby_names");
    server.sql(
        "postgres",
        &["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"],
    );
    eventually("commits wait for the replica", async || {
        let report = shell.run(&["doctor", "--lock", &primary]);
        report.stdout.contains("replicas have every acknowledged write").then_some(())
    })
    .await;
    let report =
        doctor(&shell, &["--lock", &format!("{primary}&options=-csynchronous_commit=off")], 1);
    expect_line(&report, "warning  durability ", "set it to remote_apply");
}

#[tokio::test]
async fn pooler_that_loses_notifications_is_a_warning() {
    let server = PostgresServer::start(&["fsync=on"]).await;
    let pooler = Pooler::start(&server, "postgres").await;
    let report = doctor(&Shell::bare(), &["--lock", &pooler.url("postgres")], 1);
    expect_line(
        &report,
        "warning  hints ",
        "as behind a pooler in transaction mode: standbys poll",
    );
    expect_line(&report, "ok       server ", ", a primary");
}

#[tokio::test]
async fn unreachable_server_is_a_finding_without_its_secret() {
    let shell = Shell::bare();
    let lock = "postgres://me:s3cret@127.0.0.1:1/db";
    let report = doctor(&shell, &["--lock", lock], 2);
    expect_line(&report, "error    server ", "no connection to 127.0.0.1:1/db");
    assert!(!format!("{report:?}").contains("s3cret"), "{report:?}");
    let (line, code) = shell.refusal(&["doctor", "--lock", lock, "--monitor", "127.0.0.1:8222"]);
    assert_eq!((&*line, code), ("incumbent: --monitor requires --lock nats", 2));
}
