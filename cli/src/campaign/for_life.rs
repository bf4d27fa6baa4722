//! A candidate for life: `campaign --kind for-life`.

use std::future::IntoFuture;
use std::io;

use incumbent::kubernetes::LifeState;
use serde_json::{Value, json};

use super::output::Output;
use crate::candidate::{CandidateArgs, StopSignals};
use crate::error::CliError;
use crate::lock_args::LifeObjects;

/// A transition to print.
enum Line {
    Waiting(String),
    Won { token: u64, resumed: bool },
    Lost,
}

/// Campaigns until interrupted, and again after the lock was taken. The lock stays with the pod.
pub async fn run(
    args: &CandidateArgs,
    locks: &LifeObjects,
    output: Output,
    signals: &mut StopSignals,
) -> Result<(), CliError> {
    let campaign = async {
        let mut last = String::new();
        loop {
            let candidate = args.for_life(locks)?;
            let mut status = candidate.status();
            let mut leadership = candidate.into_future();
            let leadership = loop {
                tokio::select! {
                    biased;
                    leadership = &mut leadership => break leadership?,
                    Some(LifeState::Waiting { reason }) = status.changed() => {
                        if !reason.is_empty() && *reason != *last {
                            last = reason.to_string();
                            print(output, Line::Waiting(last.clone()))?;
                        }
                    }
                }
            };
            let (token, resumed) = (leadership.token().0, leadership.resumed());
            print(output, Line::Won { token, resumed })?;
            leadership.lost().await;
            print(output, Line::Lost)?;
        }
    };
    tokio::select! {
        end = campaign => end,
        signal = signals.next() => Err(CliError::Signal(signal)),
    }
}

fn print(output: Output, line: Line) -> io::Result<()> {
    output.print(match output {
        Output::Json => line.json().to_string(),
        Output::Text => line.text(),
    })
}

impl Line {
    fn text(&self) -> String {
        match self {
            Self::Waiting(reason) => format!("waiting: {reason}"),
            Self::Won { token, resumed } => {
                let resumed =
                    if *resumed { ", resumed from an earlier container of this pod" } else { "" };
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
