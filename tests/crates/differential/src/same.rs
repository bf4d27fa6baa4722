//! Whether two records mean the same.

use incumbent::lock::{Content, Entry, Mark, Record, Revision};

use crate::store::Rules;

/// Whether both mean the same; the real one may live a little longer.
pub fn same_content(real: &Record, model: &Record, rules: Rules) -> bool {
    match (&real.content, &model.content) {
        (Content::Held(held), Content::Held(model)) => {
            let Entry { identity, mark, ttl: life, advertisement } = held;
            let lives = *life >= model.ttl && *life <= model.ttl + rules.slack;
            lives
                && *identity == model.identity
                && same_mark(mark.as_ref(), model.mark.as_ref(), real.revision, rules)
                && *advertisement == model.advertisement
        }
        (Content::Vacant(real), Content::Vacant(model)) => real == model,
        _ => false,
    }
}

/// The token of a term that begins is its own revision, whether that is stated or not.
fn same_mark(real: Option<&Mark>, model: Option<&Mark>, revision: Revision, rules: Rules) -> bool {
    let whole = |mark: &Mark, since_unix_ms: u64| Mark {
        token: mark.token.or(Some(revision.into())),
        since_unix_ms,
        ..mark.clone()
    };
    match (real, model) {
        (Some(real), Some(model)) => {
            let since = if rules.keeps_since { real.since_unix_ms } else { model.since_unix_ms };
            whole(real, since) == whole(model, model.since_unix_ms)
        }
        (real, model) => real == model,
    }
}
