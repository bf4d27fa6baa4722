//! A process that campaigns as go-choria's candidate does without back-off: it creates, plainly
//! updates every 0.75 of the TTL, leads 200 ms after its first update, and gives up on any error. A
//! request may take five seconds.
//!
//! Nothing revokes its leadership while a request hangs, so it leads until then. What is known of
//! it ends there: a process whose timers come late, on a machine without time for it, does not
//! count as leading after that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::{self, kv};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, timeout};

use crate::load::candidate::{Options, connect_options, report_claims};
use crate::record::journal::{Event, Writer, now};

/// How long a request may hang: the default of Choria's client.
const HANG: Duration = Duration::from_secs(5);
/// How long after its first renewal a winner reports "won".
const SETTLE: Duration = Duration::from_millis(200);

/// Campaigns until SIGTERM. It leaves its key then, as Choria does.
pub async fn run(options: Options) {
    let mut terminate = signal(SignalKind::terminate()).expect("a handler of SIGTERM");
    let journal = options.journal();
    journal.write(Event::Started { ours: false });
    let ttl = Duration::from_millis(options.lease);
    let mut candidate = Candidate {
        key: options.election.clone(),
        value: options.identity.clone(),
        interval: ttl * 3 / 4,
        held: None,
        own_term: Arc::default(),
        journal: journal.clone(),
    };
    let own_term = Arc::clone(&candidate.own_term);
    report_claims(journal.clone(), move |t| {
        let token = own_term.token.load(Ordering::SeqCst);
        (token > 0 && t < own_term.until.load(Ordering::SeqCst)).then_some(token)
    });
    tokio::select! {
        () = candidate.run(&options) => {}
        _ = terminate.recv() => {}
    }
    candidate.lose("stopped");
    journal.write(Event::Stopped);
}

/// Whether it leads, for other threads.
#[derive(Debug, Default)]
struct OwnTerm {
    /// The token of its term; 0 while it does not lead.
    token: AtomicU64,
    /// When, at the latest, it learns of its loss.
    until: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    token: u64,
    revision: u64,
}

struct Candidate {
    key: String,
    value: String,
    interval: Duration,
    held: Option<Held>,
    own_term: Arc<OwnTerm>,
    journal: Writer,
}

impl Candidate {
    async fn run(&mut self, options: &Options) {
        let kv = open(options).await;
        let mut every = tokio::time::interval(self.interval);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.campaign(&kv).await;
        }
    }

    async fn campaign(&mut self, kv: &kv::Store) {
        let sent = now();
        let value = self.value.clone().into();
        match self.held {
            None => {
                if let Ok(Ok(revision)) = timeout(HANG, kv.create(&self.key, value)).await {
                    self.held = Some(Held { token: revision, revision });
                    self.noticed_by(sent);
                }
            }
            Some(held) => match timeout(HANG, kv.update(&self.key, value, held.revision)).await {
                Ok(Ok(revision)) => {
                    self.held = Some(Held { revision, ..held });
                    self.noticed_by(sent);
                    if self.own_term.token.load(Ordering::SeqCst) == 0 {
                        tokio::time::sleep(SETTLE).await;
                        self.journal.write(Event::Won { token: held.token });
                        self.own_term.token.store(held.token, Ordering::SeqCst);
                    }
                }
                Ok(Err(_)) => self.lose("error"),
                Err(_) => self.lose("timeout"),
            },
        }
    }

    fn noticed_by(&self, sent: u64) {
        let longest = u64::try_from((self.interval + HANG).as_nanos()).unwrap_or(u64::MAX);
        self.own_term.until.store(sent.saturating_add(longest), Ordering::SeqCst);
    }

    fn lose(&mut self, cause: &str) {
        self.held = None;
        let token = self.own_term.token.swap(0, Ordering::SeqCst);
        if token > 0 {
            // The claims of a moment ago bear an earlier instant.
            let cause = cause.to_owned();
            self.journal.write(Event::Lost { token, cause, why: String::new() });
        }
    }
}

async fn open(options: &Options) -> kv::Store {
    loop {
        let connecting = connect_options().ping_interval(Duration::from_secs(2));
        if let Ok(client) = connecting.connect(options.urls.clone()).await
            && let Ok(kv) = jetstream::new(client).get_key_value(&options.bucket).await
        {
            return kv;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
