//! The rows of the list: filtered, sorted, and one of them selected.

use std::cmp::Ordering;

use super::{Action, Screen, State};
use crate::view::ElectionView;

/// The order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Name,
    Leader,
    /// Those without a leader first, then those whose deadline is next.
    Deadline,
    /// The youngest term first.
    Since,
    Token,
}

impl Sort {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "election",
            Self::Leader => "leader",
            Self::Deadline => "deadline",
            Self::Since => "since",
            Self::Token => "token",
        }
    }

    pub fn next(self) -> Self {
        match self {
            Self::Name => Self::Leader,
            Self::Leader => Self::Deadline,
            Self::Deadline => Self::Since,
            Self::Since => Self::Token,
            Self::Token => Self::Name,
        }
    }
}

/// An election of the list; without a view if it has no entry.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub name: &'a str,
    pub view: Option<&'a ElectionView>,
}

impl Row<'_> {
    /// Whether a text contains this one, in lower case.
    fn contains(&self, lower: &str) -> bool {
        let holder = self.view.and_then(ElectionView::holder);
        let address = holder.and_then(|holder| holder.advertisement.as_deref());
        let texts = [
            Some(self.name),
            holder.map(|holder| holder.leader.as_str()),
            address.map(incumbent::Advertisement::address),
        ];
        texts.into_iter().flatten().any(|text| text.to_lowercase().contains(lower))
    }

    fn cmp(&self, other: &Self, by: Sort) -> Ordering {
        let (a, b) = (self.view, other.view);
        let holders = (a.and_then(ElectionView::holder), b.and_then(ElectionView::holder));
        let order = match by {
            Sort::Name => Ordering::Equal,
            Sort::Leader => {
                let leaders = holders.0.map(|h| &h.leader);
                leaders.cmp(&holders.1.map(|h| &h.leader))
            }
            Sort::Deadline => {
                let key = |view: Option<&ElectionView>| {
                    let deadline = view.and_then(ElectionView::deadline).map(|end| end.at);
                    // A leader without a lease has no deadline: last.
                    (view.is_some_and(|view| view.holder().is_some()), deadline.is_none(), deadline)
                };
                key(a).cmp(&key(b))
            }
            Sort::Since => {
                let (a, b) = (holders.0.and_then(|h| h.since), holders.1.and_then(|h| h.since));
                b.cmp(&a)
            }
            Sort::Token => {
                let tokens = holders.0.and_then(|h| h.token);
                tokens.cmp(&holders.1.and_then(|h| h.token))
            }
        };
        order.then_with(|| self.name.cmp(other.name))
    }
}

impl State {
    /// The rows that the filter lets through, in order.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let found = self.model.elections().map(|view| Row { name: view.name(), view: Some(view) });
        let absent = self.absent().map(|name| Row { name, view: None });
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<Row<'_>> = found
            .chain(absent)
            .filter(|row| self.filter.is_empty() || row.contains(&filter))
            .collect();
        rows.sort_by(|a, b| {
            let order = a.cmp(b, self.sort);
            if self.is_reversed { order.reverse() } else { order }
        });
        rows
    }

    /// The index of the selected one of all rows: the first one, if the selected election is gone.
    pub fn selected_index(&self, rows: &[Row<'_>]) -> usize {
        let selected = self.selected.as_deref();
        rows.iter().position(|row| Some(row.name) == selected).unwrap_or_default()
    }

    /// The election that keys act on.
    pub fn current(&self) -> Option<Row<'_>> {
        match &self.screen {
            Screen::Details { election, .. } => {
                let view = self.model.election(election);
                Some(Row { name: election, view })
            }
            Screen::List | Screen::Help => {
                let rows = self.rows();
                rows.get(self.selected_index(&rows)).copied()
            }
        }
    }

    /// Selects the row so many rows further.
    pub(super) fn move_by(&mut self, rows: isize) {
        let all = self.rows();
        let last = all.len().saturating_sub(1);
        let index = self.selected_index(&all).saturating_add_signed(rows).min(last);
        self.selected = all.get(index).map(|row| row.name.to_owned());
    }

    pub(super) fn select(&mut self, index: usize) {
        self.selected = self.rows().get(index).map(|row| row.name.to_owned());
    }

    /// Selects the next row, or the one before, that contains what is searched.
    pub(super) fn find(&mut self, is_forward: bool) -> Option<Action> {
        let rows = self.rows();
        let (count, from) = (rows.len(), self.selected_index(&rows));
        let search = self.search.to_lowercase();
        let steps = 1..=count;
        let at = |step: usize| match is_forward {
            true => (from + step) % count,
            false => (from + count - step) % count,
        };
        let found = steps.map(at).map(|index| rows[index]).find(|row| row.contains(&search));
        match found.map(|row| row.name.to_owned()) {
            Some(name) => self.selected = Some(name),
            None => self.message = Some(format!("not found: {}", self.search)),
        }
        None
    }

    pub(super) fn page_size(&self) -> isize {
        isize::try_from(self.page).unwrap_or(isize::MAX)
    }
}
