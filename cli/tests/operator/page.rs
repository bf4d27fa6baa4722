//! The page of `ui` in a real browser, against real servers.

use std::time::{Duration, Instant};

use incumbent_test_support::{Browser, Cluster, Port, eventually};
use serde_json::{Value, json};

use crate::record::{FILE, query};
use crate::shell::{BUCKET, Running, Shell};
use crate::ui::token_file;

/// Starts `incumbent ui` at a free port. Returns the URL of its page.
pub fn serve(shell: &Shell, args: &[&str]) -> (Running, String) {
    let (ui, address) = crate::ui::serve(shell, args);
    (ui, format!("http://{address}/"))
}

/// The rows of the list: elections, and what is shown of their leaders.
const ROWS: &str = "[...document.querySelectorAll('#rows .row')].map((row) => [
    row.querySelector('.name').textContent, row.querySelector('.leader').textContent.trim()])";

/// Waits until the list shows this leader of an election.
fn wait_for_leader(browser: &Browser, election: &str, leader: &str) {
    browser.wait_for(&format!(
        "{ROWS}.some(([name, leader]) => name === {} && leader.startsWith({}))",
        json!(election),
        json!(leader)
    ));
}

/// Waits until the details show all of these texts. A candidate may answer a roll call too late:
/// then the next one is called.
async fn wait_for_roll(browser: &Browser, texts: &[&str]) {
    let call = "[...document.querySelectorAll('#details button')]
        .find((button) => button.textContent === 'Call the roll')?.click()";
    let mut called = Instant::now();
    eventually(&format!("{texts:?}"), async || {
        let shown = browser.text();
        if texts.iter().all(|text| shown.contains(text)) {
            return Some(());
        }
        if called.elapsed() > Duration::from_secs(3) {
            browser.eval(call, &[]);
            called = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        None
    })
    .await;
}

/// Keeps a picture for those who look at them.
fn picture(browser: &Browser, name: &str) {
    if let Some(directory) = std::env::var_os("INCUMBENT_PICTURES") {
        let file = std::path::Path::new(&directory).join(format!("{name}.png"));
        std::fs::write(file, browser.screenshot()).expect("a picture");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_changes_of_leadership_live() {
    let cluster = Cluster::start().await;
    let shell = Shell::at(cluster.server(0)).with("PATH", "/usr/bin:/bin");
    let mut first = shell.campaign("billing", "host-1");
    first.line_with("won");
    let mut second = shell.campaign("billing", "host-2");
    second.line_with("leader: host-1");
    let shards: Vec<Running> = ["a", "b"]
        .map(|identity| {
            let flags = ["set", "run", "work", "--shards", "6", "--identity", identity, "--lease"];
            shell.start(&[&flags[..], &["24s", "--", "sleep", "1000"]].concat())
        })
        .into();
    let (_ui, url) = serve(&shell, &[]);
    let browser = Browser::start(1280, 800);
    browser.open(&url);
    wait_for_leader(&browser, "billing", "host-1");
    browser.wait_for_text(&["Live", "billing", "Sets", "work", "each with a leader"]);
    // They expire within half a minute: the page has seen them by then.
    for number in 0..30 {
        let name = format!("job-{number:02}");
        shell.put(&name, &format!("host-{}", number % 5));
    }

    // A crash, an eviction and a release, each with its cause.
    first.end_with("KILL");
    wait_for_leader(&browser, "billing", "host-2");
    let mut first = shell.campaign("billing", "host-1");
    first.line_with("leader: host-2");
    shell.out(&["election", "evict", "billing", "--force"]);
    wait_for_leader(&browser, "billing", "host-1");
    second.end_with("TERM");
    let mut third = shell.campaign("billing", "host-3");
    third.line_with("leader: host-1");
    first.end_with("TERM");
    wait_for_leader(&browser, "billing", "host-3");
    browser.wait_for_text(&[
        "billing: host-1 did not renew: expired",
        "billing: host-2 was evicted",
        "billing: host-1 released: stopped",
        "without a leader, token ",
    ]);

    // What it says is what the commands say.
    browser.wait_for("document.querySelectorAll('#rows .row').length > 15");
    eventually("the page and `election list` agree", async || {
        let listed = shell.json(&["election", "list", "-o", "json"]);
        let listed = listed.as_array().expect("elections").clone();
        let shown = browser.eval(&format!("return {ROWS}"), &[]);
        let shown = shown.as_array().expect("rows");
        // The trace of a leader that is long gone vanishes from the lock.
        let agrees = |row: &Value| {
            let leader = row[1].as_str().expect("text");
            let of_row = listed.iter().find(|election| election["election"] == row[0]);
            match of_row.and_then(|election| election["leader"].as_str()) {
                Some(listed) => leader.starts_with(listed),
                None => leader.starts_with("none"),
            }
        };
        (shown.len() > 15 && shown.iter().all(agrees)).then_some(())
    })
    .await;

    picture(&browser, "list");
    // The details: by keyboard, with the timeline and the candidates.
    browser.press("/billing");
    browser.wait_for(&format!("{ROWS}.length === 1"));
    browser.press("\u{e00c}");
    browser.wait_for(&format!("{ROWS}.length > 15"));
    browser.press("j");
    for _ in 0..2 {
        // It is there again when it is opened again, and its row has the focus then.
        browser.press("\u{e007}");
        wait_for_roll(&browser, &["To the deadline", "host-3 leader, ready"]).await;
        browser.press("\u{e00c}");
        browser.wait_for("document.activeElement.matches('#rows a')"); // the title has its name too
        browser.wait_for("document.activeElement.textContent === 'billing'");
    }
    browser.press("\u{e007}");
    let texts = ["Timeline", "no leader for", "host-3 leader, ready", "Candidates"];
    wait_for_roll(&browser, &texts).await;
    let gaps = browser.wait_for("document.querySelectorAll('.timeline .gap').length");
    assert!(gaps.as_u64() >= Some(3), "{gaps}");
    let label =
        browser.eval("return document.querySelector('.timeline .gap title').textContent", &[]);
    assert!(label.as_str().is_some_and(|label| label.contains("(expired)")), "{label}");
    picture(&browser, "details");
    browser.prefer_dark(true);
    picture(&browser, "dark");
    browser.prefer_dark(false);
    browser.resize(390, 844);
    browser.wait_for("document.querySelector('#overview').hidden");
    picture(&browser, "phone-details");
    browser.press("\u{e00c}");
    browser.wait_for("document.querySelector('#details').hidden");
    wait_for_leader(&browser, "billing", "host-3");
    picture(&browser, "phone");
    let width = browser.eval("return document.documentElement.scrollWidth", &[]);
    assert_eq!(width, 390, "the page is wider than the phone");
    assert_eq!(browser.log(), Vec::<String>::new());
    drop((third, shards));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_continues_when_servers_return() {
    let (server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let port = Port::pick();
    let listen = port.number().to_string();
    let mut ui = shell.start(&["ui", "--listen", &listen, "--timeout", "20s"]);
    ui.line_with("serving");
    let browser = Browser::start(1000, 700);
    browser.open(&format!("http://127.0.0.1:{listen}/"));
    wait_for_leader(&browser, "e", "one");
    // First the server of the lock is away, then that of the page.
    server.stop().await;
    browser.wait_for_text(&["The lock cannot be read: "]);
    wait_for_leader(&browser, "e", "one");
    server.start_again().await;
    shell.put("e", "two");
    wait_for_leader(&browser, "e", "two");
    browser.wait_for_text(&["Live"]);
    assert_eq!(ui.end_with("TERM"), Some(15));
    browser.wait_for_text(&["Not live: "]);
    let mut ui = shell.start(&["ui", "--listen", &listen]);
    ui.line_with("serving");
    shell.put("e", "three");
    wait_for_leader(&browser, "e", "three");
    browser.wait_for_text(&["Live"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_are_shown_harmlessly() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    let script =
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";
    let names = [
        script.to_owned(),
        "\u{1b}[2J\r\n\u{7}root".to_owned(),
        "\u{202e}toor \u{2066}x".to_owned(),
        "שלום ראש".to_owned(),
        "x".repeat(700),
        "</script>&lt;b&gt;{{7*7}}".to_owned(),
    ];
    for (number, name) in names.iter().enumerate() {
        shell.put(&format!("e{number}"), name);
    }
    let (_ui, url) = serve(&shell, &[]);
    let browser = Browser::start(1000, 700);
    browser.open(&url);
    browser.wait_for(&format!("{ROWS}.length === 6"));
    let leaders = browser.eval(&format!("return {ROWS}.map(([, leader]) => leader)"), &[]);
    assert_eq!(leaders[0], script);
    assert_eq!(leaders[1], "\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}root");
    assert_eq!(leaders[2], "\u{fffd}toor \u{fffd}x");
    assert_eq!(leaders[3], names[3].as_str());
    assert_eq!(leaders[5], names[5].as_str());
    // Names from the right to the left, and long ones, leave the columns where they are.
    let lefts = browser.eval(
        "return [...new Set([...document.querySelectorAll('#rows .since')].map((cell) => \
         Math.round(cell.getBoundingClientRect().left)))].length",
        &[],
    );
    assert_eq!(lefts, 1);
    for number in 0..names.len() {
        browser.open(&format!("{url}#/e{number}"));
        browser.wait_for_text(&["To the deadline", "Call the roll"]);
    }
    // An address that somebody made up names an election that is not there.
    browser.open(&format!("{url}#/%3Cscript%3Edocument.title%3D1%3C%2Fscript%3E%E2%80%AE"));
    browser.wait_for_text(&["<script>document.title=1</script>\u{fffd}", "no record was found"]);
    browser.open(&format!("{url}#/%E0%A4%A"));
    browser.wait_for_text(&["6 elections"]);
    assert_eq!(browser.eval("return document.querySelectorAll('img').length", &[]), 0);
    let title = browser.eval("return document.title", &[]);
    assert_eq!(title, format!("Elections: Bucket {BUCKET}, TTL 1h"));
    assert_eq!(browser.log(), Vec::<String>::new());
    browser.eval("console.error('an error is heard')", &[]);
    assert_eq!(browser.log().len(), 1);
    picture(&browser, "hostile");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_changes_elections_with_a_token_after_a_question() {
    let (_server, shell) = Shell::serving().await;
    let mut first = shell.campaign("billing", "host-1");
    first.line_with("won");
    let mut second = shell.campaign("billing", "host-2");
    second.line_with("leader: host-1");
    let flags = ["--token-file", &token_file(&shell), "--allow-changes"];
    let (_ui, url) = serve(&shell, &flags);
    let browser = Browser::start(1000, 900);
    browser.open(&url);
    // A wrong token is asked for again, and nothing is shown.
    browser.wait_for("document.querySelector('#sign-in').open");
    browser.press("wrong\u{e007}");
    browser.wait_for_text(&["This token is wrong"]);
    assert!(!browser.text().contains("host-1"));
    browser.press("s3cret\u{e007}");
    wait_for_leader(&browser, "billing", "host-1");
    browser.eval("location.hash = '#/billing'", &[]);
    let both = ["host-1 leader, ready", "host-2 standby, ready", "Move here"];
    wait_for_roll(&browser, &both).await;
    let click = |label: &str| {
        let body = "[...document.querySelectorAll('#details button')]
            .find((button) => button.textContent === arguments[0]).click()";
        browser.eval(body, &[label.into()]);
        browser.wait_for("document.querySelector('#question').open");
    };
    let answer = |value: &str| {
        let body = "document.querySelector(`#question button[value=${arguments[0]}]`).click()";
        browser.eval(body, &[value.into()]);
    };
    click("Evict");
    browser.wait_for_text(&["Evict host-1, who leads billing?"]);
    answer("no");
    // The leader, or its successor, may answer too late: then the details are opened anew, which
    // forgets what they said, and the change is requested again.
    let change = async |label: &str, question: &str, done: &str| {
        let ends = [
            done,
            "no candidate that may lead next is ready",
            "no leader of this library answered",
            "does not answer",
        ];
        let said = format!(
            "{}.find((text) => document.body.innerText.includes(text)) ?? false",
            json!(ends)
        );
        eventually(done, async || {
            wait_for_roll(&browser, &[label]).await;
            click(label);
            browser.wait_for_text(&[question]);
            answer("yes");
            if browser.wait_for(&said) == done {
                return Some(());
            }
            browser.eval("location.hash = ''", &[]);
            browser.wait_for("document.querySelector('#details').hidden");
            browser.eval("location.hash = '#/billing'", &[]);
            None
        })
        .await;
    };
    change("Move here", "Move billing from host-1 to host-2?", "handing over to host-2").await;
    wait_for_leader(&browser, "billing", "host-2");
    let paused = "billing: paused, as host-2 will state in its entry";
    change("Pause 1 h", "Pause billing for an hour?", paused).await;
    browser.eval("[...document.querySelectorAll('#details button')].at(-1).click()", &[]);
    browser.wait_for_text(&["(paused)", "Paused until"]);
    change("Resume", "End the pause of billing?", "billing: resumed").await;
    click("Evict");
    answer("yes");
    wait_for_leader(&browser, "billing", "host-1");
    browser.wait_for_text(&["evicted host-2 from billing", "host-2 was evicted"]);
    assert!(!browser.eval("return location.href", &[]).to_string().contains("s3cret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_what_was_recorded() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    let file = shell.home().join(FILE).display().to_string();
    let mut recorder = shell.start_with_errors(&["record", "--to", &file]);
    recorder.line_with("recording");
    shell.put("e", "one");
    let history = || shell.json(&["election", "history", "e", "--from", &file, "-o", "json"]);
    let recorded = async |field: &str, value: &str| {
        eventually("it is recorded", async || {
            let spans = history()["spans"].as_array()?.clone();
            spans.iter().any(|span| span[field] == value).then_some(())
        })
        .await;
    };
    recorded("leader", "one").await;
    shell.out(&["election", "evict", "e", "--force", "--wait", "0s"]);
    shell.put("e", "two");
    recorded("leader", "two").await;
    let read = "SELECT count(*) FROM observation WHERE end > (SELECT max(learned) FROM transition)";
    eventually("it was read since", async || (query(&shell, read).await[0].0 > 0).then_some(()))
        .await;
    // Nobody records in a part of the term.
    recorder.end_with("KILL");
    let mut recorder = shell.start_with_errors(&["record", "--to", &file]);
    recorder.line_with("recording");
    recorded("kind", "unknown").await;
    let (_ui, url) = serve(&shell, &["--recording", &file]);
    let browser = Browser::start(1000, 900);
    browser.open(&format!("{url}#/e"));
    browser.wait_for_text(&[
        "Recorded for ",
        "longest gap",
        "(evicted)",
        "1 evicted",
        "one led from",
    ]);
    shell.put("e", "three");
    browser.wait_for_text(&["three led from", "two led from", "one led from", "nobody recorded"]);
    let lines = browser.eval("return document.body.innerText.split('until now').length - 1", &[]);
    assert_eq!(lines, 1, "one of them leads");
    assert_eq!(browser.log(), Vec::<String>::new());
}

/// Figures for docs/observability.md: `cargo test --release -p incumbent-cli --test operator \
/// page::figures -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints figures, and checks nothing"]
async fn figures_of_five_thousand_elections() {
    const ELECTIONS: u64 = 5000;
    const RENEWALS: std::time::Duration = std::time::Duration::from_millis(2);
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", BUCKET, "--election", "--ttl", "30s", "-q"]);
    let client = async_nats::connect(server.url()).await.expect("a server");
    let put = async move |number: u64| {
        let subject = format!("$KV.{BUCKET}.election-{number:04}");
        let leader = format!("host-{}.example.net", number % 50);
        client.publish(subject, leader.into()).await.expect("a connection");
    };
    for number in 0..ELECTIONS {
        put(number).await;
    }
    let (_ui, url) = serve(&shell, &[]);
    let browser = Browser::start(1280, 900);
    browser.open(&url);
    browser.wait_for_text(&["5000 elections, none without a leader"]);
    let renewing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(RENEWALS);
        for number in (0..ELECTIONS).cycle() {
            ticks.tick().await;
            put(number).await;
        }
    });
    // Ten seconds of scrolling, 60 pixels a frame.
    let frames = browser.eval_async(
        "const done = arguments[0], list = document.getElementById('viewport'), took = [];
         let last = performance.now(), begun = last;
         function frame(now) {
           took.push(now - last); last = now;
           list.scrollTop = (list.scrollTop + 60) % (list.scrollHeight - 900);
           if (now - begun < 10000) requestAnimationFrame(frame);
           else { took.shift(); took.sort((a, b) => a - b);
             const at = (share) => took[Math.floor((took.length - 1) * share)].toFixed(1);
             done({frames: took.length, median: at(.5), p99: at(.99), most: at(1)}); }
         }
         requestAnimationFrame(frame);",
        &[],
    );
    println!("scrolling, 500 renewals a second: {frames} (milliseconds a frame)");
    renewing.abort();
    browser.eval("document.getElementById('viewport').scrollTop = 0", &[]);
    // From the command that writes a new leader to the page that shows it.
    let mut delays: Vec<_> = (0..21)
        .map(|number| {
            let leader = format!("new-{number}");
            shell.put("election-0000", &leader);
            let written = std::time::Instant::now();
            wait_for_leader(&browser, "election-0000", &leader);
            written.elapsed().as_millis()
        })
        .collect();
    delays.sort_unstable();
    println!("a change is shown after {} ms in the median, {} at most", delays[10], delays[20]);
    browser.devtools("HeapProfiler.collectGarbage", &json!({}));
    browser.devtools("Performance.enable", &json!({}));
    let metrics = browser.devtools("Performance.getMetrics", &json!({}));
    for metric in metrics["metrics"].as_array().expect("metrics") {
        if ["JSHeapUsedSize", "Nodes", "TaskDuration"].iter().any(|name| metric["name"] == *name) {
            println!("{}: {}", metric["name"], metric["value"]);
        }
    }
    println!("{}", browser.text().lines().take(4).collect::<Vec<_>>().join(" | "));
}
