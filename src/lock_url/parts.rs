//! The parts of a lock URL.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use super::error::LockUrlError;

/// The parts of a URL: `SCHEME:PLACE[?OPTIONS]`.
pub(super) struct Parts {
    scheme: String,
    /// The text after the colon, still encoded.
    place: String,
    options: Vec<(String, String)>,
    shown: String,
}

impl Parts {
    pub fn of(url: &str) -> Result<Self, LockUrlError> {
        let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme))
        else {
            let shown = without_secrets("", url);
            let message = format!("{shown:?} is not a lock URL: it has no scheme such as nats:");
            return Err(LockUrlError::malformed(message));
        };
        let scheme = scheme.to_ascii_lowercase();
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let pairs = form_urlencoded::parse(options.as_bytes());
        let parts = Self {
            shown: without_secrets(&scheme, rest),
            place: place.to_owned(),
            options: pairs.map(|(key, value)| (key.into_owned(), value.into_owned())).collect(),
            scheme,
        };
        // Otherwise the second half of a password would count as an option, and be displayed.
        if place.starts_with("//") && options.contains('@') {
            return Err(
                parts.malformed("write a ? in a password as %3F, and an @ in an option as %40")
            );
        }
        Ok(parts)
    }

    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the text between scheme and options, still encoded.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns `text`, percent-decoded.
    pub fn decoded(&self, text: &str) -> Result<String, LockUrlError> {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(Into::into).map_err(|_| self.malformed("it is not in UTF-8"))
    }

    /// Returns the URL without secrets.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Removes an option, and returns its value.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.options.iter().position(|(name, _)| name == key)?;
        Some(self.options.remove(at).1)
    }

    /// Returns whether `create` allows creation of what is missing. Default: yes.
    pub fn take_create(&mut self) -> Result<bool, LockUrlError> {
        match self.take("create").as_deref() {
            None | Some("yes") => Ok(true),
            Some("no") => Ok(false),
            Some(_) => Err(self.malformed("create is yes or no")),
        }
    }

    /// Returns the value of a flag: `?name`, `?name=yes` or `?name=no`. Default: no.
    pub fn take_flag(&mut self, key: &str) -> Result<bool, LockUrlError> {
        match self.take(key).as_deref() {
            None | Some("no") => Ok(false),
            Some("" | "yes") => Ok(true),
            Some(_) => Err(self.malformed(&format!("{key} is yes or no"))),
        }
    }

    pub fn take_duration(&mut self, key: &str) -> Result<Option<Duration>, LockUrlError> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let duration = humantime::parse_duration(&text);
        let rule =
            || self.malformed(&format!("{key}={text} is not a duration such as 10s or 500ms"));
        duration.map(Some).map_err(|_| rule())
    }

    /// Refuses options that no backend has taken.
    pub fn check_all_taken(&self) -> Result<(), LockUrlError> {
        match self.options.first() {
            Some((key, _)) => {
                Err(self
                    .malformed(&format!("there is no option {key:?} here, or it is given twice")))
            }
            None => Ok(()),
        }
    }

    /// Returns the URL with the remaining options, and removes them.
    pub fn take_rest(&mut self) -> String {
        let mut options = form_urlencoded::Serializer::new(String::new());
        options.extend_pairs(self.options.drain(..));
        let options = options.finish();
        let mark = if options.is_empty() { "" } else { "?" };
        format!("{}:{}{mark}{options}", self.scheme, self.place)
    }

    pub fn malformed(&self, rule: &str) -> LockUrlError {
        LockUrlError::malformed(format!("{}: {rule}", self.shown))
    }

    /// Returns the error of a store that is not built in.
    pub fn not_built(&self, feature: &str) -> LockUrlError {
        let rule = "locks of this kind are not built in: add the feature";
        LockUrlError::not_built(format!(
            "{}: {rule} {feature:?} of the crate incumbent",
            self.shown
        ))
    }

    /// Returns the error of a scheme that is none of these.
    pub fn unknown(&self, schemes: &[&str]) -> LockUrlError {
        let listed = schemes.join(", ");
        let (others, last) = listed.rsplit_once(", ").unwrap_or_default();
        self.malformed(&format!(
            "no lock has the scheme {:?}: there are {others} and {last}",
            self.scheme
        ))
    }
}

fn is_scheme(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(fits)
}

/// Hides what precedes an `@`, which may be a user, a password or a token, and escapes control
/// characters.
fn without_secrets(scheme: &str, rest: &str) -> String {
    let mut rest = match rest.rsplit_once('@') {
        Some((_, after)) => format!("//***@{after}"),
        None => rest.to_owned(),
    };
    // PostgreSQL accepts a password as an option, too.
    if let Some((place, options)) = rest.split_once('?') {
        // No store takes most of these, but a user may have written them here.
        let secret = |option: &str| {
            let option = option.to_ascii_lowercase();
            let words = ["pass", "secret", "token", "key", "seed", "sas", "jwt"];
            let is_file = option.ends_with("file") || ["cert-key", "sslkey"].contains(&&*option);
            !is_file && words.iter().any(|word| option.contains(word))
        };
        let options = options.split('&').map(|option| match option.split_once('=') {
            Some((key, _)) if secret(key) => format!("{key}=***"),
            _ => option.to_owned(),
        });
        rest = format!("{place}?{}", options.collect::<Vec<_>>().join("&"));
    }
    let colon = if scheme.is_empty() { "" } else { ":" };
    crate::util::text::escape_line(&format!("{scheme}{colon}{rest}"), 200).into_owned()
}
