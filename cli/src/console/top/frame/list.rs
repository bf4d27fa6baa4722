//! The list of elections.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::canvas::{Pane, Theme, text};
use crate::console::model::{ElectionView, Moment};
use crate::console::top::cell::fit;
use crate::console::top::state::{Row, State};
use crate::output::time_format;

/// The lines above the rows: lock, counts, headings.
pub const HEAD: u16 = 3;
/// How many characters a bar has, with its ends.
const BAR: u16 = 12;
/// The width of the time that is left.
const LEFT: u16 = 7;
/// The width of the age of a term.
const SINCE: u16 = 9;
/// The width that elections and leaders need together.
const NAMES: u16 = 36;

/// The columns that fit, with their widths.
struct Columns {
    name: u16,
    leader: u16,
    address: u16,
    token: u16,
    since: u16,
    bar: u16,
}

impl Columns {
    fn of(width: u16, rows: &[Row<'_>]) -> Self {
        let has_address = rows.iter().any(|row| address(*row).is_some());
        let widest = rows.iter().filter_map(|row| token(*row)).map(|token| token.len()).max();
        let widest = u16::try_from(widest.unwrap_or_default()).unwrap_or(u16::MAX).max(5);
        let bar = if width >= 50 { BAR + 1 } else { 0 };
        let since = if width >= 60 { SINCE + 1 } else { 0 };
        let rest = width.saturating_sub(bar + since + LEFT + 2);
        // A part of a token says nothing.
        let token = if rest > NAMES + widest { widest + 1 } else { 0 };
        let rest = rest - token;
        let address = if has_address && rest > 2 * NAMES { rest / 3 } else { 0 };
        let rest = rest - address;
        let of = |width: u16| width.saturating_sub(1);
        let (address, token, since, bar) = (of(address), of(token), of(since), of(bar));
        Self { name: rest / 2, leader: rest - rest / 2, address, token, since, bar }
    }
}

/// Draws the lock, the counts and the rows.
pub fn draw(state: &State, mut pane: Pane<'_>) {
    let (area, theme) = (pane.area, pane.theme);
    let rows = state.rows();
    pane.put(0, &state.title, theme.title());
    let is_failing = rows.iter().any(|row| row.view.is_none_or(|view| view.holder().is_none()));
    let style = if is_failing { theme.warning() } else { Style::new() };
    pane.put(1, &counts(state, &rows), style);
    let fitting = usize::from(area.height.saturating_sub(HEAD));
    let shown = &rows[state.offset.min(rows.len())..];
    let shown = &shown[..fitting.min(shown.len())];
    let columns = Columns::of(area.width, shown);
    draw_heads(&columns, pane.line(2));
    let selected = state.selected_index(&rows);
    for (index, row) in shown.iter().enumerate() {
        let mut line = pane.line(HEAD + index as u16);
        draw_row(*row, &columns, line.part(line.area));
        if state.offset + index == selected {
            line.buffer.set_style(line.area, theme.selected());
        }
    }
}

/// All rows as text.
pub fn lines(state: &State, now: Moment, width: u16) -> Vec<String> {
    let rows = state.rows();
    let columns = Columns::of(width, &rows);
    let theme = Theme { has_colors: false };
    let area = Rect::new(0, 0, width, 1);
    let line = |draw: &dyn Fn(Pane<'_>)| {
        let mut buffer = Buffer::empty(area);
        draw(Pane { buffer: &mut buffer, area, now, theme });
        text(&buffer, 0)
    };
    let mut lines = vec![
        line(&|mut pane| pane.put(0, &state.title, Style::new())),
        line(&|mut pane| pane.put(0, &counts(state, &rows), Style::new())),
        line(&|pane| draw_heads(&columns, pane)),
    ];
    lines.extend(rows.iter().map(|row| line(&|pane| draw_row(*row, &columns, pane))));
    lines
}

fn counts(state: &State, rows: &[Row<'_>]) -> String {
    let led = rows.iter().filter(|row| row.view.is_some_and(|view| view.holder().is_some()));
    let led = led.count();
    let mut text = match rows.len() {
        1 => "1 election".to_owned(),
        count => format!("{count} elections"),
    };
    text += &format!(", {} without a leader", rows.len() - led);
    let order = if state.is_reversed { ", reversed" } else { "" };
    text += &format!(", sorted by {}{order}", state.sort.as_str());
    if !state.filter.is_empty() {
        text += &format!(", filter: {}", state.filter);
    }
    text
}

fn draw_heads(columns: &Columns, mut pane: Pane<'_>) {
    let cells = ["ELECTION", "LEADER", "ADDRESS", "TOKEN", "SINCE", "DEADLINE", "LEFT"];
    draw_cells(cells.map(|head| (head.to_owned(), Style::new())), columns, &mut pane);
    pane.buffer.set_style(pane.area, pane.theme.heading());
}

fn draw_row(row: Row<'_>, columns: &Columns, mut pane: Pane<'_>) {
    let (now, theme) = (pane.now, pane.theme);
    let view = row.view;
    let (leader, style) = leader(row, now, theme);
    let since = view.and_then(|view| match view.holder() {
        Some(holder) => holder.since.map(|since| now.age(time_format::utc(since))),
        None => view.leaderless(now),
    });
    let since = since.map(|span| time_format::span(Duration::from_secs(span.as_secs())));
    let deadline = view.and_then(|view| Some((view.remaining(now)?, view.deadline()?.lease)));
    let (bar, left, bar_style) = match deadline {
        Some((left, lease)) => (gauge(left, lease), remaining(left), theme.bar(left, lease)),
        None => (String::new(), String::new(), Style::new()),
    };
    let plain = Style::new();
    let cells = [
        (row.name.to_owned(), plain),
        (leader, style),
        (address(row).unwrap_or_default().to_owned(), plain),
        (token(row).unwrap_or_default(), plain),
        (since.unwrap_or_default(), plain),
        (bar, bar_style),
        (left, bar_style),
    ];
    draw_cells(cells, columns, &mut pane);
}

fn draw_cells(cells: [(String, Style); 7], columns: &Columns, pane: &mut Pane<'_>) {
    let area = pane.area;
    let Columns { name, leader, address, token, since, bar } = *columns;
    let mut x = area.x;
    for ((text, style), width) in
        cells.into_iter().zip([name, leader, address, token, since, bar, LEFT])
    {
        if width == 0 {
            continue;
        }
        let room = area.right().saturating_sub(x).min(width);
        if area.height > 0 && room > 0 {
            pane.buffer.set_stringn(x, area.y, fit(&text, room.into()), room.into(), style);
        }
        x = x.saturating_add(width + 1);
    }
}

/// The leader, and what is wrong with it.
fn leader(row: Row<'_>, now: Moment, theme: Theme) -> (String, Style) {
    let Some(view) = row.view else { return ("none (absent)".to_owned(), theme.bad()) };
    if let Some(cause) = view.vacant() {
        return (format!("none ({cause})"), theme.bad());
    }
    let leader = view.holder().map(|holder| holder.identity.clone()).unwrap_or_default();
    match remark(view, now) {
        Some(remark) => (format!("{leader} ({remark})"), theme.warning()),
        None => (leader, Style::new()),
    }
}

/// What is unusual about a leader.
pub fn remark(view: &ElectionView, now: Moment) -> Option<String> {
    let holder = view.holder()?;
    let roll = view.candidates();
    let stated = roll.and_then(|roll| roll.of(holder));
    let is_gone = holder.pod.as_ref().is_some_and(|pod| pod.gone);
    let remarks = [
        is_gone.then_some("gone"),
        (view.remaining(now) == Some(Duration::ZERO)).then_some("overdue"),
        stated.map(|info| info.role.as_str()).filter(|role| *role != "leader"),
        stated.map(|info| info.readiness.as_str()).filter(|readiness| *readiness != "ready"),
        holder.paused_until(now.wall.into()).map(|_| "paused"),
    ];
    let remarks: Vec<&str> = remarks.into_iter().flatten().collect();
    (!remarks.is_empty()).then(|| remarks.join(", "))
}

fn address(row: Row<'_>) -> Option<&str> {
    Some(row.view?.holder()?.advertisement.as_ref()?.address())
}

fn token(row: Row<'_>) -> Option<String> {
    Some(row.view?.holder()?.token?.to_string())
}

/// What is left of a lease, as a bar.
pub fn gauge(left: Duration, lease: Duration) -> String {
    let cells = usize::from(BAR - 2);
    let share = left.as_secs_f64() / lease.as_secs_f64().max(f64::MIN_POSITIVE);
    let full = ((share * cells as f64).ceil() as usize).min(cells);
    format!("[{}{}]", "|".repeat(full), " ".repeat(cells - full))
}

/// What is left of a lease, in a few characters.
pub fn remaining(left: Duration) -> String {
    match left.as_secs() {
        0..100 => format!("{:.1}s", left.as_secs_f64()),
        _ => time_format::whole_seconds(left),
    }
}
