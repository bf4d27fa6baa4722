//! Contexts of the `nats` program: named connection settings, as JSON files in its configuration
//! directory.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::error::{CliError, Code};
use crate::output::read_text;

/// The maximum length of a file of a context.
const MAX_LEN: u64 = 1024 * 1024;

/// The fields that are used, and those that must not be ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Context {
    #[serde(skip)]
    pub origin: String,
    pub url: String,
    pub token: String,
    pub user: String,
    pub password: String,
    pub creds: String,
    pub nkey: String,
    pub user_jwt: String,
    pub user_seed: String,
    pub cert: String,
    pub key: String,
    pub ca: String,
    pub tls_first: bool,
    pub jetstream_domain: String,
    pub jetstream_api_prefix: String,
    pub inbox_prefix: String,
    nsc: String,
    socks_proxy: String,
}

impl Context {
    /// The variables with credentials: those that fields refer to by `env://NAME`.
    pub fn variables(&self) -> impl Iterator<Item = String> {
        let Self { token, password, creds, nkey, user_jwt, user_seed, .. } = self;
        let fields = [token, password, creds, nkey, user_jwt, user_seed];
        fields.into_iter().filter_map(|field| field.strip_prefix(REFERENCE).map(str::to_owned))
    }
}

/// Most fields are secret, or may contain a secret.
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Begins a reference to an environment variable.
pub const REFERENCE: &str = "env://";

/// Fields without effect here.
const IDLE: [&str; 8] = [
    "name",
    "description",
    "jetstream_event_prefix",
    "color_scheme",
    "windows_cert_store",
    "windows_cert_match_by",
    "windows_cert_match",
    "windows_ca_certs_match",
];

const USED: [&str; 18] = [
    "url",
    "token",
    "user",
    "password",
    "creds",
    "nkey",
    "user_jwt",
    "user_seed",
    "cert",
    "key",
    "ca",
    "tls_first",
    "jetstream_domain",
    "jetstream_api_prefix",
    "inbox_prefix",
    "nsc",
    "socks_proxy",
    "$schema",
];

/// The configuration directory of the `nats` program.
fn nats_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".config")))?;
    Some(base.join("nats"))
}

/// Loads the context of this name, or the selected one if there is one.
pub fn load(named: Option<&str>) -> Result<Context, CliError> {
    let Some(directory) = nats_directory() else { return Ok(Context::default()) };
    let (name, how) = match named {
        Some(name) => (name.to_owned(), ""),
        None => match selected(&directory.join("context.txt"))? {
            Some(name) => (name, "selected "),
            None => return Ok(Context::default()),
        },
    };
    if name.is_empty() || name.contains("..") || name.contains(['/', '\\']) {
        let message = format!("{how}context {name:?}: not a valid context name");
        return Err(CliError::new(Code::Usage, message));
    }
    let file = directory.join("context").join(format!("{name}.json"));
    let context = read(&file).map_err(|why| {
        let at = file.display();
        CliError::new(Code::Usage, format!("{how}context {name} ({at}): {why}"))
    })?;
    Ok(Context { origin: format!("context {name}"), ..context })
}

fn selected(file: &Path) -> Result<Option<String>, CliError> {
    match text_of(file) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|name| !name.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let message = format!("the selected context ({}): {error}", file.display());
            Err(CliError::new(Code::Usage, message))
        }
    }
}

fn read(file: &Path) -> Result<Context, String> {
    let text = text_of(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "it does not exist; see `nats context list`".to_owned(),
        io::ErrorKind::InvalidData => "not a context: not text".to_owned(),
        _ => error.to_string(),
    })?;
    parse(&text)
}

fn text_of(file: &Path) -> io::Result<String> {
    read_text(File::open(file)?, MAX_LEN)
}

/// Parses a context. An error names the place, never the content, which may be secret.
fn parse(text: &str) -> Result<Context, String> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| format!("not JSON at line {}, column {}", error.line(), error.column()))?;
    let fields = value.as_object().ok_or("not a context: not a JSON object")?;
    if let Some(name) = (fields.keys().map(String::as_str))
        .find(|name| !USED.contains(name) && !IDLE.contains(name))
    {
        return Err(format!("unknown field {name:?}: correct it, or remove it"));
    }
    for (name, value) in fields {
        let fits = match name.as_str() {
            "tls_first" => value.is_boolean(),
            "windows_ca_certs_match" => true,
            _ => value.is_string(),
        };
        if !fits && !value.is_null() {
            return Err(format!("field {name:?} is of the wrong type"));
        }
    }
    let set = fields.iter().filter(|(_, value)| !value.is_null());
    let set: serde_json::Map<_, _> = set.map(|(k, v)| (k.clone(), v.clone())).collect();
    let context: Context =
        serde_json::from_value(Value::Object(set)).map_err(|_| "not a context".to_owned())?;
    if !context.nsc.is_empty() {
        return Err("a user from nsc is not supported; use creds".to_owned());
    }
    if !context.socks_proxy.is_empty() {
        return Err("a SOCKS proxy is not supported".to_owned());
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn error_does_not_contain_the_content() {
        for (text, expected) in [
            ("", "not JSON at line 1"),
            ("{\"password\": s3cret}", "not JSON at line 1"),
            ("[\"s3cret\"]", "not a JSON object"),
            ("{\"pasword\": \"s3cret\"}", "unknown field \"pasword\""),
            ("{\"password\": [\"s3cret\"]}", "\"password\" is of the wrong type"),
            ("{\"nsc\": \"s3cret\"}", "nsc"),
            ("{\"socks_proxy\": \"s3cret\"}", "SOCKS"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        }
        assert_eq!(parse("{\"url\": \"nats://a\", \"creds\": null}").unwrap().url, "nats://a");
    }
}

#[cfg(test)]
mod fuzz {
    use bolero::TypeGenerator;
    use serde_json::{Map, Value, json};

    use super::{IDLE, USED, parse};

    const SECRET: &str = "s3cret";

    #[derive(Debug, TypeGenerator)]
    enum FieldValue {
        Nothing,
        Number(i64),
        Flag(bool),
        Text,
        List,
        Object,
    }

    #[test]
    fn any_bytes_parse_or_are_refused() {
        bolero::check!().for_each(|bytes| {
            let _ = parse(&String::from_utf8_lossy(bytes));
        });
    }

    #[test]
    fn no_error_contains_a_secret() {
        let fields = bolero::produce::<Vec<(u8, FieldValue)>>().with().len(0_usize..6);
        bolero::check!().with_generator(fields).for_each(|fields| {
            let names: Vec<&str> = USED.into_iter().chain(IDLE).chain(["unknown"]).collect();
            let object: Map<String, Value> = (fields.iter())
                .map(|(name, value)| {
                    let value = match value {
                        FieldValue::Nothing => Value::Null,
                        FieldValue::Number(number) => json!(number),
                        FieldValue::Flag(flag) => json!(flag),
                        FieldValue::Text => json!(SECRET),
                        FieldValue::List => json!([SECRET]),
                        FieldValue::Object => json!({SECRET: SECRET}),
                    };
                    (names[usize::from(*name) % names.len()].to_owned(), value)
                })
                .collect();
            let whole = Value::Object(object).to_string();
            for text in [&whole, &whole[..whole.len() - 1]] {
                let refusal = parse(text).err().unwrap_or_default();
                assert!(!refusal.contains(SECRET), "{refusal}");
            }
        });
    }
}
