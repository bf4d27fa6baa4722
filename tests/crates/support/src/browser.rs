//! A headless Chromium, driven by WebDriver.
//!
//! As much of the protocol as the tests of a page need. The crates that speak all of it bring older
//! versions of our own dependencies with them, or compile tens of thousands of lines.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::poll::LIMIT;
use crate::{Port, Process};

/// How often a page is looked at while a test waits for it.
const PAUSE: Duration = Duration::from_millis(50);

/// A browser with one page. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    port: u16,
    session: String,
    _driver: Process,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser whose page has this size in pixels.
    ///
    /// # Panics
    ///
    /// Where Chromium or its driver is missing, saying what to install.
    pub fn start(width: u32, height: u32) -> Self {
        let driver = find("chromedriver", "CHROMEDRIVER");
        let chromium = find("chromium", "CHROMIUM");
        let profile = TempDir::with_prefix("incumbent-browser-").expect("a temporary directory");
        let port = Port::pick().number();
        let log = profile.path().join("driver.log");
        let process = Process::spawn(&driver, &log, |command| {
            command.arg(format!("--port={port}"));
        });
        let data = profile.path().join("profile");
        let options = json!({
            "binary": chromium,
            "args": [
                "--headless=new",
                "--no-sandbox", // which does not start as root
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--lang=en-US",
                format!("--user-data-dir={}", data.display()),
                format!("--window-size={width},{height}"),
            ],
        });
        let mut browser = Self {
            port,
            session: String::new(),
            _driver: process.expect("chromedriver starts"),
            _profile: profile,
        };
        browser.until("chromedriver listens", |browser| {
            browser.send("GET", "/status", &Value::Null).is_ok().then_some(())
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": LIMIT.as_millis()},
        }}});
        let session = browser.send("POST", "/session", &wanted).expect("a session");
        let id = session["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {session}"));
        browser.session = format!("/session/{id}");
        browser
    }

    /// Opens an address.
    pub fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({ "url": url }));
    }

    /// The result of a function's body in the page. `arguments` has these.
    pub fn eval(&self, body: &str, arguments: &[Value]) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": body, "args": arguments}))
    }

    /// The result of a function in the page whose body calls its last argument with it.
    pub fn eval_async(&self, body: &str, arguments: &[Value]) -> Value {
        self.command("POST", "/execute/async", &json!({"script": body, "args": arguments}))
    }

    /// Waits until the value of an expression in the page is neither `null` nor `false`.
    /// Returns it.
    pub fn wait_for(&self, expression: &str) -> Value {
        let body = format!("return ({expression});");
        self.until(expression, |browser| {
            let value = browser.eval(&body, &[]);
            (value != Value::Null && value != Value::Bool(false)).then_some(value)
        })
    }

    /// Waits until the text of the page contains all of these.
    pub fn wait_for_text(&self, texts: &[&str]) -> String {
        self.until(&format!("the page shows {texts:?}"), |browser| {
            let shown = browser.text();
            texts.iter().all(|text| shown.contains(text)).then_some(shown)
        })
    }

    /// The text that the page shows.
    pub fn text(&self) -> String {
        let text = self.eval("return document.body.innerText;", &[]);
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Types keys. Those of WebDriver are in the private range, as `\u{e00c}` for Escape.
    pub fn press(&self, keys: &str) {
        let actions = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()}))
        });
        let actions = actions.collect::<Vec<_>>();
        let source = json!({"type": "key", "id": "keys", "actions": actions});
        self.command("POST", "/actions", &json!({ "actions": [source] }));
    }

    /// Gives the page another size.
    pub fn resize(&self, width: u32, height: u32) {
        let mobile = width < 500; // no window is as narrow
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Prefers a dark page, or a light one.
    pub fn prefer_dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": value}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Sends a command of the DevTools protocol. Returns its result.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.command("POST", "/goog/cdp/execute", &body)
    }

    /// A picture of the page as PNG.
    pub fn screenshot(&self) -> Vec<u8> {
        let picture = self.command("GET", "/screenshot", &Value::Null);
        STANDARD.decode(picture.as_str().unwrap_or_default()).expect("a picture in base64")
    }

    /// What the page has logged since the last call: errors, and refusals of its policy.
    pub fn log(&self) -> Vec<String> {
        let entries = self.command("POST", "/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].to_string()).collect()
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        match self.send(method, &format!("{}{path}", self.session), body) {
            Ok(value) => value,
            Err(error) => panic!("{path} {body}: {error}"),
        }
    }

    /// Sends a request to the driver. Returns the value of the response.
    fn send(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", self.port);
        let _ =
            write!(request, "Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes())?;
        let mut reader = BufReader::new(stream);
        let (mut status, mut length) = (String::new(), 0);
        reader.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? <= 2 {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(io::Error::other)?;
        let value = answer["value"].take();
        match status.contains(" 200 ") {
            true => Ok(value),
            false => Err(io::Error::other(value.to_string())),
        }
    }

    fn until<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            if Instant::now() > end {
                if self.session.is_empty() {
                    panic!("not within {LIMIT:?}: {what}");
                }
                let (shown, log) = (self.text(), self.log());
                panic!("not within {LIMIT:?}: {what}\nlogged: {log:#?}\nthe page shows: {shown}");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser with its session.
        let _ = self.send("DELETE", &self.session, &Value::Null);
    }
}

/// The program that a variable names, or the one on `PATH`.
fn find(name: &str, variable: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!("no {name}: run scripts/install-chromium.sh, or set {variable} to one")
        })
}
