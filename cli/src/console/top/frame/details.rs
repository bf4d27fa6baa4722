//! One election: its leader, its candidates in the order of succession, its transitions.

use std::time::Duration;

use ratatui::layout::Rect;
use ratatui::style::Style;

use incumbent::{Advertisement, CandidateInfo};

use super::canvas::{Pane, Theme};
use super::{list, panes};
use crate::console::history::percent;
use crate::console::model::{ElectionView, Moment, set_of, summary};
use crate::console::top::cell::fit;
use crate::console::top::state::Recorded;
use crate::console::top::state::State;
use crate::output::time_format;

/// The width of the names of fields.
const LABEL: u16 = 11;

pub fn draw(state: &State, election: &str, selected: usize, mut pane: Pane<'_>) {
    let (now, theme) = (pane.now, pane.theme);
    pane.put(0, election, theme.title());
    let view = state.model.election(election);
    let mut fields = view.map_or_else(
        || vec![("leader", "none (absent)".to_owned())],
        |view| fields(state, view, now),
    );
    let recorded = state.recorded.of(election);
    fields.extend(recorded.map(|recorded| ("recorded", recorded_text(recorded))));
    let runs = recorded.and_then(Result::ok).and_then(|recorded| recorded.runs.clone());
    fields.extend(runs.map(|runs| ("runs", runs)));
    let mut line = 1;
    for (label, value) in fields {
        pane.put(line, label, Style::new());
        let style = if label == "deadline" { bar_style(view, now, theme) } else { Style::new() };
        pane.right_of(LABEL).put(line, &value, style);
        line += 1;
    }
    let space = u16::from(pane.area.height > 20);
    let mut rest = pane.below(line + space);
    // A third for the transitions, if there is room for both.
    let height = rest.area.height;
    let height = if height >= 8 { height - height / 3 } else { height };
    draw_candidates(state, view, selected, rest.part(Rect { height, ..rest.area }));
    let live = state.model.transitions().filter(|t| t.election == election);
    // The earlier ones are of the recording.
    let first = state.model.transitions().find(|t| t.election == election).map(|t| t.time);
    let earlier = recorded.and_then(Result::ok).into_iter().flat_map(|r| &r.transitions);
    let earlier = earlier.filter(|t| !t.found && first.is_none_or(|first| t.time < first));
    panes::draw_transitions(earlier.chain(live), rest.below(height));
}

/// The statistics of a recording in one line.
fn recorded_text(recorded: Result<&Recorded, &str>) -> String {
    let statistics = match recorded {
        Ok(recorded) => &recorded.statistics,
        Err(failure) => return failure.to_owned(),
    };
    let span = |span: &Duration| time_format::span(*span);
    let gap = statistics.longest_gap.as_ref().map(|(_, length, _)| span(length));
    format!(
        "available {} of {}{}, {} ends of terms{}",
        percent(statistics.led, statistics.leaderless),
        span(&statistics.known()),
        gap.map(|gap| format!(", longest gap {gap}")).unwrap_or_default(),
        statistics.ends(),
        statistics.causes()
    )
}

fn bar_style(view: Option<&ElectionView>, now: Moment, theme: Theme) -> Style {
    let end = view.and_then(|view| Some((view.remaining(now)?, view.deadline()?.lease)));
    end.map_or_else(Style::new, |(left, lease)| theme.bar(left, lease))
}

fn fields(state: &State, view: &ElectionView, now: Moment) -> Vec<(&'static str, String)> {
    let ago = |time| time_format::whole_seconds(now.age(time)) + " ago";
    let mut fields = Vec::new();
    let Some(holder) = view.holder() else {
        let cause = view.vacant().unwrap_or_default();
        fields.push(("leader", format!("none ({cause})")));
        if let Some(span) = view.leaderless(now) {
            fields.push(("leaderless", time_format::span(span)));
        }
        fields.extend(set(state, view));
        return fields;
    };
    let remark = list::remark(view, now).map(|remark| format!(" ({remark})"));
    fields.push(("leader", format!("{}{}", holder.identity, remark.unwrap_or_default())));
    if let Some(pod) = &holder.pod {
        fields.push(("pod", format!("{}, UID {}", pod.phase, pod.uid)));
    }
    if let Some((left, lease)) = view.remaining(now).zip(view.deadline().map(|end| end.lease)) {
        let bar = list::gauge(left, lease);
        let (left, lease) = (list::remaining(left), time_format::span(lease));
        fields.push(("deadline", format!("{bar} {left} of {lease}")));
    }
    let token = holder.token.map(|token| token.to_string());
    fields.extend(token.map(|token| ("token", token)));
    fields.extend(holder.since.map(|since| ("since", ago(time_format::utc(since)))));
    let advertisement = holder.advertisement.as_deref();
    fields.extend(advertisement.map(|found| ("address", found.address().to_owned())));
    let metadata = advertisement.map(Advertisement::metadata).into_iter().flatten();
    let metadata: Vec<String> = metadata.map(|(key, value)| format!("{key}={value}")).collect();
    if !metadata.is_empty() {
        fields.push(("metadata", metadata.join(" ")));
    }
    let site = holder.moves.site.as_deref();
    fields.extend(site.map(|site| ("site", site.to_owned())));
    let pause = holder.paused_until(now.wall.into()).map(time_format::utc);
    fields.extend(pause.map(|until| ("paused", format!("until {}", time_format::rfc3339(until)))));
    fields.extend(set(state, view));
    fields
}

/// The set, if the election is a shard of one.
fn set(state: &State, view: &ElectionView) -> Option<(&'static str, String)> {
    let name = set_of(view.name())?;
    let shards: Vec<&ElectionView> =
        state.model.elections().filter(|known| set_of(known.name()) == Some(name)).collect();
    let set = summary(name, &shards);
    if set.shards < 2 {
        return None; // another election whose name ends in a number
    }
    let loads: Vec<String> =
        set.members.iter().map(|(member, leads)| format!("{member}: {leads}")).collect();
    let text = format!(
        "{}, {} shards, {} without a leader, imbalance {:.1}; {}",
        set.set,
        set.shards,
        set.leaderless.len(),
        set.imbalance,
        loads.join(", ")
    );
    Some(("set", text))
}

fn draw_candidates(
    state: &State,
    view: Option<&ElectionView>,
    selected: usize,
    mut pane: Pane<'_>,
) {
    let (now, theme) = (pane.now, pane.theme);
    let roll = view.and_then(ElectionView::candidates);
    let is_calling = state.calling.is_some();
    let state_of = match (roll, &state.roll_failure) {
        _ if is_calling => "calling the roll".to_owned(),
        (_, Some(failure)) => failure.clone(),
        (Some(roll), None) => {
            let age = time_format::whole_seconds(now.at.saturating_duration_since(roll.read.at));
            format!("{} answered {age} ago", roll.list().len())
        }
        (None, None) => String::new(),
    };
    pane.put(0, &format!("CANDIDATES  {state_of}"), theme.heading());
    let list = roll.map(|roll| roll.list()).unwrap_or_default();
    let shown = usize::from(pane.area.height.saturating_sub(1));
    let offset = selected.saturating_sub(shown.saturating_sub(1)).min(list.len());
    for (index, info) in list.iter().enumerate().skip(offset).take(shown) {
        let line = (index - offset + 1) as u16;
        let mut row = pane.line(line);
        row.put(0, &candidate(info, row.area.width), Style::new());
        if index == selected {
            row.buffer.set_style(row.area, theme.selected());
        }
    }
}

/// A candidate in one line.
fn candidate(info: &CandidateInfo, width: u16) -> String {
    let name = usize::from(width / 3).clamp(12, 40);
    let identity = fit(&info.identity, name);
    let missing = name.saturating_sub(ratatui::text::Span::raw(identity.as_str()).width());
    let role = info.role.as_str().replace('_', " ");
    let site = info.site.as_deref().map(|site| format!("  site {site}")).unwrap_or_default();
    format!(
        "{identity}{}  {role:<12} {:<6} priority {}{site}",
        " ".repeat(missing),
        info.readiness.as_str(),
        info.priority
    )
}
