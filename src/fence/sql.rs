//! Fences in the transactions of SQL databases.

#[cfg(feature = "postgres")]
use std::borrow::Cow;

use async_trait::async_trait;

use super::{FenceError, FenceErrorKind, check_valid, misconfigured, stale};
use crate::election::Leadership;
use crate::lock::{Token, check_not_empty};

#[cfg(feature = "postgres")]
const SCRIPT: &str = include_str!("../../deploy/postgres-fence.sql");

/// What `deploy/postgres-fence.sql` raises when a later term has fenced.
#[cfg(feature = "postgres")]
const STALE: &str = "IN001";

/// The SQLSTATE of a permission that the role does not have.
#[cfg(feature = "postgres")]
const DENIED: &str = "42501";

/// A transaction of `sqlx` that can be fenced: on PostgreSQL and SQLite.
#[async_trait]
pub trait FencedTransaction: sealed::Sealed + Send {
    /// Has the transaction fail to commit unless `token` is the greatest, and returns whether it
    /// was not there before.
    #[doc(hidden)]
    async fn advance(&mut self, election: &str, token: Token) -> Result<bool, FenceError>;
}

mod sealed {
    pub trait Sealed {}
    #[cfg(feature = "postgres")]
    impl Sealed for sqlx::Transaction<'_, sqlx::Postgres> {}
    #[cfg(feature = "sqlite")]
    impl Sealed for sqlx::Transaction<'_, sqlx::Sqlite> {}
}

impl Leadership {
    /// Fences a transaction: it can be committed only while no later term of this election has
    /// fenced in the same database, whatever lock the election is on.
    ///
    /// From the first fence of a later term on, no transaction of an earlier one is committed: the
    /// two exclude each other by a lock on a row of the table `incumbent_fence`. So the first fence
    /// of a term waits for the open transactions of the term before, and those that come later are
    /// refused. On PostgreSQL the transactions of a term do not wait for each other once its first
    /// one is committed; on SQLite there is one writer at a time anyway.
    ///
    /// Fence once as the term begins, in a transaction of its own, before anything is read that an
    /// earlier leader may have written; then fence in each transaction that writes. There it may
    /// come at any time before the commit. It excludes at every isolation level, but at
    /// `REPEATABLE READ` and `SERIALIZABLE` a transaction does not see what was committed while its
    /// fence waited. A rollback to a savepoint takes back a fence that came after it.
    ///
    /// On PostgreSQL `deploy/postgres-fence.sql` creates the table, as
    /// [`fence::create_tables`](crate::fence::create_tables) does; on SQLite the first fence does,
    /// in the main database of the connection: what is in attached files is not fenced. Begin a
    /// transaction of SQLite with `BEGIN IMMEDIATE`, or fence before it reads: it cannot write if
    /// another one has written since it read ([`FenceErrorKind::Unavailable`]).
    ///
    /// A leader that is suspended within a transaction holds up the next one until the server ends
    /// its transaction: on PostgreSQL set `idle_in_transaction_session_timeout`, and have TCP
    /// keepalives end the connections of a host that is gone.
    ///
    /// In an election on several locks the token is that of the first required one. Elections of
    /// one name on different locks need different names here: fence by [`transaction`].
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn work(leadership: incumbent::Leadership, pool: sqlx::PgPool)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = pool.begin().await?;
    /// leadership.fence(&mut transaction).await?;
    /// sqlx::query("UPDATE accounts SET billed = billed + 1").execute(&mut *transaction).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FenceErrorKind::Stale`] and [`TermOver`](FenceErrorKind::TermOver): the term is over. On
    /// any error roll the transaction back.
    ///
    /// # Cancel safety
    /// Roll the transaction back if the returned future is dropped.
    pub async fn fence<T: FencedTransaction>(&self, transaction: &mut T) -> Result<(), FenceError> {
        check_valid(self.election(), self.term(), "write nothing")?;
        transaction.advance(self.election(), self.token()).await?;
        // It may have waited for the transactions of another term.
        check_valid(self.election(), self.term(), "write nothing")
    }
}

/// Fences a transaction with a token, as [`Leadership::fence`] does: for a service that receives
/// the token from the leader.
///
/// # Errors
/// [`FenceErrorKind::Stale`]: a later term has fenced. On any error roll the transaction back.
pub async fn transaction<T: FencedTransaction>(
    transaction: &mut T,
    election: &str,
    token: Token,
) -> Result<(), FenceError> {
    transaction.advance(election, token).await.map(|_| ())
}

/// Creates the table and the function of the fence on PostgreSQL, unless they exist.
///
/// They are those of `deploy/postgres-fence.sql`. The caller's role owns them: another one that
/// writes needs `SELECT`, `INSERT` and `UPDATE` on `incumbent_fence`.
///
/// # Errors
/// [`FenceErrorKind::Misconfigured`]: the role may not create tables. Else the database cannot be
/// reached.
///
/// # Cancel safety
/// They may have been created.
#[cfg(feature = "postgres")]
pub async fn create_tables(pool: &sqlx::PgPool) -> Result<(), FenceError> {
    // Another role may own them, which could not be replaced.
    const EXISTS: &str = "SELECT to_regclass('incumbent_fence') IS NOT NULL \
        AND to_regprocedure('incumbent_fence(text, bigint)') IS NOT NULL";
    let cannot = |error| match code(&error).as_deref() {
        Some(DENIED) => {
            let what = "the role may not create the fence: have deploy/postgres-fence.sql run";
            FenceError::with_source(FenceErrorKind::Misconfigured, what, error)
        }
        _ => failed("the fence cannot be created", error),
    };
    if !sqlx::query_scalar::<_, bool>(EXISTS).fetch_one(pool).await.map_err(cannot)? {
        // In a transaction that the pool knows of, which rolls it back on an error.
        let is_statement = |line: &&str| !matches!(*line, "BEGIN;" | "COMMIT;");
        let script = SCRIPT.split_inclusive('\n').filter(|line| is_statement(&line.trim_end()));
        let script = sqlx::AssertSqlSafe(script.collect::<String>());
        let mut transaction = pool.begin().await.map_err(cannot)?;
        sqlx::raw_sql(script).execute(&mut *transaction).await.map_err(cannot)?;
        transaction.commit().await.map_err(cannot)?;
    }
    Ok(())
}

#[cfg(feature = "postgres")]
#[async_trait]
impl FencedTransaction for sqlx::Transaction<'_, sqlx::Postgres> {
    async fn advance(&mut self, election: &str, token: Token) -> Result<bool, FenceError> {
        check_name(election)?;
        let statement = sqlx::query_scalar("SELECT incumbent_fence($1, $2)");
        let fenced = statement.bind(election).bind(number(token)?).fetch_one(&mut **self).await;
        let error = match fenced {
            Ok(raised) => return Ok(raised),
            Err(error) => error,
        };
        match code(&error).as_deref() {
            Some(STALE) => Err(match greatest(&error) {
                Some(greatest) => stale(election, token, greatest),
                None => failed("the answer of the fence is not understood", error),
            }),
            // The function or its table does not exist.
            Some("42883" | "42P01") => {
                let what = "the database has no fence: run deploy/postgres-fence.sql";
                Err(FenceError::with_source(FenceErrorKind::Misconfigured, what, error))
            }
            Some(DENIED) => {
                let what =
                    "the role may not fence: grant it SELECT, INSERT, UPDATE ON incumbent_fence";
                Err(FenceError::with_source(FenceErrorKind::Misconfigured, what, error))
            }
            _ => Err(failed("the fence cannot be checked", error)),
        }
    }
}

#[cfg(feature = "postgres")]
fn code(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}

/// The token in the detail of what the function raised.
#[cfg(feature = "postgres")]
fn greatest(error: &sqlx::Error) -> Option<Token> {
    let error = error.as_database_error()?;
    let error = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    error.detail()?.parse().ok().map(Token)
}

#[cfg(feature = "sqlite")]
#[async_trait]
impl FencedTransaction for sqlx::Transaction<'_, sqlx::Sqlite> {
    async fn advance(&mut self, election: &str, token: Token) -> Result<bool, FenceError> {
        const TABLE: &str = "CREATE TABLE IF NOT EXISTS main.incumbent_fence \
            (name TEXT PRIMARY KEY NOT NULL, token INTEGER NOT NULL CHECK (token > 0)) STRICT";
        // It keeps all other writers out until the commit, also where there is nothing to raise.
        const RAISE: &str = "INSERT INTO main.incumbent_fence (name, token) VALUES (?1, ?2) \
            ON CONFLICT (name) DO UPDATE SET token = excluded.token \
            WHERE token < excluded.token RETURNING token";
        const READ: &str = "SELECT token FROM main.incumbent_fence WHERE name = ?1";
        check_name(election)?;
        let number = number(token)?;
        let cannot = |error| failed("the fence cannot be checked", error);
        let mut raised = raise(self, RAISE, election, number).await;
        // Not before: where the table exists that would only read, and a transaction that has read
        // does not wait for its turn to write.
        if raised.as_ref().is_err_and(lacks_table) {
            sqlx::query(TABLE).execute(&mut **self).await.map_err(cannot)?;
            raised = raise(self, RAISE, election, number).await;
        }
        if raised.map_err(cannot)?.is_some() {
            return Ok(true);
        }
        let last = sqlx::query_scalar::<_, i64>(READ).bind(election);
        match u64::try_from(last.fetch_one(&mut **self).await.map_err(cannot)?) {
            Ok(last) if last == token.0 => Ok(false),
            last => Err(stale(election, token, Token(last.unwrap_or_default()))),
        }
    }
}

#[cfg(feature = "sqlite")]
async fn raise(
    transaction: &mut sqlx::Transaction<'_, sqlx::Sqlite>,
    statement: &'static str,
    election: &str,
    number: i64,
) -> Result<Option<i64>, sqlx::Error> {
    let statement = sqlx::query_scalar(statement).bind(election).bind(number);
    statement.fetch_optional(&mut **transaction).await
}

/// There is no code for it.
#[cfg(feature = "sqlite")]
fn lacks_table(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().starts_with("no such table"))
}

fn check_name(election: &str) -> Result<(), FenceError> {
    check_not_empty(election).map_err(misconfigured)
}

/// As the database stores it.
pub(super) fn number(token: Token) -> Result<i64, FenceError> {
    match i64::try_from(token.0) {
        Ok(number) if number > 0 => Ok(number),
        _ => {
            let what = format!("a database stores no token of {token}: it is from 1 to 2^63 - 1");
            Err(misconfigured(what))
        }
    }
}

pub(super) fn failed(what: &str, error: sqlx::Error) -> FenceError {
    FenceError::with_source(FenceErrorKind::Unavailable, what, error)
}
