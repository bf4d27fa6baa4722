//! Elections in the tables of a SQL database.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Lock;
use incumbent::sql::{Postgres, SqlError, SqlErrorKind, Sqlite, Tables};

use super::Opened;
use crate::failure::{Code, Failure, one_line};

/// Where the tables are.
#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    /// A URL, which may have a password.
    Postgres(String),
}

impl Database {
    /// None where `text` names no database.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return Some(match path {
                "" | ":memory:" => Err("sqlite: needs the path of a file".to_owned()),
                path => Ok(Self::Sqlite(path.into())),
            });
        }
        let is_url = ["postgres:", "postgresql:"].iter().any(|scheme| text.starts_with(scheme));
        is_url.then(|| match text.contains("://") {
            true => Ok(Self::Postgres(text.to_owned())),
            false => Err("a database is postgres://USER@HOST:PORT/DATABASE".to_owned()),
        })
    }

    /// What follows `--lock`, for people.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite:PATH",
            Self::Postgres(_) => "postgres://…",
        }
    }

    /// Opens it, with the tables made where they are not there.
    pub async fn open(&self, lease: Option<Duration>) -> Result<Opened, Failure> {
        let mut tables = Tables::make();
        if let Some(lease) = lease {
            tables = tables.longest_lease(lease);
        }
        let lock: Arc<dyn Lock> = match self {
            Self::Sqlite(path) => {
                Arc::new(Sqlite::open_with(path, tables).await.map_err(|e| failure(&e))?.lock())
            }
            Self::Postgres(url) => {
                Arc::new(Postgres::connect_with(url, tables).await.map_err(|e| failure(&e))?.lock())
            }
        };
        let longest = lock.capabilities().longest_lease;
        Ok(Opened { lock, lease: lease.unwrap_or(longest), told: lease })
    }
}

fn failure(error: &SqlError) -> Failure {
    let code = match error.kind() {
        SqlErrorKind::Unavailable => Code::Unreachable,
        SqlErrorKind::Denied => Code::Denied,
        _ => Code::Failed,
    };
    Failure::new(code, one_line(error))
}

/// Without the URL.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_path_or_a_url() {
        let path = |text| Some(Ok(Database::Sqlite(PathBuf::from(text))));
        assert_eq!(Database::parse("sqlite:a/b.db"), path("a/b.db"));
        assert_eq!(Database::parse("sqlite:///a/b.db"), path("/a/b.db"));
        assert!(Database::parse("sqlite:").unwrap().is_err());
        assert!(Database::parse("postgres:host").unwrap().is_err());
        assert_eq!(Database::parse("nats"), None);
        let database = Database::parse("postgres://u:s3cret@h/d").unwrap().unwrap();
        assert_eq!(format!("{database:?}"), "postgres://…");
    }
}
