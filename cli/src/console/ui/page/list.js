// The list of elections. Only the rows on the screen exist: there may be thousands of elections.

import { age, element, foreign, lost, printable, span, timeOfDay, write } from "./text.js";

// How many rows are drawn above and below those on the screen.
const MARGIN = 8;
// How many transitions are shown.
const TAIL = 50;

const viewport = document.getElementById("viewport");
const rows = document.getElementById("rows");
const filter = document.getElementById("filter");
const sort = document.getElementById("sort");
const nothing = document.getElementById("nothing");

export class List {
  constructor(elections) {
    this.elections = elections;
    this.shown = []; // the elections that pass the filter, in order
    this.rows = new Map(); // those on the screen, by name
    this.marked = null;
    viewport.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.resize()).observe(viewport);
    filter.addEventListener("input", () => this.update());
    sort.addEventListener("change", () => this.update());
  }

  /** Filters and sorts again, and draws. */
  update() {
    const wanted = filter.value.trim().toLowerCase();
    const finds = (text) => text !== null && text !== undefined && text.toLowerCase().includes(wanted);
    const all = [...this.elections.all()].filter((election) =>
      wanted === "" || finds(election.election) || finds(election.leader) || finds(election.address));
    const last = Number.MAX_VALUE;
    const key = {
      leader: (election) => election.leader ?? "",
      left: (election) => election.deadlineAt ?? (election.leader === null ? -1 : last),
      since: (election) => this.elections.since(election) ?? last,
    }[sort.value];
    all.sort((a, b) => {
      const [x, y] = key ? [key(a), key(b)] : [0, 0];
      return x < y ? -1 : x > y ? 1 : a.election < b.election ? -1 : 1;
    });
    this.shown = all;
    nothing.hidden = all.length > 0;
    nothing.textContent = !this.elections.isRead ? "Reading the lock"
      : wanted ? "No election matches the filter." : "No election has or had a leader.";
    this.resize();
  }

  resize() {
    this.height = parseFloat(getComputedStyle(rows).lineHeight) || 36;
    rows.style.height = `${this.shown.length * this.height}px`;
    rows.parentElement.parentElement.setAttribute("aria-rowcount", String(this.shown.length + 1));
    this.draw();
  }

  /** Draws the rows on the screen. */
  draw() {
    const first = Math.max(0, Math.floor(viewport.scrollTop / this.height) - MARGIN);
    const end = Math.ceil((viewport.scrollTop + viewport.clientHeight) / this.height) + MARGIN;
    const visible = this.shown.slice(first, end);
    const names = new Set(visible.map((election) => election.election));
    for (const [name, row] of this.rows) {
      // The focus stays in the document, although its row has gone.
      if (names.has(name)) continue;
      if (row.node.contains(document.activeElement)) viewport.focus({ preventScroll: true });
      row.node.remove();
      this.rows.delete(name);
    }
    const focused = document.activeElement;
    let before = null;
    visible.forEach((election, index) => {
      let row = this.rows.get(election.election);
      if (!row) {
        row = makeRow(election.election);
        this.rows.set(election.election, row);
      }
      const at = first + index;
      row.at = at;
      const place = `translateY(${at * this.height}px)`;
      if (row.place !== place) {
        row.place = place;
        row.node.style.transform = place;
        row.node.setAttribute("aria-rowindex", String(at + 2));
      }
      const wanted = before ? before.nextSibling : rows.firstChild;
      if (wanted !== row.node) rows.insertBefore(row.node, wanted);
      before = row.node;
      row.node.classList.toggle("marked", election.election === this.marked);
      this.fill(row, election);
    });
    // A node that is moved loses it.
    if (document.activeElement !== focused && rows.contains(focused)) focused.focus({ preventScroll: true });
  }

  /** Time has passed. */
  tick() {
    if (sort.value === "left" && !(performance.now() < this.sorted + 1000)) {
      this.sorted = performance.now();
      this.update();
    }
    for (const [name, row] of this.rows) {
      const election = this.elections.get(name);
      if (election) this.fill(row, election);
    }
  }

  fill(row, election) {
    if (row.election !== election) {
      row.election = election;
      const leader = election.leader === null ? element("span", "none") : foreign(election.leader);
      row.leader.replaceChildren(leader, " ", row.notes);
      row.node.classList.toggle("vacant", election.leader === null);
      write(row.token, election.token === null ? "" : String(election.token));
    }
    const notes = this.elections.notes(election);
    write(row.notes, notes.length ? `(${notes.map(printable).join(", ")})` : "");
    const since = this.elections.since(election);
    write(row.since, since === null ? "" : age(since));
    const left = this.elections.left(election);
    write(row.left, left === null ? "" : span(left));
    const share = left === null ? 0 : Math.min(1, left / (election.lease_ms || 1));
    row.bar.hidden = left === null;
    row.fill.style.transform = `scaleX(${share.toFixed(3)})`;
    row.bar.classList.toggle("late", share < 1 / 3);
  }

  /** Marks the election whose details are shown. */
  mark(name) {
    this.marked = name;
    this.draw();
  }

  /** Moves the focus to an election, or else to the list. */
  focus(name) {
    const at = this.shown.findIndex((election) => election.election === name);
    if (at < 0) viewport.focus();
    else this.focusRow(at);
  }

  /** Moves the focus to the next election, or the one before. */
  step(event, by) {
    if (!this.shown.length) return;
    event.preventDefault();
    const focused = [...this.rows.values()].find((row) => row.node.contains(document.activeElement));
    const at = focused ? focused.at + by : Math.ceil(viewport.scrollTop / this.height);
    this.focusRow(Math.min(this.shown.length - 1, Math.max(0, at)));
  }

  focusRow(next) {
    const top = next * this.height;
    if (top < viewport.scrollTop) viewport.scrollTop = top;
    const bottom = top + this.height - viewport.clientHeight;
    if (bottom > viewport.scrollTop) viewport.scrollTop = bottom;
    this.draw();
    this.rows.get(this.shown[next].election)?.link.focus({ preventScroll: true });
  }
}

function makeRow(name) {
  const node = element("div", null, "row");
  node.setAttribute("role", "row");
  const cell = (kind) => {
    const made = element("span", null, kind);
    made.setAttribute("role", "cell");
    node.append(made);
    return made;
  };
  const link = element("a");
  link.href = `#/${encodeURIComponent(name)}`;
  link.append(foreign(name));
  cell("name").append(link);
  const row = { node, link, leader: cell("leader"), notes: element("span", null, "notes") };
  row.token = cell("number token");
  row.since = cell("number since");
  const deadline = cell("deadline");
  row.bar = element("span", null, "bar");
  row.bar.setAttribute("aria-hidden", "true"); // the next cell says it
  row.fill = element("span", null, "fill");
  row.bar.append(row.fill);
  deadline.append(row.bar);
  row.left = cell("number left");
  return row;
}

/** A change of leadership in words. */
export function sentence(transition, withElection) {
  const line = element("span");
  if (withElection) line.append(foreign(transition.election), ": ");
  if (transition.leader !== null) {
    line.append(foreign(transition.leader), " leads");
    if (transition.leaderless_ms !== null) line.append(` after ${span(transition.leaderless_ms)} without a leader`);
    if (transition.token !== null) line.append(`, token ${transition.token}`);
  } else {
    if (transition.before !== null) line.append(foreign(transition.before), " ");
    else line.append("no leader: ");
    line.append(transition.before !== null ? lost(transition.cause) : printable(transition.cause));
    if (transition.unrenewed_ms !== null) line.append(`, ${span(transition.unrenewed_ms)} after its last renewal`);
  }
  return line;
}

let shownTail = "";

/** The last transitions of all elections, the latest one first. */
export function showTail(elections) {
  const latest = elections.transitions.slice(-TAIL).reverse();
  document.getElementById("no-tail").hidden = latest.length > 0;
  const key = latest.length ? `${elections.transitions.length} ${latest[0].time} ${latest[0].election}` : "";
  if (shownTail === key) return; // a selection, or the place of a reader, stays
  shownTail = key;
  document.getElementById("tail").replaceChildren(...latest.map((transition) => {
    const item = element("li", null, transition.leader === null ? "loss" : "");
    const time = element("time", timeOfDay(Date.parse(transition.time)));
    time.dateTime = transition.time;
    item.append(time, " ", sentence(transition, true));
    return item;
  }));
}

/** The sets whose shards are among the elections. */
export function showSets(elections) {
  document.getElementById("sets").hidden = elections.sets.length === 0;
  document.getElementById("set-list").replaceChildren(...elections.sets.map((set) => {
    const part = element("section", null, "set");
    const title = element("h3");
    title.append(foreign(set.set));
    const without = set.leaderless.join(", ");
    const more = set.leaderless_count > set.leaderless.length ? " and more" : "";
    const words = `${set.shards} shards, imbalance ${set.imbalance.toFixed(2)}, `
      + (set.leaderless.length ? `without a leader: ${without}${more}` : "each with a leader");
    const members = element("ul");
    const most = Math.max(1, ...set.members.map((member) => member.leads));
    for (const member of set.members) {
      const item = element("li");
      const bar = element("span", null, "bar load");
      bar.setAttribute("aria-hidden", "true");
      const fill = element("span", null, "fill");
      fill.style.transform = `scaleX(${(member.leads / most).toFixed(3)})`;
      bar.append(fill);
      item.append(foreign(member.identity), bar, `leads ${member.leads}`);
      members.append(item);
    }
    part.append(title, element("p", words), members);
    return part;
  }));
}
