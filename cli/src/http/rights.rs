//! Who may act over HTTP: users of the Unix socket, or holders of a token.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::error::{CliError, Code};
use crate::text::one_line;

/// The most bytes of a token.
const MAX_TOKEN: u64 = 4096;

/// Who may act.
#[derive(Clone)]
pub enum Rights {
    Nobody,
    /// Everybody: the mode of the socket decides who connects.
    Everybody,
    /// Those who send it. With the flag that gave it, for refusals.
    Token(Arc<str>, &'static str),
}

impl Rights {
    /// Reads the token of a file, which only its owner and group may read.
    pub fn of_file(flag: &'static str, path: &Path) -> Result<Self, CliError> {
        let failed = |why: String| {
            let message = format!("{flag} {}: {why}", path.display());
            CliError::new(Code::Usage, message)
        };
        let cannot = |error: io::Error| failed(one_line(&error));
        let file = File::open(path).map_err(cannot)?;
        let mode = file.metadata().map_err(cannot)?.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(failed("all users may access it: `chmod o= FILE`".to_owned()));
        }
        let mut token = String::new();
        file.take(MAX_TOKEN).read_to_string(&mut token).map_err(cannot)?;
        match token.trim() {
            "" => Err(failed("it is empty: put a long random word in it".to_owned())),
            token if token.contains(char::is_whitespace) => {
                Err(failed("it has several words: put one in it".to_owned()))
            }
            token => Ok(Self::Token(token.into(), flag)),
        }
    }

    /// Why the request is refused; `None` if it is not.
    pub fn refusal(&self, headers: &HeaderMap) -> Option<String> {
        match self {
            Self::Everybody => None,
            Self::Nobody => Some(
                "refused: start this candidate with --http unix:PATH, or with --http-token-file\n"
                    .to_owned(),
            ),
            Self::Token(token, flag) => {
                let given = headers.get(header::AUTHORIZATION);
                let given = given.and_then(|given| given.to_str().ok()?.strip_prefix("Bearer "));
                // The length of a token is no secret.
                let same =
                    given.is_some_and(|given| bool::from(given.as_bytes().ct_eq(token.as_bytes())));
                let line = format!(
                    "refused: send the token of {flag}, as in `Authorization: Bearer TOKEN`\n"
                );
                (!same).then_some(line)
            }
        }
    }
}

/// Refuses requests without the right.
pub async fn check(State(rights): State<Rights>, request: Request, next: Next) -> Response {
    match rights.refusal(request.headers()) {
        Some(line) => (StatusCode::FORBIDDEN, line).into_response(),
        None => next.run(request).await,
    }
}
