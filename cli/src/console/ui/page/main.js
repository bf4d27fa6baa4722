// The page: what the server reports goes to the parts of the page that show it.

import { Connection } from "./connection.js";
import { Details } from "./details.js";
import { Elections } from "./elections.js";
import { List, showSets, showTail } from "./list.js";
import { printable, write } from "./text.js";

const part = (id) => document.getElementById(id);
const elections = new Elections();
let failing = null;

const connection = new Connection({
  snapshot(all) {
    failing = all.failing;
    elections.takeSnapshot(all);
    showAll();
    details.onConnected();
  },
  changes(changes) {
    const changed = elections.takeChanges(changes);
    if (changed.length || changes.transitions.length || changes.sets) showAll();
    details.onTransitions(changes.transitions);
  },
  failing({ reason }) {
    failing = reason;
  },
  state(state, why) {
    showState(state, why);
  },
});

const list = new List(elections);
const details = new Details(elections, connection, () => open(null));

function showAll() {
  document.title = elections.lock ? `Elections: ${printable(elections.lock)}` : "Elections";
  part("lock").textContent = printable(elections.lock) || "Elections";
  showSummary();
  list.update();
  showSets(elections);
  showTail(elections);
  details.update();
}

function showSummary() {
  const all = [...elections.all()];
  const without = all.filter((election) => election.leader === null).length;
  const count = all.length === 1 ? "1 election" : `${all.length} elections`;
  part("summary").textContent = elections.isRead
    ? `${count}, ${without || "none"} without a leader` : "Reading the lock";
}

function showState(state, why) {
  const words = {
    open: failing ? `The lock cannot be read: ${printable(failing)}` : "Live",
    connecting: `Connecting: ${why}`,
    away: `Not live: ${why}`,
    token: "Waiting for the token",
    broken: `This page has failed: ${why}`,
  }[state];
  write(part("state"), words);
  document.body.classList.toggle("stale", state !== "open" || Boolean(failing));
}

/** Shows the details of an election, or the list. The address of the page says which. */
function open(name) {
  location.hash = name === null ? "" : `#/${encodeURIComponent(name)}`;
}

function onAddress() {
  const hash = location.hash;
  let name = null;
  try {
    name = hash.startsWith("#/") ? decodeURIComponent(hash.slice(2)) : null;
  } catch {
    // An address that somebody typed.
  }
  part("overview").hidden = name !== null && matchMedia("(max-width: 60rem)").matches;
  const closed = details.name;
  details.show(name);
  list.mark(name);
  if (name === null && closed !== null) list.focus(closed);
}

function onKey(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (key === "Escape" && target.id === "filter") {
    target.value = "";
    list.update();
    part("viewport").focus();
  } else if (key === "Escape") {
    open(null);
  } else if (!target.closest("#viewport")) {
    // Other parts have keys of their own, and a page that is spoken to hears single letters.
  } else if (key === "/") {
    event.preventDefault();
    part("filter").focus();
  } else if (key === "j" || key === "ArrowDown") {
    list.step(event, 1);
  } else if (key === "k" || key === "ArrowUp") {
    list.step(event, -1);
  }
}

document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", onAddress);
matchMedia("(max-width: 60rem)").addEventListener("change", onAddress);
// Time passes between two events.
setInterval(() => {
  list.tick();
  details.tick();
}, 250);
onAddress();
if (details.name === null) part("viewport").focus();
connection.run();
