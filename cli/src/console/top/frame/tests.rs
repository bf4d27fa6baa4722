//! Frames of a scene at several sizes. `UPDATE_EXPECT=1` writes the expected ones.

use std::path::Path;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use expect_test::expect_file;
use incumbent::lock::{Nonce, Readiness, Revision, Role};
use incumbent::{CandidateInfo, Token};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::canvas::text;
use super::*;
use crate::console::model::{Command, Model, Observation, Origin};
use crate::console::top::state::Action;
use crate::console::top::state::{Done, Request};
use crate::error::{CliError, Code};
use crate::lock::elections::{ElectionRecord, ElectionState, Holder, Vacancy};

const SECOND: Duration = Duration::from_secs(1);
/// The wide one only for what is laid out differently there: the list, and the details.
const SIZES: [(u16, u16); 3] = [(80, 24), (40, 10), (120, 40)];

/// Control sequences, marks that change the direction, markup, and 700 bytes.
fn hostile() -> String {
    format!("\u{1b}[2J\u{1b}]0;owned\u{7}\rroot\u{202e}<script>\u{9b}31m{}", "x".repeat(660))
}

fn held(leader: &str, token: u64, ago: Duration, now: Moment) -> ElectionState {
    let since = Some((now.wall - ago).into());
    ElectionState::Held(Holder { since, ..Holder::new(leader, Some(Token(token))) })
}

/// Six elections: one of them changes its leader, one expires, one has a hostile leader.
fn scene() -> (State, Moment) {
    let start = Moment {
        at: Instant::now(),
        wall: OffsetDateTime::from_unix_timestamp(1_700_000_000).expect("a time"),
    };
    let lease = Some(SECOND * 10);
    let origin = Origin {
        cause_of_absence: Vacancy::Expired,
        has_lock_times: true,
        lease,
        is_named: false,
        watched_for: Duration::ZERO,
    };
    let mut model = Model::new(origin);
    let mut revision = 0;
    let mut status = |election: &str, state, at: Moment| {
        revision += 1;
        let written = Some(at.wall.into());
        let (election, revision) = (election.to_owned(), Revision(revision));
        ElectionRecord { election, revision, written, state }
    };
    let after = |span| Moment { at: start.at + span, wall: start.wall + span };
    let name = "a-rather-long-name-of-an-election-in-some-department";
    let all = vec![
        status("billing", held("host-1", 7, SECOND * 90, start), start),
        status("hostile", held(&hostile(), 8, SECOND, start), start),
        status(name, held("host-2", 1_795_439_158_403_439, SECOND * 7200, start), start),
        status("reports", held("größer 日本", 9, SECOND * 30, start), start),
        status("shards.0", held("host-1", 10, SECOND * 90_000, start), start),
        status("shards.1", held("host-2", 11, SECOND * 90_000, start), start),
    ];
    model.observe(Observation::all(all, start.at), start);
    let mut write = |election: &str, state, at| {
        model.observe(Observation::Written(status(election, state, at)), at);
    };
    write("billing", ElectionState::Vacant("handed_over".into()), after(SECOND));
    let taken = after(SECOND + Duration::from_millis(3));
    write("billing", held("host-2", 12, Duration::ZERO, taken), taken);
    write("shards.1", held("host-2", 11, SECOND * 90_000, start), after(SECOND * 7));
    write("reports", ElectionState::Vacant(Vacancy::Expired), after(SECOND * 8));
    let mut state = State::new("Bucket B, TTL 10s".to_owned(), Vec::new(), model);
    state.on_time(after(SECOND * 9));
    (state, after(SECOND * 9))
}

fn press(state: &mut State, keys: &str) -> Vec<Action> {
    let code = |key| match key {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        'v' => KeyCode::Down,
        '>' => KeyCode::Right,
        '<' => KeyCode::Left,
        key => KeyCode::Char(key),
    };
    keys.chars().filter_map(|key| state.on_key(KeyEvent::from(code(key)))).collect()
}

fn frame(state: &mut State, now: Moment, size: (u16, u16), theme: Theme) -> Buffer {
    fit(state, size.0, size.1);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a terminal");
    terminal.draw(|frame| draw(state, now, theme, frame.buffer_mut())).expect("a frame");
    terminal.backend().buffer().clone()
}

const PLAIN: Theme = Theme { has_colors: false };

/// Compares the frames of a state with those in `snapshots`.
fn check(name: &str, state: &mut State, now: Moment) {
    let is_wide = matches!(name, "list" | "details");
    for size in SIZES.into_iter().take(if is_wide { 3 } else { 2 }) {
        let buffer = frame(state, now, size, PLAIN);
        let lines: Vec<String> = (0..size.1).map(|line| text(&buffer, line)).collect();
        let drawn = lines.join("\n") + "\n";
        assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'), "{drawn:?}");
        let directory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console/top/frame/snapshots");
        expect_file![directory.join(format!("{name}-{}x{}.txt", size.0, size.1))].assert_eq(&drawn);
    }
}

#[test]
fn list_shows_leaders_deadlines_and_transitions() {
    let (mut state, now) = scene();
    check("list", &mut state, now);
}

#[test]
fn list_is_filtered_and_sorted() {
    let (mut state, now) = scene();
    press(&mut state, "ssfHOST-2");
    check("filter", &mut state, now);
    press(&mut state, "\n\u{1b}");
    assert_eq!(state.rows().first().map(|row| row.name), Some("reports"), "it has no leader");
    press(&mut state, "S");
    assert_eq!(state.rows().last().map(|row| row.name), Some("reports"));
}

#[test]
fn search_selects_the_next_match() {
    let (mut state, _) = scene();
    let selected = |state: &State| state.current().map(|row| row.name.to_owned());
    for (keys, name) in [("/shards\n", "shards.0"), ("n", "shards.1"), ("n", "shards.0")] {
        press(&mut state, keys);
        assert_eq!(selected(&state).as_deref(), Some(name), "{keys}");
    }
    press(&mut state, "/no such\n");
    assert_eq!(selected(&state).as_deref(), Some("shards.0"));
    assert!(state.message.as_deref().is_some_and(|message| message.contains("not found")));
}

#[test]
fn details_show_the_candidates_in_order() {
    let (mut state, now) = scene();
    let requested = press(&mut state, "/shards.1\n\n");
    assert!(
        matches!(&requested[..], [Action::Request(Request::Ask(name, Command::CallRoll))] if name == "shards.1")
    );
    check("calling", &mut state, now);
    let candidate = |identity: &str, nonce, role, readiness| {
        let mut info = CandidateInfo::new(identity, Nonce(nonce));
        (info.role, info.readiness) = (role, readiness);
        info
    };
    let roll = vec![
        candidate("host-3", 1, Role::Standby, Readiness::Unhealthy),
        candidate("host-1", 2, Role::Standby, Readiness::Ready),
        candidate(&hostile(), 3, Role::CoolingDown, Readiness::Cordoned),
        candidate("host-2", 4, Role::Draining, Readiness::Ready),
    ];
    state.on_done(Done::Roll { election: "shards.1".to_owned(), answers: Ok(roll) }, now);
    press(&mut state, "v");
    check("details", &mut state, now);
    press(&mut state, "m");
    check("move", &mut state, now);
    let moved = press(&mut state, ">\n");
    let [Action::Request(Request::Ask(_, Command::Move(term, to)))] = &moved[..] else {
        panic!("{moved:?}")
    };
    assert_eq!((&*term.identity, to.as_deref()), ("host-2", Some("host-1")));
}

#[test]
fn change_needs_a_confirmation() {
    let (mut state, now) = scene();
    press(&mut state, "/hostile\n");
    for other in ["n", "y", "\n", "\u{1b}", "q", "e", "y\n", "><\n", ">y\n"] {
        press(&mut state, "e");
        assert!(state.question.is_some());
        let asked = press(&mut state, other);
        let is_change = |action: &Action| matches!(action, Action::Request(Request::Ask(_, asked)) if !matches!(asked, Command::CallRoll));
        assert!(!asked.iter().any(is_change), "{other:?}");
        assert!(state.question.is_none());
        state.screen = Screen::List;
    }
    for pasted in ["e\n", "my_app\n", "m"] {
        state.on_paste(pasted);
        assert!(state.question.is_none() && state.input.is_none(), "{pasted}");
    }
    press(&mut state, "e");
    check("evict", &mut state, now);
    let evicted = press(&mut state, ">\n");
    let [Action::Request(Request::Ask(election, Command::Evict(term)))] = &evicted[..] else {
        panic!("{evicted:?}")
    };
    assert_eq!((&**election, &*term.identity), ("hostile", &*hostile()));
    // One change at a time.
    press(&mut state, "e");
    assert!(state.question.is_none());
    state.on_done(Done::Change(Ok("done".to_owned())), now);
    press(&mut state, "/reports\ne");
    assert_eq!(state.message.as_deref(), Some("no leader to evict"));
}

#[test]
fn failing_lock_is_one_line() {
    let (mut state, now) = scene();
    let message = format!("cannot reach {}", hostile());
    let failure = || Err(CliError::new(Code::Unreachable, message.clone()));
    assert!(state.on_observation(failure(), now));
    check("failing", &mut state, now);
    state.on_observation(Ok(Observation::all(Vec::new(), now.at)), now);
    assert_eq!(state.failing, None);
}

#[test]
fn help_lists_the_keys() {
    let (mut state, now) = scene();
    press(&mut state, "?");
    check("help", &mut state, now);
    press(&mut state, "q");
    assert_eq!(state.screen, Screen::List);
    assert!(matches!(press(&mut state, "q")[..], [Action::Quit]));
}

#[test]
fn only_colors_of_the_terminal_are_used() {
    let (mut state, now) = scene();
    for has_colors in [true, false] {
        let buffer = frame(&mut state, now, (80, 24), Theme { has_colors });
        let colors: Vec<Color> = buffer.content.iter().map(|cell| cell.fg).collect();
        assert!(buffer.content.iter().all(|cell| cell.bg == Color::Reset));
        assert!(colors.iter().all(|color| !matches!(color, Color::Rgb(..) | Color::Indexed(_))));
        assert_eq!(colors.iter().any(|color| *color != Color::Reset), has_colors);
        assert!(buffer.content.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
    }
}

#[test]
fn selected_row_is_visible_at_every_size() {
    let (mut state, now) = scene();
    for (width, height) in [(1, 1), (0, 0), (3, 2), (80, 5), (40, 7), (500, 3), (20, 300)] {
        for keys in ["G", "g", "?", "q", "\n", "\u{1b}", "e", "n"] {
            press(&mut state, keys);
            frame(&mut state, now, (width, height), PLAIN);
            let selected = state.selected_index(&state.rows());
            let rows = state.offset..state.offset + usize::from(height.max(1));
            assert!(rows.contains(&selected), "{selected} in {rows:?} at {width}x{height}");
        }
    }
}

/// Whatever is pressed and seen, at any size, a frame is drawn.
#[test]
fn any_keys_and_sizes_have_a_frame() {
    const KEYS: &str = "qjkgGf/nNsSr emy?v\n\u{1b}x";
    let keys: Vec<char> = KEYS.chars().collect();
    bolero::check!().with_type::<Vec<(u8, u8, u8)>>().with_iterations(50).for_each(|steps| {
        let (mut state, now) = scene();
        for (key, width, height) in steps.iter().take(40) {
            let key = keys[usize::from(*key) % keys.len()];
            press(&mut state, &key.to_string());
            if key == 'x' {
                let roll = vec![CandidateInfo::new("host-9", Nonce(u64::from(*width)))];
                let done = Done::Roll { election: "shards.1".to_owned(), answers: Ok(roll) };
                state.on_done(done, now);
            }
            frame(&mut state, now, (u16::from(*width), u16::from(*height) / 4), PLAIN);
        }
    });
}

#[test]
fn lines_of_one_frame_are_no_wider_than_the_terminal() {
    let (state, now) = scene();
    let text = lines(&state, now, 80);
    assert_eq!(text.len(), 9);
    assert!(text[2].starts_with("ELECTION"), "{text:?}");
    for width in [20, 40, 80, 200] {
        for line in lines(&state, now, width) {
            assert!(ratatui::text::Span::raw(line.as_str()).width() <= width.into(), "{line}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}
