//! `top`: the program on terminals of several sizes, against real servers.

use std::time::Duration;

use incumbent_test_support::{Server, eventually};

use crate::screen::{Screen, has_line};
use crate::shell::{BUCKET, Running, Shell};

/// Reads lines until this candidate is one of the election.
fn joined(mut candidate: Running, leader: &str) -> Running {
    candidate.line_with(&format!("leader: {leader}"));
    candidate
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_leadership_are_live_at_every_size() {
    let (_server, shell) = Shell::serving().await;
    let mut first = shell.campaign("my_app", "first");
    first.line_with("won");
    let second = joined(shell.campaign("my_app", "second"), "first");
    let sizes = [(80, 24), (120, 40), (40, 10)];
    let screens = sizes.map(|size| Screen::start(&shell, &["top"], size));
    for screen in &screens {
        screen.wait_for(&["my_app", "first"]);
    }
    first.end_with("KILL");
    for screen in &screens {
        screen.wait_for(&["my_app", "second"]);
    }
    for screen in &screens[..2] {
        let shown = screen.wait_for(&["my_app: second leads", "ms without a leader"]);
        assert!(
            has_line(&shown, &["first did not renew: expired", "after its last renewal"]),
            "{shown}"
        );
        assert!(has_line(&shown, &["my_app", "second", "[", "]"]), "no bar: {shown}");
    }

    let _third = joined(shell.campaign("my_app", "third"), "second");
    // The smallest one evicts. It asks, and what is typed or pasted is a no.
    let small = &screens[2];
    small.press("ey");
    small.wait_for(&["aborted"]);
    small.press("e\r");
    small.wait_for(&["aborted"]);
    small.press("\u{1b}[200~e\u{1b}[C\r\u{1b}[201~");
    small.press("e");
    small.wait_for(&["Evict second, who leads my_app?", "[Cancel]", "Evict"]);
    small.press("\u{1b}[C");
    small.wait_for(&["[Evict]"]);
    small.press("\r");
    small.wait_for(&["evicted second from my_app"]);
    for screen in &screens {
        screen.wait_for(&["my_app", "third"]);
    }
    screens[0].wait_for(&["second was evicted"]);

    // The details call the roll: a standby is selected, and takes over. It may answer a call too
    // late.
    screens[1].press("\r");
    let standby = ["second", "standby", "ready"];
    eventually("a standby answers", async || {
        let answers = screens[1].shows_within(Duration::from_secs(3), &standby);
        if !answers {
            screens[1].press("r");
        }
        answers.then_some(())
    })
    .await;
    screens[1].press("j");
    eventually("the leader hands over", async || {
        screens[1].press("m");
        screens[1].wait_for(&["Move my_app from third to second?", "[Cancel]"]);
        screens[1].press("\u{1b}[C\r");
        let moved = "my_app: handing over to second";
        let ends = [moved, "no candidate that may lead next is ready", "does not answer"];
        let shown = screens[1].wait_until("the answer of the leader", |screen| {
            let text = screen.contents();
            ends.iter().any(|end| text.contains(end))
        });
        shown.contains(moved).then_some(())
    })
    .await;
    for screen in [&screens[0], &screens[2]] {
        screen.wait_for(&["my_app", "second"]);
    }
    screens[1].wait_for(&["leader", "second"]);

    screens[0].resize(60, 12);
    screens[0].wait_until("a frame of the new size", |screen| {
        let text = screen.contents();
        text.lines().count() == 12 && has_line(&text, &["? help"]) && has_line(&text, &["second"])
    });
    drop(second);
}

#[tokio::test]
async fn terminal_is_restored_however_the_view_ends() {
    let (_server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let ends = [
        ("q", "", 0),
        ("\u{3}", "", 0),
        ("", "TERM", 143),
        ("", "INT", 130),
        ("", "HUP", 129),
        ("", "QUIT", 131),
    ];
    for (keys, signal, code) in ends {
        let screen = Screen::start(&shell, &["top", "e"], (80, 24));
        screen.wait_for(&["e ", "one"]);
        assert!(!screen.is_restored());
        screen.press(keys);
        if !signal.is_empty() {
            screen.signal(signal);
        }
        assert_eq!(screen.wait(), Some(code), "{keys:?} {signal}");
        screen.wait_until("the screen of before", |screen| !screen.alternate_screen());
        assert!(screen.is_restored(), "{keys:?} {signal}");
    }
}

/// As in a connection that hangs: the program waits for the terminal, and a signal ends it.
#[tokio::test]
async fn signal_ends_a_view_whose_terminal_takes_no_output() {
    let (_server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let screen = Screen::start(&shell, &["top"], (200, 50));
    screen.wait_for(&["e ", "one"]);
    screen.hang();
    // Each key draws a full screen.
    screen.press(&"\u{c}".repeat(200));
    let (mut before, mut looks) = (0, 0);
    eventually("no more is taken", async || {
        let now = screen.pending();
        looks = if now > 0 && std::mem::replace(&mut before, now) == now { looks + 1 } else { 0 };
        (looks == 50).then_some(()) // longer than any pause between two frames
    })
    .await;
    screen.signal("TERM");
    assert_eq!(screen.wait(), Some(143));
}

#[tokio::test]
async fn colors_are_those_of_the_terminal_and_can_be_off() {
    let (server, _shell) = Shell::with_leaders(&[("e", "one")]).await;
    for (variable, flag, has_colors) in [
        ("X", "auto", true),
        ("NO_COLOR", "auto", false),
        ("X", "never", false),
        ("NO_COLOR", "always", true),
    ] {
        let shell = Shell::at(&server).with(variable, "1");
        let screen = Screen::start(&shell, &["top", "--color", flag], (80, 24));
        screen.wait_for(&["e ", "one", "["]);
        screen.wait_until("the bar, and no background", |screen| {
            let cells = (0..24).flat_map(|line| (0..80).map(move |column| (line, column)));
            let cells: Vec<_> =
                cells.filter_map(|(line, column)| screen.cell(line, column)).collect();
            let is_plain = |color| color == vt100::Color::Default;
            cells.iter().any(|cell| !is_plain(cell.fgcolor())) == has_colors
                && cells.iter().all(|cell| is_plain(cell.bgcolor()))
        });
    }
}

#[tokio::test]
async fn stopped_view_gives_the_terminal_back_and_continues() {
    let (_server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let screen = Screen::start(&shell, &["top"], (80, 24));
    screen.wait_for(&["e ", "one"]);
    screen.press("\u{1a}");
    screen.wait_until("the screen of before", |screen| !screen.alternate_screen());
    shell.put("e", "two");
    screen.signal("CONT");
    screen.wait_for(&["e ", "two"]);
    screen.press("q");
    assert_eq!(screen.wait(), Some(0));
}

#[tokio::test]
async fn one_frame_is_plain_text_of_the_given_width() {
    let server = Server::start().await;
    let shell = Shell::at(&server).with("COLUMNS", "60");
    let flags = ["--advertise", "h:1", "--lease", "24s", "--identity", "one"];
    let mut leader = shell.start(&[&["campaign", "my_app"], &flags[..]].concat());
    leader.line_with("won");
    let hostile = format!("\u{1b}[2J\u{202e}<script>{}", "x".repeat(700));
    shell.put("hostile", &hostile);
    let frame = shell.out(&["top", "--once", "--color", "always"]);
    assert!(has_line(&frame, &["my_app", "one", "["]), "{frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 60), "{frame}");
    assert!(!frame.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{frame:?}");

    let view = shell.json(&["top", "my_app", "--once", "-o", "json"]);
    let (seen, info) =
        (&view["elections"][0], shell.json(&["election", "info", "my_app", "-o", "json"]));
    for field in
        ["election", "leader", "token", "since", "address", "metadata", "vacant", "overdue"]
    {
        assert_eq!(seen[field], info["elections"][0][field], "{field}");
    }
    assert_eq!(seen["lease_ms"], 24_000);
    assert!(seen["remaining_ms"].as_u64().is_some_and(|left| left <= 24_000), "{seen}");
    assert_eq!(view["elections"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn what_cannot_be_shown_is_one_clear_line() {
    let (_server, shell) = Shell::serving().await;
    shell.expect_refusal(&["top"], "use --once", 2);
    shell.expect_refusal(&["top", "--once"], BUCKET, 3);
    shell.out(&["kv", "add", BUCKET, "--election", "-q"]);
    shell.expect_refusal(&["top", "absent", "--once"], "election absent: no leader", 3);
    shell.expect_refusal(&["top", "no name", "--once"], "not a valid election name", 2);
    shell.expect_refusal(&["top", "--once", "-s", "127.0.0.1:1"], "cannot reach", 4);
    assert_eq!(shell.run(&["top", "--frames", "2"]).code, Some(2));
    assert_eq!(shell.run(&["top", "-o", "json"]).code, Some(2));
    // On a terminal too, and before the screen is taken over.
    let screen = Screen::start(&shell, &["top", "-s", "127.0.0.1:1"], (80, 24));
    assert_eq!(screen.wait(), Some(4));
    screen.wait_for(&["incumbent: cannot reach"]);
    assert!(screen.is_restored());
}

/// How many messages the clients that are connected have sent.
async fn requests(server: &Server) -> u64 {
    let connections = server.connz().await;
    let all = connections["connections"].as_array().into_iter().flatten();
    all.filter_map(|connection| connection["in_msgs"].as_u64()).sum()
}

#[tokio::test]
async fn watching_many_elections_costs_one_request_per_poll() {
    let (server, shell) = Shell::with_leaders(&[]).await;
    for number in 0..30 {
        shell.put(&format!("e{number}"), "one");
    }
    let screen = Screen::start(&shell, &["top"], (80, 40));
    screen.wait_for(&["30 elections"]);
    assert!(requests(&server).await > 30, "each was read once");
    // On a busy machine a report of a write may be late: then all are read again.
    let mut leaders = (0..).map(|number| format!("leader-{number}"));
    eventually("two polls that read little", async || {
        let (first, leader) = (requests(&server).await, leaders.next()?);
        shell.put("e7", &leader);
        screen.wait_for(&[&format!("e7: {leader} leads")]);
        let polled = eventually("two polls", async || {
            let now = requests(&server).await;
            (now >= first + 2).then_some(now)
        })
        .await;
        (polled < first + 20).then_some(())
    })
    .await;
}
