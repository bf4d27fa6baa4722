// Text of other programs, and spans of time.

// What would hide or reorder text: control characters, marks of direction, invisible characters,
// spaces that are not the usual one.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu;

/** Replaces characters that would make the page show something else than the text. */
export function printable(text) {
  return String(text).replace(UNPRINTABLE, "\ufffd");
}

/** A duration in its two largest units, as in `3m 20s`. */
export function span(ms) {
  const units = [["d", 86400000], ["h", 3600000], ["m", 60000], ["s", 1000]];
  const at = units.findIndex(([, unit]) => ms >= unit);
  if (at < 0) return `${Math.max(0, Math.round(ms))} ms`;
  const [name, unit] = units[at];
  if (name === "s") return ms < 10000 ? `${(Math.floor(ms / 100) / 10).toFixed(1)}s` : `${Math.floor(ms / 1000)}s`;
  const count = Math.floor(ms / unit);
  const [next, smaller] = units[at + 1];
  const rest = Math.floor((ms - count * unit) / smaller);
  return rest ? `${count}${name} ${rest}${next}` : `${count}${name}`;
}

/** An age in whole seconds. */
export function age(ms) {
  return ms < 1000 ? "0s" : span(Math.floor(ms / 1000) * 1000).replace(".0s", "s");
}

/** A time of day with milliseconds, in UTC. */
export function timeOfDay(ms) {
  return Number.isFinite(ms) ? new Date(ms).toISOString().slice(11, 23) : "?";
}

/** How a leader was lost, in words. */
export function lost(cause) {
  const known = {
    expired: "did not renew: expired",
    evicted: "was evicted",
    deleted: "lost its lock",
    "no owner": "no longer owns the lock",
    crashed: "crashed: released by its sentinel",
    released: "released",
  };
  return Object.hasOwn(known, cause) ? known[cause] : `released: ${printable(cause).replaceAll("_", " ")}`;
}

/** An element with text, and with a class. */
export function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (name) made.className = name;
  return made;
}

/** Changes the text of an element, if it is another. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Text of another program: isolated, so that its direction reorders nothing around it. */
export function foreign(text, name) {
  const made = element("bdi", printable(text), name);
  made.title = made.textContent;
  return made;
}
