//! What the histories of the processes must show: the same once more, and no sign of life beyond
//! them.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::{Checker, Violation};
use crate::history::{self, End, Replayed};

/// What all replays came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replays {
    /// Histories that were replayed to their end.
    pub histories: u64,
    /// Events that the protocol took in once more.
    pub events: u64,
    /// Actions that it returned once more.
    pub actions: u64,
    /// Histories that end in the middle of a line, as their process was killed.
    pub torn: u64,
    /// Histories that became too long, and are not complete.
    pub cut: u64,
}

impl Checker {
    /// Replays the history of every process of ours that the log knows of. To be called once, when
    /// all have ended.
    pub fn replay(&mut self, log: &Path) {
        let ours = self.lives.iter().filter(|(_, life)| life.ours && !life.election.is_empty());
        let mut keys: Vec<_> = ours.map(|(key, _)| key.clone()).collect();
        keys.sort();
        for (who, life) in keys {
            let file = history::path(log, &who, life);
            if let Err((t, text)) = self.replay_life(&file, &who, life) {
                let text = format!("{who}/{life}: its history: {text}");
                self.found.push(Violation { t, fault: self.fault_at(t), text });
            }
        }
    }

    fn replay_life(&mut self, file: &Path, who: &str, life: u32) -> Result<(), (u64, String)> {
        let process = &self.lives[&(who.to_owned(), life)];
        let replayed = match history::replay_file(file) {
            Ok(Ok(replayed)) => replayed,
            Ok(Err(difference)) => {
                let history::Difference { line, t, error } = difference;
                return Err((t, format!("line {line}: {error}")));
            }
            // Killed before its campaign began.
            Err(error) if error.kind() == io::ErrorKind::NotFound && process.killed => {
                return Ok(());
            }
            Err(error) => return Err((u64::MAX, error.to_string())),
        };
        let wrong = |text: String| Err((u64::MAX, text));
        match replayed.end {
            End::Finished | End::Cut => {}
            End::Open | End::Torn if process.killed => {}
            end => return wrong(format!("it ends {end:?}, and the process was not killed")),
        }
        if replayed.events > 0 && replayed.election != process.election {
            return wrong(format!("it is of the election {:?}", replayed.election));
        }
        if replayed.end != End::Cut {
            self.compare(&replayed, who, life)?;
        }
        let Replays { histories, events, actions, torn, cut } = &mut self.replays;
        *histories += 1;
        *events += replayed.events;
        *actions += replayed.actions;
        *torn += u64::from(replayed.end == End::Torn);
        *cut += u64::from(replayed.end == End::Cut);
        Ok(())
    }

    /// A process led only in terms that its protocol began, and only before their deadlines.
    fn compare(&self, replayed: &Replayed, who: &str, life: u32) -> Result<(), (u64, String)> {
        let deadlines: HashMap<u64, u64> = replayed.terms.iter().copied().collect();
        for (key, term) in self.terms.iter().filter(|(key, _)| key.who == who && key.life == life) {
            let Some((_, last)) = term.signs else { continue };
            match deadlines.get(&key.token) {
                Some(deadline) if last < *deadline => {}
                Some(_) => {
                    return Err((last, format!("it led with {} after the deadline", key.token)));
                }
                None => {
                    return Err((last, format!("it led with {}, which never began", key.token)));
                }
            }
        }
        Ok(())
    }
}
