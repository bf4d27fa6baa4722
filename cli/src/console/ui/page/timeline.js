// The timeline of an election: terms as bars colored by leader, gaps in red with their length.

import { lost, printable, span, timeOfDay } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const COLORS = 6;
const HEIGHT = 74;
// A bar that is shorter could not be seen.
const LEAST = 2;

/**
 * The terms of an election and the gaps between them, the first one first.
 *
 * `transitions` are those of the election in their order, `current` is what is known of it now,
 * `history` what was recorded, if anything was, and `now` the time. Each span has a begin and an end
 * in milliseconds since 1970.
 */
export function spans(transitions, current, history, now) {
  const found = (history?.spans ?? []).map(recorded);
  const until = history ? Date.parse(history.until) : -Infinity;
  for (const transition of transitions) {
    const at = Date.parse(transition.time);
    if (!Number.isFinite(at) || at <= until) continue;
    const last = latest(found);
    if (!last && transition.before !== null) {
      found.push({ leader: transition.before, token: null, begin: null, end: at });
    } else if (last && last.end === null) {
      last.end = Math.max(at, last.begin ?? at);
    }
    const ended = latest(found);
    if (ended && ended.leader !== null && transition.leader === null) {
      ended.cause = transition.cause;
      ended.unrenewed = transition.unrenewed_ms;
    }
    if (transition.leader === null) {
      found.push({ leader: null, begin: at, end: null, why: transition.cause, length: null });
      continue;
    }
    const gap = latest(found);
    if (gap && gap.leader === null) gap.length = transition.leaderless_ms ?? at - gap.begin;
    found.push({ leader: transition.leader, token: transition.token, begin: at, end: null, cause: null });
  }
  if (!found.length && current) {
    const shown = { leader: current.leader, end: null };
    if (current.leader !== null) {
      found.push({ ...shown, token: current.token, begin: current.sinceMs, cause: null });
    } else if (current.leaderlessFrom !== null) {
      const begin = now - (performance.now() - current.leaderlessFrom);
      found.push({ ...shown, begin, why: current.vacant, length: null });
    }
  }
  for (const each of found) each.isOpen = each.end === null;
  found.filter((each) => each.isOpen).forEach((each) => { each.end = Math.max(now, each.begin ?? now); });
  return found;
}

/** The last term or gap: one that continues may have begun before a time in which nobody recorded. */
function latest(found) {
  return found.findLast((each) => each.kind !== "unknown");
}

/** A span of a recording. */
function recorded(each) {
  const begin = Date.parse(each.begin), end = each.end === null ? null : Date.parse(each.end);
  const shown = { kind: each.kind, leader: each.leader ?? null, begin, end };
  if (each.kind === "term") return { ...shown, token: each.token, cause: each.cause };
  return { ...shown, why: each.cause ?? "unknown", length: end === null ? null : each.ms };
}

/** A color for each leader: the same one in every election, but for another one that has it. */
export function color(leader) {
  let hash = 7;
  for (const character of leader) hash = (hash * 31 + character.codePointAt(0)) >>> 0;
  return hash % COLORS;
}

/** One line about a term or a gap. */
export function label(each) {
  const from = each.begin === null ? "" : ` from ${timeOfDay(each.begin)}`;
  const to = each.isOpen ? "until now" : `${from ? "to" : "until"} ${timeOfDay(each.end)}`;
  if (each.kind === "unknown") return `nobody recorded${from} ${to}`;
  if (each.leader === null) {
    const length = span(each.length ?? each.end - each.begin);
    return `no leader for ${length}${each.isOpen ? " so far" : ""},${from} ${to} (${printable(each.why)})`;
  }
  const token = each.token === null ? "" : `, token ${each.token}`;
  const length = each.begin === null ? "" : `, ${span(each.end - each.begin)}`;
  const renewed = each.unrenewed ? `, ${span(each.unrenewed)} after its last renewal` : "";
  const cause = each.cause ? `; ${lost(each.cause)}${renewed}` : "";
  return `${printable(each.leader)} led${from} ${to}${length}${token}${cause}`;
}

/** Draws the spans from `begin` to `end` into a picture of this width. */
export function draw(all, begin, end, width) {
  const picture = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img" });
  const scale = width / Math.max(1, end - begin);
  const x = (at) => Math.min(width, Math.max(0, (at - begin) * scale));
  const visible = all.filter((each) => each.end >= begin && (each.begin ?? begin) <= end);
  picture.setAttribute("aria-label", `${visible.length} terms and gaps; the list below has them`);
  let clear = 0; // where the next length can be written
  for (const each of visible) {
    const left = x(each.begin ?? begin);
    const wide = Math.max(LEAST, x(each.end) - left);
    const isUnknown = each.kind === "unknown";
    const isGap = each.leader === null && !isUnknown;
    const kind = isUnknown ? "unknown" : isGap ? "gap" : `term color-${color(each.leader)}`;
    const bar = shape("rect", { x: left, y: isGap ? 14 : 18, width: wide, height: isGap ? 36 : 28, class: kind });
    const title = shape("title", {});
    title.textContent = label(each);
    bar.append(title);
    picture.append(bar);
    if (isGap && left >= clear) {
      const words = span(each.length ?? each.end - each.begin);
      const at = Math.min(left, width - words.length * 7);
      picture.append(text(words, at, 10, "gap-label"));
      clear = at + words.length * 7 + 6;
    } else if (!isGap && !isUnknown && wide > 48) {
      const room = Math.floor((wide - 8) / 7.5);
      const name = [...printable(each.leader)];
      const short = name.length > room ? `${name.slice(0, room - 1).join("")}…` : name.join("");
      picture.append(text(short, left + 4, 37, "term-label"));
    }
  }
  const time = (at) => end - begin > 86400000 ? new Date(at).toISOString().slice(0, 16).replace("T", " ")
    : timeOfDay(at).slice(0, 8);
  picture.append(text(time(begin), 0, 66, "axis"));
  const last = text(time(end), width, 66, "axis");
  last.setAttribute("text-anchor", "end");
  picture.append(last);
  return picture;
}

function text(words, x, y, kind) {
  const made = shape("text", { x, y, class: kind });
  made.textContent = words;
  return made;
}

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}
