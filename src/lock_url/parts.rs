//! The parts that all URLs have.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use super::error::LockUrlError;

/// One URL, taken apart: `SCHEME:PLACE[?OPTIONS]`.
pub(super) struct Parts {
    scheme: String,
    /// As written, after the colon.
    place: String,
    options: Vec<(String, String)>,
    shown: String,
}

impl Parts {
    pub fn of(url: &str) -> Result<Self, LockUrlError> {
        let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme))
        else {
            let shown = without_secrets("", url);
            let message =
                format!("{shown:?} is no URL of a lock: it begins with no scheme, as nats: is one");
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
        // Or the second half of a password would be taken for an option, and be shown as one.
        if place.starts_with("//") && options.contains('@') {
            return Err(
                parts.malformed("a ? in a password is written as %3F, an @ in an option as %40")
            );
        }
        Ok(parts)
    }

    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What is between scheme and options, as written.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The same, with what was escaped.
    pub fn decoded(&self, text: &str) -> Result<String, LockUrlError> {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(Into::into).map_err(|_| self.malformed("it is not in UTF-8"))
    }

    /// The URL without secrets.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The value of an option, which then has been read.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.options.iter().position(|(told, _)| told == key)?;
        Some(self.options.remove(at).1)
    }

    /// Whether `create` allows to make what is missing; nothing said is yes.
    #[cfg(any(feature = "nats", feature = "postgres", feature = "sqlite"))]
    pub fn take_create(&mut self) -> Result<bool, LockUrlError> {
        match self.take("create").as_deref() {
            None | Some("yes") => Ok(true),
            Some("no") => Ok(false),
            Some(_) => Err(self.malformed("create is yes or no")),
        }
    }

    /// Whether an option is given that is on where it has no value: `?name`, `?name=yes` or `?name=no`.
    #[cfg(any(feature = "nats", feature = "_objects"))]
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
        let rule = || self.malformed(&format!("{key}={text} is no duration, as 10s and 500ms are"));
        duration.map(Some).map_err(|_| rule())
    }

    /// Refuses what nobody has read: it was meant to say something.
    pub fn nothing_left(&self) -> Result<(), LockUrlError> {
        match self.options.first() {
            Some((key, _)) => {
                Err(self
                    .malformed(&format!("there is no option {key:?} here, or it is told twice")))
            }
            None => Ok(()),
        }
    }

    /// The URL with the options that nobody has read, which then are read.
    #[cfg(feature = "postgres")]
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

    /// `feature`: which one knows the scheme.
    pub fn unknown(&self, feature: Option<&str>) -> LockUrlError {
        match feature {
            Some(feature) => LockUrlError::not_built(format!(
                "{}: locks of this kind are not built in: add the feature {feature:?} of the crate incumbent",
                self.shown
            )),
            None => self.malformed(&format!(
                "no lock has the scheme {:?}: there are nats, kubernetes, postgres, sqlite, gs, s3, az, peer and memory",
                self.scheme
            )),
        }
    }
}

fn is_scheme(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(fits)
}

/// A user, a password or a token stand before an `@`; and nothing that a terminal obeys is repeated.
fn without_secrets(scheme: &str, rest: &str) -> String {
    let mut rest = match rest.rsplit_once('@') {
        Some((_, after)) => format!("//***@{after}"),
        None => rest.to_owned(),
    };
    // PostgreSQL takes a password as an option, too.
    if let Some((place, options)) = rest.split_once('?') {
        // And a key of peers belongs into a file, but may have been written here.
        let secret = |option: &str| {
            option.to_ascii_lowercase().contains("pass") || option.eq_ignore_ascii_case("key")
        };
        let told = options.split('&').map(|option| match option.split_once('=') {
            Some((key, _)) if secret(key) => format!("{key}=***"),
            _ => option.to_owned(),
        });
        rest = format!("{place}?{}", told.collect::<Vec<_>>().join("&"));
    }
    let colon = if scheme.is_empty() { "" } else { ":" };
    crate::util::text::escape_line(&format!("{scheme}{colon}{rest}"), 200).into_owned()
}
