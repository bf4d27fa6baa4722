//! `doctor` of elections in a PostgreSQL database.

use incumbent_test_support::{Pooler, PostgresServer, eventually};

use crate::doctor::{doctor, line};
use crate::shell::Shell;

const FILE: &str = include_str!("../../../deploy/postgres.sql");
/// What docs/sql.md has an administrator grant.
const GRANTS: [&str; 2] = [
    "GRANT SELECT, INSERT, UPDATE ON incumbent_elections TO campaigner",
    "GRANT SELECT ON incumbent_settings TO campaigner",
];

#[tokio::test]
async fn a_database_is_judged_by_what_elections_need_of_it() {
    let server = PostgresServer::start(&["fsync=on"]).await;
    let shell = Shell::bare();
    let admin = server.url("postgres");
    let told = doctor(&shell, &["--lock", &admin], 0);
    line(&told, "ok       server ", ", a primary");
    line(&told, "ok       clock ", "off the server's");
    line(&told, "ok       round trip ", "with a lease of 1m");
    line(&told, "ok       tables ", "none yet: the first candidate creates them, in schema public");
    line(&told, "unknown  rights ", "rights on tables that do not exist");
    line(&told, "ok       durability ", "writes are synced to disk, and there is no replica");
    line(&told, "ok       hints ", "notifications arrive");
    let none = "SELECT 1 / (to_regclass('incumbent_elections') IS NULL)::integer";
    server.sql("postgres", &[none, "CREATE ROLE campaigner LOGIN"]);

    // Who may not make them is told which file does.
    let campaigner = server.url_as("campaigner", "postgres");
    let told = doctor(&shell, &["--lock", &campaigner], 2);
    line(
        &told,
        "error    tables ",
        "none, and this user may not create them; run sql/postgres.sql as a user that may create tables",
    );
    server.sql("postgres", &[FILE]);
    let told = doctor(&shell, &["--lock", &campaigner], 2);
    let needs = line(&told, "error    rights ", "a candidate needs SELECT on incumbent_elections");
    assert!(needs.contains("GRANT INSERT ON incumbent_elections TO"), "{needs}");
    server.sql("postgres", &GRANTS);
    let told = doctor(&shell, &["--lock", &campaigner, "my_app"], 0);
    line(&told, "ok       tables ", "complete, in schema public");
    line(&told, "ok       rights ", "all rights of a candidate");
    let history = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";
    // The tables' owner is told of the server on behalf of all.
    let owned_by = |role| format!("ALTER FUNCTION incumbent_incarnation() OWNER TO {role}");
    server.sql("postgres", &[history, &owned_by("campaigner")]);
    let told = doctor(&shell, &["--lock", &campaigner], 1);
    line(&told, "warning  tables ", "grant EXECUTE on pg_control_system");
    server.sql(
        "postgres",
        &[
            "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC",
            &owned_by("postgres"),
            "REVOKE UPDATE ON incumbent_elections FROM campaigner",
        ],
    );
    let told = doctor(&shell, &["--lock", &campaigner], 2);
    line(
        &told,
        "error    rights ",
        "a candidate needs UPDATE on incumbent_elections; GRANT UPDATE ON",
    );
    line(&told, "ok       rights ", "all rights of an observer");
    doctor(&shell, &["--lock", &campaigner, "--role", "observer"], 0);
    let told = doctor(&shell, &["--lock", &admin, "--lease", "2m"], 2);
    line(&told, "error    round trip ", "see --lease");

    server.sql("postgres", &["ALTER TABLE incumbent_elections DISABLE TRIGGER incumbent_guard"]);
    let told = doctor(&shell, &["--lock", &admin], 2);
    line(&told, "error    tables ", "a table, a function or a trigger is missing in schema public");
    server.sql(
        "postgres",
        &[
            "ALTER TABLE incumbent_elections ENABLE TRIGGER incumbent_guard",
            "UPDATE incumbent_settings SET version = 9",
        ],
    );
    let told = doctor(&shell, &["--lock", &admin], 2);
    line(&told, "error    tables ", "are of version 9, and version 1 is understood");
}

#[tokio::test]
async fn a_replica_and_what_follows_a_primary_are_told() {
    let server = PostgresServer::start(&[]).await;
    let told = doctor(&Shell::bare(), &["--lock", &server.url("postgres")], 1);
    line(&told, "warning  durability ", "fsync is off: a crash of the machine may lose");
    server.sql("postgres", &["ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()"]);
    let replica = server.replica(&[]).await;
    let shell = Shell::bare();
    let told = doctor(&shell, &["--lock", &replica.url("postgres")], 2);
    line(&told, "error    server ", "a replica or in recovery: elections are held on the primary");
    assert!(!told.out.contains(" hints "), "{told:?}");
    let primary = server.url("postgres");
    let first = eventually("the replica follows", async || {
        let told = shell.run(&["doctor", "--lock", &primary]);
        told.out.contains("1 asynchronous replicas").then_some(told)
    });
    let told = first.await;
    assert_eq!(told.code, Some(1));
    line(&told, "warning  durability ", "set synchronous_standby_names");
    server.sql(
        "postgres",
        &["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"],
    );
    eventually("it waits for its replica", async || {
        let told = shell.run(&["doctor", "--lock", &primary]);
        told.out.contains("replicas have every acknowledged write").then_some(())
    })
    .await;
    let told =
        doctor(&shell, &["--lock", &format!("{primary}&options=-csynchronous_commit=off")], 1);
    line(&told, "warning  durability ", "set it to remote_apply");
}

#[tokio::test]
async fn a_pooler_is_told_by_the_notifications_that_it_loses() {
    let server = PostgresServer::start(&["fsync=on"]).await;
    let pooler = Pooler::start(&server, "postgres").await;
    let told = doctor(&Shell::bare(), &["--lock", &pooler.url("postgres")], 1);
    line(&told, "warning  hints ", "as behind a pooler in transaction mode: standbys poll");
    line(&told, "ok       server ", ", a primary");
}

#[tokio::test]
async fn no_server_is_a_finding_without_its_secret() {
    let shell = Shell::bare();
    let lock = "postgres://me:s3cret@127.0.0.1:1/db";
    let told = doctor(&shell, &["--lock", lock], 2);
    line(&told, "error    server ", "no connection to 127.0.0.1:1/db");
    assert!(!format!("{told:?}").contains("s3cret"), "{told:?}");
    let (told, code) = shell.refusal(&["doctor", "--lock", lock, "--monitor", "127.0.0.1:8222"]);
    assert_eq!((&*told, code), ("incumbent: --monitor requires --lock nats", 2));
}
