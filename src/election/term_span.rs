//! The span of a term, for whichever subscriber of `tracing` a program has.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::lock::Token;
use crate::protocol::{Cause, PreviousTerm};

/// Open from the beginning of a term until its work has stopped. Takes no memory but a word where
/// nobody wants it, or it is closed.
///
/// Its clones share one span, as cloning a span calls the subscriber, which may call this crate.
#[derive(Clone, Default)]
pub(crate) struct TermSpan(Option<Arc<Span>>);

impl TermSpan {
    /// A root: a candidate may last for months, and its span with it. What exports spans does so
    /// when they end.
    pub fn open(
        (election, identity): (&str, &str),
        token: Token,
        takeover: Option<Duration>,
        after: PreviousTerm,
    ) -> Self {
        let span = info_span!(
            parent: None,
            "term",
            election,
            identity,
            token = token.0,
            after = after.as_str(),
            takeover_ms = takeover.map(millis),
            cause = Empty,
        );
        Self((!span.is_disabled()).then(|| Arc::new(span)))
    }

    /// The span for work of the term; the current one if there is none.
    pub fn span(&self) -> Span {
        self.0.as_deref().map_or_else(Span::current, Span::clone)
    }

    /// Closes it, once the last work within it has ended, too.
    pub fn close(self, cause: &Cause) {
        if let Some(span) = self.0 {
            span.record("cause", cause.as_str());
        }
    }
}

/// Signed, which OpenTelemetry exports as a number.
fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_without_a_subscriber_has_no_span() {
        let none = tracing::subscriber::NoSubscriber::default();
        tracing::subscriber::with_default(none, || {
            let of = ("app", "c1");
            let span = TermSpan::open(of, Token(1), Some(Duration::ZERO), PreviousTerm::Released);
            assert!(span.0.is_none());
            assert!(span.span().is_none());
        });
    }
}
