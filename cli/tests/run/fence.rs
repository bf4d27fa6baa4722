//! A command in another language, whose transactions PostgreSQL refuses once a later term has
//! fenced.

use std::fs;

use incumbent_test_support::PostgresServer;

use crate::env::{TRY, TestEnv};

const FENCE: &str = include_str!("../../../deploy/postgres-fence.sql");
const DOCS: &str = include_str!("../../../docs/fencing.md");

/// The script of the documentation, with what it finds in the environment of its term.
#[tokio::test]
async fn script_of_psql_is_fenced_by_postgres() {
    let (env, database) = tokio::join!(TestEnv::calm(), PostgresServer::start(&[]));
    database.sql(
        "postgres",
        &[
            FENCE,
            "CREATE TABLE accounts (billed integer NOT NULL); INSERT INTO accounts VALUES (0)",
        ],
    );
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("nightly.sql");
    let (_, text) = DOCS.split_once("```sql\n").expect("a script");
    fs::write(&script, text.split_once("```").expect("its end").0).expect("a file");
    let (psql, url) = (database.program("psql"), database.url("postgres"));
    let (psql, script) = (psql.display(), script.display());
    let bill = format!(
        "echo $INCUMBENT_TOKEN; \
         exec {psql} '{url}' --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null --file {script}"
    );

    let mut first = env.run("my_app", &TRY, &bill);
    let token: u64 = first.line().await.parse().expect("a token");
    assert_eq!(first.exit_code().await, Some(0), "{}", first.stderr());
    let billed = |billed: u32, token: u64| {
        format!(
            "DO $$ BEGIN ASSERT (SELECT billed = {billed} FROM accounts); ASSERT
             (SELECT name = 'my_app' AND token = {token} FROM incumbent_fence); END $$"
        )
    };
    database.sql("postgres", &[&billed(1, token)]);

    // A leader that this host knows nothing of.
    let greater = token + 1000;
    database.sql("postgres", &[&format!("SELECT incumbent_fence('my_app', {greater})")]);
    let mut late = env.run("my_app", &TRY, &bill);
    let token: u64 = late.line().await.parse().expect("a token");
    assert!(token < greater);
    // An error in a script of psql.
    assert_eq!(late.exit_code().await, Some(3));
    let refusal = format!("the term with token {token} is over, as the one with token {greater}");
    let said = late.stderr();
    assert!(said.contains(&refusal), "{said}");
    database.sql("postgres", &[&billed(1, greater)]);
}
