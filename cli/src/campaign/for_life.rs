//! Standing for life: `campaign --kind for-life`.

use std::future::IntoFuture;
use std::io::{self, Write};

use incumbent::kubernetes::{LifeState, leader_for_life};
use serde_json::{Value, json};

use super::{Campaign, Output};
use crate::candidate::Ends;
use crate::error::{Code, Failure};
use crate::lock_args::Locks;
use crate::output::{plain_json, printable};

/// What is printed.
enum Line {
    Waiting(String),
    Won { token: u64, resumed: bool },
    Lost,
}

impl Campaign {
    /// Stands until interrupted; again where the lock was taken. The lock stays with the pod.
    pub(super) async fn run_for_life(&self, locks: &Locks, ends: &mut Ends) -> Result<(), Failure> {
        let name = &*self.candidacy.name;
        if let Some(flag) = self.candidacy.given() {
            let message = format!("{flag} says nothing with --kind for-life");
            return Err(Failure::new(Code::Usage, message));
        }
        locks.check_name(name)?;
        let stand = async {
            let mut told = String::new();
            loop {
                let mut candidate =
                    leader_for_life(name, &locks.cluster).carrier(locks.kind.carrier());
                if let Some(pod) = self.candidacy.identity() {
                    candidate = candidate.pod(pod);
                }
                let mut news = candidate.status();
                let mut leadership = candidate.into_future();
                let leadership = loop {
                    tokio::select! {
                        biased;
                        leadership = &mut leadership => break leadership?,
                        Some(LifeState::Waiting { reason }) = news.changed() => {
                            if !reason.is_empty() && *reason != *told {
                                told = reason.to_string();
                                self.print_line(Line::Waiting(told.clone()))?;
                            }
                        }
                    }
                };
                let (token, resumed) = (leadership.token().0, leadership.resumed());
                self.print_line(Line::Won { token, resumed })?;
                leadership.lost().await;
                self.print_line(Line::Lost)?;
            }
        };
        tokio::select! {
            end = stand => end,
            signal = ends.next() => Err(Failure::Signal(signal)),
        }
    }

    fn print_line(&self, line: Line) -> io::Result<()> {
        let line = match self.output {
            Output::Json => plain_json(line.json().to_string()),
            Output::Text => printable(&line.text()),
        };
        writeln!(io::stdout(), "{line}")
    }
}

impl Line {
    fn text(&self) -> String {
        match self {
            Self::Waiting(reason) => format!("waiting: {reason}"),
            Self::Won { token, resumed } => {
                let resumed =
                    if *resumed { ", as an earlier container of this pod did" } else { "" };
                format!("won: leading with token {token}{resumed}")
            }
            Self::Lost => "lost: the lock was taken".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Waiting(reason) => json!({"event": "waiting", "message": reason}),
            Self::Won { token, resumed } => {
                json!({"event": "won", "token": token, "resumed": resumed})
            }
            Self::Lost => json!({"event": "lost", "cause": "evicted"}),
        }
    }
}
