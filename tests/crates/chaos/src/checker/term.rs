//! What is kept of a term, and of a process.

/// Whose term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub who: String,
    pub life: u32,
    pub token: u64,
}

/// A term, as its own process reported it.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub election: String,
    pub ours: bool,
    /// The first and the last instant at which it led.
    pub signs: Option<(u64, u64)>,
    pub won: Option<u64>,
    pub lost: Option<(u64, String)>,
}

impl Term {
    pub fn new(election: String, ours: bool) -> Self {
        Self { election, ours, signs: None, won: None, lost: None }
    }

    pub fn sign(&mut self, t: u64) {
        let (first, last) = self.signs.unwrap_or((t, t));
        self.signs = Some((first.min(t), last.max(t)));
    }

    /// From its first to its last sign, the report "won" included.
    pub fn reported(&self) -> Option<(u64, u64)> {
        let begin = self.won.or(self.signs.map(|(first, _)| first))?;
        let last = self.signs.map_or(begin, |(_, last)| last);
        let end = self.lost.as_ref().map_or(last, |(t, _)| *t);
        Some((begin, end.max(begin)))
    }
}

/// A process.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub election: String,
    pub ours: bool,
    /// The term that was reported, and whose end was not.
    pub holds: Option<u64>,
    pub ended: bool,
    pub killed: bool,
}

impl Life {
    pub fn started(&mut self, election: &str, ours: bool) {
        election.clone_into(&mut self.election);
        self.ours = ours;
    }

    pub fn won(&mut self, token: u64) -> Result<(), String> {
        match self.holds.replace(token) {
            None => Ok(()),
            Some(held) => Err(format!("won {token} without having lost {held}")),
        }
    }

    pub fn lost(&mut self, token: u64, cause: &str) -> Result<(), String> {
        match self.holds.take() {
            Some(held) if held == token && !cause.is_empty() => Ok(()),
            Some(held) if held == token => Err(format!("lost {token} without a cause")),
            Some(held) => Err(format!("lost {token} while it held {held}")),
            None => Err(format!("lost {token} without having won it")),
        }
    }
}
