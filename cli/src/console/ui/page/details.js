// One election: its term, its candidates, its timeline, and what an operator can change.

import { ask, moveTo, offered } from "./changes.js";
import { sentence } from "./list.js";
import { color, draw, label, spans } from "./timeline.js";
import { age, element, foreign, printable, span, timeOfDay, write } from "./text.js";

// The periods that the timeline shows: a name, and milliseconds.
const PERIODS = [["15 min", 900000], ["1 h", 3600000], ["24 h", 86400000], ["all", null]];
// A shorter period would show nothing but the last change.
const MIN_PERIOD = 10000;
// How many terms and gaps are listed.
const LISTED = 30;

const announcer = document.getElementById("announcer");

export class Details {
  constructor(elections, connection, close) {
    this.elections = elections;
    this.connection = connection;
    this.close = close;
    this.name = null;
    this.node = document.getElementById("details");
    this.period = PERIODS[0][1];
  }

  /** Shows an election, or none. */
  show(name) {
    const isNew = name !== this.name;
    this.name = name;
    this.node.hidden = name === null;
    document.body.classList.toggle("has-details", name !== null);
    if (!isNew) return;
    this.node.replaceChildren();
    Object.assign(this, { parts: null, election: null, times: null, shownSpans: null, message: "" });
    Object.assign(this, { shownCandidates: null, shownActions: null });
    this.history = null;
    this.historyFor = null;
    if (name === null) return;
    this.build();
    this.update();
    this.parts.title.focus();
    this.callRoll();
  }

  build() {
    const parts = {};
    const close = element("button", "Close", "close");
    close.addEventListener("click", () => this.close());
    parts.title = element("h2");
    parts.title.id = "details-title";
    parts.title.tabIndex = -1;
    parts.title.append(foreign(this.name));
    parts.facts = element("dl");
    parts.actions = element("p", null, "buttons");
    parts.message = element("p", null, "message");
    parts.message.setAttribute("role", "status");
    parts.rollMessage = element("p", null, "message");
    parts.roll = element("button", "Call the roll");
    parts.roll.addEventListener("click", () => this.callRoll());
    parts.candidates = element("div");
    parts.periods = element("p", null, "buttons");
    parts.periods.setAttribute("role", "group");
    parts.periods.setAttribute("aria-label", "Period of the timeline");
    for (const [words, ms] of PERIODS) {
      const button = element("button", words);
      button.setAttribute("aria-pressed", String(ms === this.period));
      button.addEventListener("click", () => {
        this.period = ms;
        for (const other of parts.periods.children) {
          other.setAttribute("aria-pressed", String(other === button));
        }
        this.drawTimeline();
      });
      parts.periods.append(button);
    }
    parts.recorded = element("div");
    parts.timeline = element("div", null, "timeline");
    parts.spans = element("ol", null, "spans");
    this.parts = parts;
    this.node.append(
      close, parts.title, parts.facts, parts.actions, parts.message,
      element("h3", "Timeline (UTC)"), parts.periods, parts.timeline, parts.recorded, parts.spans,
      element("h3", "Candidates"), parts.candidates, parts.rollMessage, parts.roll,
    );
  }

  /** What is known has changed. */
  update() {
    if (this.name === null) return;
    const election = this.elections.get(this.name);
    this.parts.actions.hidden = !this.elections.changes || !election;
    if (!election) {
      this.parts.facts.replaceChildren();
      const words = this.elections.isRead ? "This election has no leader, and no record was found." : "Reading the lock";
      this.parts.message.textContent = words;
      return;
    }
    if (this.elections.recording && this.historyFor !== this.name) this.readHistory();
    write(this.parts.message, this.message);
    if (this.election !== election) {
      this.election = election;
      this.fillFacts(election);
      this.fillCandidates(election);
      this.fillActions(election);
    }
    this.drawTimeline();
    this.tick();
  }

  /** Time has passed. */
  tick() {
    const election = this.name === null ? null : this.elections.get(this.name);
    if (!election || !this.times) return;
    const since = this.elections.since(election), left = this.elections.left(election);
    write(this.times.since, since === null ? "unknown" : age(since));
    write(this.times.left, left === null ? "none" : span(left));
    if (!(this.drawn > performance.now() - 1000)) this.drawTimeline();
  }

  fillFacts(election) {
    const facts = [];
    const fact = (name, ...values) => {
      const value = element("dd");
      value.append(...values);
      facts.push(element("dt", name), value);
      return value;
    };
    const notes = this.elections.notes(election).map(printable).join(", ");
    if (election.leader === null) {
      fact("Leader", `none (${notes})`);
    } else {
      fact("Leader", foreign(election.leader, `mark color-${color(election.leader)}`), notes ? ` (${notes})` : "");
    }
    if (election.token !== null) fact("Token", String(election.token));
    this.times = { since: element("span"), left: element("span") };
    fact(election.leader === null ? "For" : "Since", this.times.since);
    fact("To the deadline", this.times.left, election.lease_ms === null ? "" : ` of ${span(election.lease_ms)}`);
    if (election.address) fact("Address", foreign(election.address));
    for (const [key, value] of Object.entries(election.metadata ?? {})) fact("Metadata", foreign(key), "=", foreign(value));
    if (election.site) fact("Site", foreign(election.site));
    if (election.pod) fact("Pod", foreign(`${election.pod.phase}, UID ${election.pod.uid}`));
    if (election.paused_until) fact("Paused until", printable(election.paused_until));
    this.parts.facts.replaceChildren(...facts);
  }

  /** The buttons stay as they are while they mean the same: one may have the focus. */
  fillActions(election) {
    const changes = this.elections.changes ? offered(election) : [];
    const shown = JSON.stringify(changes);
    if (this.shownActions === shown) return;
    this.shownActions = shown;
    this.parts.actions.replaceChildren(...changes.map((change) => this.button(change)));
  }

  fillCandidates(election) {
    const candidates = election.candidates;
    const shown = JSON.stringify([candidates, election.leader, election.token, this.elections.changes]);
    if (this.shownCandidates === shown) return;
    this.shownCandidates = shown;
    if (!candidates) {
      this.parts.candidates.replaceChildren(element("p", "The roll has not been called."));
      return;
    }
    if (!candidates.length) {
      this.parts.candidates.replaceChildren(element("p", "No candidate answered."));
      return;
    }
    const list = element("ol", null, "candidates");
    for (const candidate of candidates) {
      const item = element("li");
      const words = [candidate.role, candidate.standing, `priority ${candidate.priority}`];
      if (candidate.site) words.push(`at ${printable(candidate.site)}`);
      item.append(foreign(candidate.identity), ` ${words.filter(Boolean).join(", ")}`);
      const isStandby = candidate.role !== "leader" && candidate.role !== "draining";
      if (this.elections.changes && isStandby && election.leader !== null) {
        item.append(" ", this.button(moveTo(election, candidate.identity)));
      }
      list.append(item);
    }
    const note = element("p", "The leader, then the order in which a handover picks its successor.");
    this.parts.candidates.replaceChildren(list, note);
  }

  button({ label: words, text, what, about }) {
    const button = element("button", words);
    button.addEventListener("click", async () => {
      if (await ask(text)) await this.request(what, about);
    });
    return button;
  }

  /** A connection was made, perhaps after the token was entered, or the server was away. */
  onConnected() {
    if (this.name !== null && !this.elections.get(this.name)?.candidates) this.callRoll();
    this.historyFor = null;
  }

  async callRoll() {
    const { name, parts } = this;
    parts.roll.disabled = true;
    let words = "";
    try {
      await this.connection.ask("roll-call", { election: name });
    } catch (error) {
      words = `No roll call: ${error.message}`;
    }
    parts.rollMessage.textContent = printable(words);
    parts.roll.disabled = false;
  }

  async request(what, about) {
    let line;
    try {
      line = (await this.connection.ask(what, about)).done ?? "";
    } catch (error) {
      line = error.message;
    }
    if (about.election !== this.name) return; // another one is shown by now
    this.message = printable(line);
    this.parts.message.textContent = this.message;
  }

  /** Reads what was recorded of the election. */
  async readHistory() {
    const name = this.name;
    this.historyFor = name;
    let history = null;
    try {
      history = await this.connection.ask("history", { election: name });
    } catch (error) {
      if (this.name === name) this.parts.recorded.textContent = printable(error.message);
    }
    if (this.name !== name || !history) return;
    this.history = history;
    showStatistics(this.parts.recorded, history.statistics);
    this.drawTimeline();
  }

  drawTimeline() {
    this.drawn = performance.now();
    const now = this.elections.now();
    const all = spans(this.elections.of(this.name), this.election, this.history, now);
    const first = all.length ? all[0].begin ?? all[0].end : now;
    // Room for a first term whose begin is unknown.
    const from = Math.min(first - (now - first) / 10, now - MIN_PERIOD);
    const begin = this.period === null ? from : Math.max(from, now - this.period);
    const width = Math.max(200, this.parts.timeline.clientWidth || 600);
    this.parts.timeline.replaceChildren(draw(all, begin, now, width));
    const listed = all.slice(-LISTED).reverse();
    const shown = JSON.stringify(listed.map(({ kind, leader, token, begin, isOpen, cause }) =>
      [kind, leader, token, begin, isOpen, cause]));
    // A reader with a screen reader, or with a selection, keeps the place.
    if (this.shownSpans === shown) {
      listed.forEach((each, index) => write(this.parts.spans.children[index], label(each)));
    } else {
      this.parts.spans.replaceChildren(...listed.map((each) =>
        element("li", label(each), each.leader === null ? "loss" : "")));
    }
    this.shownSpans = shown;
  }

  /** Announces to a screen reader what has happened in the election that is shown. */
  onTransitions(transitions) {
    const shown = transitions.filter(({ election }) => election === this.name);
    if (!shown.length) return;
    const lines = shown.map((transition) =>
      `${timeOfDay(Date.parse(transition.time)).slice(0, 8)}: ${sentence(transition, false).textContent}`);
    announcer.textContent = lines.join(". ");
    if (shown.at(-1).leader !== null) this.callRoll();
  }
}

/** Shows the statistics of a recording, with a row for each day. */
function showStatistics(node, statistics) {
  // Rounded down: only time without any gap is 100 %.
  const percent = (share) => (share === null ? "unknown" : `${(Math.floor(share * 1000) / 1000).toFixed(3)} %`);
  const gap = statistics.longest_gap;
  const mean = statistics.mean_between_changes_ms;
  const causes = Object.entries(statistics.changes_by_cause);
  const words = [
    `Recorded for ${span(statistics.known_ms)}: a leader for ${percent(statistics.availability_percent)} of the time`,
    gap ? `longest gap ${span(gap.ms)} (${printable(gap.cause ?? "unknown")})` : "no gap",
    causes.length ? `ends of terms: ${causes.map(([cause, count]) => `${count} ${printable(cause)}`).join(", ")}` : "",
    mean === null ? "" : `${span(mean)} between changes on average`,
  ];
  const table = element("table");
  const row = (kind, ...cells) => {
    const made = element("tr");
    made.append(...cells.map((words) => element(kind, words)));
    return made;
  };
  table.append(row("th", "Day (UTC)", "With a leader", "Without", "Changes"));
  for (const day of statistics.days.slice(-31).reverse()) {
    table.append(row("td", day.day, percent(day.availability_percent), span(day.leaderless_ms), String(day.changes)));
  }
  const days = element("details");
  days.append(element("summary", "Days"), table);
  node.replaceChildren(element("p", words.filter(Boolean).join("; ")), days);
}
