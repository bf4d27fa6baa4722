//! The greatest token of a service, in a SQL database.

use async_trait::async_trait;
use sqlx::{Database, Pool, Transaction};

use super::FenceError;
use super::http::{FenceStore, MemoryFence};
use super::sql::{FencedTransaction, failed, number};
use crate::lock::Token;

/// The greatest token, in a PostgreSQL or SQLite database: a service remembers it when it is
/// restarted, and shares it with other replicas.
///
/// It asks the database at each request, in the table of
/// [`Leadership::fence`](crate::Leadership::fence). A request that another replica is handling when
/// a later term comes is not waited for: where that matters, fence the transaction of the handler
/// too, by [`transaction`](super::transaction), with the [`Token`] among the extensions of the
/// request.
#[derive(Debug)]
pub struct SqlFence<DB: Database> {
    in_flight: MemoryFence,
    pool: Pool<DB>,
}

impl<DB: Database> SqlFence<DB> {
    /// The fence of an election, in the database of this pool.
    pub fn new(election: &str, pool: Pool<DB>) -> Self {
        Self { in_flight: MemoryFence::new(election), pool }
    }
}

#[async_trait]
impl<DB: Database> FenceStore for SqlFence<DB>
where
    for<'t> Transaction<'t, DB>: FencedTransaction,
{
    type Pass = <MemoryFence as FenceStore>::Pass;

    fn election(&self) -> &str {
        self.in_flight.election()
    }

    async fn enter(&self, token: Token) -> Result<Self::Pass, FenceError> {
        let cannot = |error| failed("the fence cannot be checked", error);
        number(token)?; // before it is the greatest that has come
        let pass = self.in_flight.enter(token).await?;
        let mut check = self.pool.begin().await.map_err(cannot)?;
        match check.advance(self.election(), token).await? {
            true => check.commit().await.map_err(cannot)?,
            // Nothing to write: spares the disk.
            false => check.rollback().await.map_err(cannot)?,
        }
        Ok(pass)
    }
}
