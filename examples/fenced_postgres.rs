//! PostgreSQL refuses the late write of a leader that was suspended between its check and its
//! write.
//!
//! The election is in the same database here; it may be on any lock.
//!
//! ```text
//! cargo run --features postgres --example fenced_postgres -- postgres://postgres@127.0.0.1/postgres
//! ```

use std::error::Error;
use std::time::Duration;

use incumbent::fence::{self, FenceErrorKind};
use incumbent::sql::{Postgres, TableSetup};
use incumbent::{Leadership, new_election};
use sqlx::{Executor, PgPool};

const ELECTION: &str = "billing";

/// What a leader does: it fences each transaction.
async fn write(leadership: &Leadership, pool: &PgPool, value: &str) -> Result<(), Box<dyn Error>> {
    let mut transaction = pool.begin().await?;
    leadership.fence(&mut transaction).await?;
    let row = sqlx::query("INSERT INTO fenced_example (token, value) VALUES ($1, $2)");
    let token = i64::try_from(leadership.token().0)?;
    row.bind(token).bind(value).execute(&mut *transaction).await?;
    transaction.commit().await?;
    println!("{value}, with token {token}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: fenced_postgres postgres://HOST/DATABASE")?;
    let pool = PgPool::connect(&url).await?;
    fence::create_tables(&pool).await?;
    pool.execute("CREATE TABLE IF NOT EXISTS fenced_example (token bigint, value text)").await?;

    let tables = TableSetup::create().max_lease(Duration::from_secs(2));
    let lock = Postgres::connect_with(&url, tables).await?.lock();
    let first = new_election(ELECTION, lock.clone()).identity("host-1").start()?;
    let former = first.won().await?;
    write(&former, &pool, "host-1 has written").await?;

    // host-1 begins a transaction, looks at its clock, and is suspended. It is replaced.
    let mut late = pool.begin().await?;
    assert!(former.is_valid());
    let second = new_election(ELECTION, lock).identity("host-2").start()?;
    first.resign();
    let current = second.won().await?;
    write(&current, &pool, "host-2 has written").await?;

    // host-1 is resumed behind its look at the clock. It would write now.
    match fence::transaction(&mut late, ELECTION, former.token()).await {
        Err(error) if matches!(error.kind(), FenceErrorKind::Stale { .. }) => {
            println!("host-1 is refused: {error}");
        }
        Err(error) => return Err(error.into()),
        Ok(()) => return Err("a former leader can write".into()),
    }
    late.rollback().await?;

    drop((former, current));
    first.stop().await;
    second.stop().await;
    Ok(())
}
