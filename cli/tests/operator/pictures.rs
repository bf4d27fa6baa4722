//! The pictures of the documentation, from a real run: `make pictures`.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use incumbent_test_support::{Browser, Server};

use crate::page;
use crate::screen::Screen;
use crate::shell::{Running, Shell};

/// The columns and lines of the terminal.
const SIZE: (u16, u16) = (100, 24);
/// The width of a character and the height of a line in a picture.
const CELL: (u16, u16) = (9, 19);
/// The colors of the terminal, by their number.
const COLORS: [&str; 8] =
    ["#0f1419", "#ff7b72", "#62c982", "#f0b75a", "#7db4ff", "#d2a8ff", "#76e3ea", "#e6edf3"];

fn campaign(shell: &Shell, name: &str, host: u8) -> Running {
    let identity = format!("host-{host}.example.net");
    let address = format!("10.0.0.{host}:8080");
    let flags = ["campaign", name, "--identity", &identity, "--advertise", &address];
    let mut candidate = shell.start(&[&flags[..], &["--lease", "8s"]].concat());
    candidate.line(); // it leads, or knows who does
    candidate
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "draws pictures, and checks nothing"]
async fn draw() {
    let directory = std::env::var_os("INCUMBENT_PICTURES").expect("a directory");
    let directory = PathBuf::from(directory);
    let server = Server::start().await;
    let shell = Shell::at(&server).with("PATH", "/usr/bin:/bin");
    let mut candidates = Vec::new();
    for (name, hosts) in [
        ("billing", &[1, 2, 3][..]),
        ("compaction", &[2, 3, 1]),
        ("provisioning", &[3, 1]),
        ("reports", &[1]),
        ("scheduler", &[2, 1, 3]),
    ] {
        candidates.push(hosts.iter().map(|host| campaign(&shell, name, *host)).collect::<Vec<_>>());
    }
    let _members = [1, 2].map(|host| {
        let identity = format!("host-{host}.example.net");
        let flags = ["set", "run", "index", "--shards", "6", "--lease", "8s", "--identity"];
        shell.start(&[&flags[..], &[&identity, "--", "sleep", "1000"]].concat())
    });
    let (_ui, url) = page::serve(&shell, &[]);
    let browser = Browser::start(1280, 860);
    browser.open(&url);
    browser.wait_for_text(&["11 elections, none without a leader"]);
    let screen = Screen::start(&shell, &["top"], SIZE);
    screen.wait_for(&["11 elections"]);

    // A crash, an eviction, a stop, and one without a standby.
    candidates[1].remove(0).end_with("KILL");
    candidates[4].remove(0).end_with("TERM");
    screen.wait_for(&["scheduler: host-", "leads after"]);
    candidates[3].remove(0).end_with("TERM");
    screen.wait_for(&["compaction: host-", "leads after"]);
    shell.out(&["election", "evict", "compaction", "--force", "--wait", "0s"]);
    screen.wait_for(&["compaction: host-", "was evicted"]);
    // Its successor renews.
    let shown = screen.wait_for(&["compaction", "8s", "[|||||||||"]);
    fs::write(directory.join("top.svg"), svg(&screen.shown(), shown.lines().count()))
        .expect("a picture");
    browser.open(&format!("{url}#/compaction"));
    browser.wait_for_text(&["Timeline", "example.net leader, ready", "no leader for"]);
    fs::write(directory.join("page.png"), browser.screenshot()).expect("a picture");
}

/// What the terminal shows, as SVG: each word at its column.
fn svg(screen: &vt100::Screen, lines: usize) -> String {
    let lines = u16::try_from(lines).unwrap_or(SIZE.1).min(SIZE.1);
    let (width, height) = (SIZE.0 * CELL.0 + 24, lines * CELL.1 + 24);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, monospace\" font-size=\"15\">\n\
         <title>incumbent top</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{}\"/>\n",
        COLORS[0]
    );
    for line in 0..lines {
        let at = |column: u16| screen.cell(line, column).expect("a cell of the screen");
        let inverse = (0..SIZE.0).filter(|column| at(*column).inverse()).count();
        let y = 12 + line * CELL.1;
        if inverse > 0 {
            let (wide, high) = (SIZE.0 * CELL.0, CELL.1);
            let _ = writeln!(
                svg,
                "<rect x=\"12\" y=\"{y}\" width=\"{wide}\" height=\"{high}\" fill=\"{}\"/>",
                COLORS[7]
            );
        }
        let mut column = 0;
        while column < SIZE.0 {
            let (begin, style, mut word) = (column, Style::of(at(column)), String::new());
            while column < SIZE.0 && !is_blank(at(column)) && Style::of(at(column)) == style {
                word += at(column).contents();
                column += 1;
            }
            if word.is_empty() {
                column += 1;
                continue;
            }
            let word = word.replace('&', "&amp;").replace('<', "&lt;");
            let (x, y) = (12 + begin * CELL.0, y + 14);
            let length = (column - begin) * CELL.0;
            let Style { color, weight } = style;
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\" fill=\"{color}\" \
                 font-weight=\"{weight}\">{word}</text>"
            );
        }
    }
    svg + "</svg>\n"
}

fn is_blank(cell: &vt100::Cell) -> bool {
    cell.contents().trim().is_empty()
}

/// How a cell is drawn.
#[derive(PartialEq)]
struct Style {
    color: &'static str,
    weight: u16,
}

impl Style {
    fn of(cell: &vt100::Cell) -> Self {
        let color = match cell.fgcolor() {
            _ if cell.inverse() => COLORS[0],
            vt100::Color::Idx(number) => COLORS[usize::from(number % 8)],
            _ => COLORS[7],
        };
        Self { color, weight: if cell.bold() { 700 } else { 400 } }
    }
}
