//! `incumbent ui`: the elections of a lock, live on a web page.

mod api;
mod hub;
mod reader;
mod updates;

use std::path::PathBuf;

use clap::Args;
use tokio::task::JoinHandle;

use self::hub::Hub;
use self::updates::Page;
use crate::console::history::Recording;
use crate::console::model::Source;
use crate::error::{CliError, Code, EXIT_CODES};
use crate::http::{Flags, GuardedRoutes, HttpListener, Permission};
use crate::lock::LockArgs;
use crate::lock::elections::Elections;
use crate::output;
use crate::process::BackgroundTask;
use crate::process::signals::StopSignals;

/// The flags of the server.
const FLAGS: Flags = Flags { address: "--listen", token_file: "--token-file" };

/// Serve a web page that shows the elections of a lock live: who leads each, and how much time is
/// left until the deadline of its term.
///
/// The page needs the permissions of an observer only, and reads the lock only while a browser
/// shows it. It takes no part in the elections, and sends no request to candidates but the roll
/// call of the election whose details are shown. The page is of this program alone: it loads
/// nothing from elsewhere.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Ui {
    #[command(flatten)]
    lock: LockArgs,
    /// The elections; with Kubernetes their objects [default: all].
    names: Vec<String>,
    /// Serve the page at this port of the loopback address, at this address and port, or at this
    /// Unix socket. An address that is not a loopback address requires --token-file.
    #[arg(long, value_name = "[ADDRESS:]PORT|unix:PATH", default_value = "127.0.0.1:8610")]
    listen: String,
    /// Show elections only to those who enter the token in this file.
    ///
    /// The token is sent in clear: use it on the loopback address, or behind a proxy with TLS. The
    /// file is read at the start, and refused if all users may access it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let the page evict and move leaders, and pause and resume elections. Requires --token-file,
    /// or a Unix socket, which is created for this user alone.
    #[arg(long)]
    allow_changes: bool,
    /// A file of `incumbent record`: the details of an election show what it recorded in the last
    /// 31 days. Only the selected elections are shown.
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
}

impl Ui {
    pub async fn run(self) -> Result<(), CliError> {
        let recording = match &self.recording {
            Some(file) => Some(Recording::open(file).await?),
            None => None,
        };
        let token = self.token_file.as_deref();
        let listener = HttpListener::bind(FLAGS, &self.listen, token, None).await?;
        check_exposure(&listener, FLAGS)?;
        if self.allow_changes && matches!(listener.guard.permission, Permission::Nobody) {
            let message = "--allow-changes: add --token-file, or use --listen unix:PATH";
            return Err(CliError::new(Code::Usage, message));
        }
        // A lock that cannot be read is reported now, not on the page.
        let lock = {
            let elections = Elections::open_for(&self.lock, &self.names).await?;
            Source::open(&elections, &self.names).await?.next().await?;
            elections.plain_title()
        };
        let at = listener.url(&self.listen);
        let page = Page { changes: self.allow_changes, recording: recording.is_some() };
        let (hub, follows) = start(self.lock, self.names, page);
        let routes = api::routes(hub, recording, &listener.guard);
        let _serves = listener.serve(routes);
        let mut follows = BackgroundTask(follows);
        output::line(format!("{lock}: serving the elections at {at}"))?;
        let mut signals = StopSignals::listen()?;
        tokio::select! {
            signal = signals.next() => Err(CliError::Signal(signal)),
            // It ends by a panic only, which was reported.
            _ = &mut follows.0 => Err(CliError::Silent(Code::Failed)),
        }
    }
}

/// The routes of a page of all elections of a lock, and the task that reads it for the page.
pub fn page_of(
    lock: &LockArgs,
    listener: &HttpListener,
    flags: Flags,
) -> Result<(GuardedRoutes, BackgroundTask), CliError> {
    check_exposure(listener, flags)?;
    let (hub, follows) = start(lock.clone(), Vec::new(), Page::default());
    let routes = api::routes(hub, None, &listener.guard);
    Ok((routes, BackgroundTask(follows)))
}

/// Starts the task that reads the lock.
fn start(lock: LockArgs, names: Vec<String>, page: Page) -> (Hub, JoinHandle<()>) {
    let (hub, shared, requests) = Hub::new(names.clone(), page);
    (hub, tokio::spawn(reader::follow(shared, requests, lock, names)))
}

/// Refuses an address that others reach without a token.
fn check_exposure(listener: &HttpListener, flags: Flags) -> Result<(), CliError> {
    let is_local = listener.port().is_none_or(|address| address.ip().is_loopback());
    match &listener.guard.permission {
        Permission::Nobody if !is_local => {
            let Flags { address, token_file } = flags;
            let message = format!(
                "{address}: other hosts reach this address: add {token_file}, or use 127.0.0.1"
            );
            Err(CliError::new(Code::Usage, message))
        }
        _ => Ok(()),
    }
}
