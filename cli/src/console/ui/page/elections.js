// The elections as the server reports them, and what can be said of them now.

// The most transitions that are kept.
const TAIL = 1000;

export class Elections {
  constructor() {
    this.byName = new Map();
    this.transitions = [];
    this.sets = [];
    this.isRead = false;
    this.changes = false;
    this.recording = false;
    this.names = [];
    this.lock = "";
  }

  /** Takes everything: what was known before may be wrong. */
  takeSnapshot(all) {
    this.noteTime(all.time);
    this.lock = all.lock;
    this.changes = all.changes;
    this.recording = all.recording;
    this.names = all.names;
    this.isRead = all.is_read;
    this.byName.clear();
    this.transitions = all.transitions ?? [];
    this.sets = all.sets ?? [];
    (all.elections ?? []).forEach((election) => this.take(election));
    this.addAbsent();
  }

  /** Takes what has changed. Returns the names of elections that are new, or not the same. */
  takeChanges(changes) {
    this.noteTime(changes.time);
    this.isRead = true;
    changes.elections.forEach((election) => this.take(election));
    changes.gone.forEach((name) => this.byName.delete(name));
    this.addAbsent();
    const now = performance.now();
    for (const [name, left] of changes.renewed) {
      const known = this.byName.get(name);
      if (known) known.deadlineAt = now + left;
    }
    this.transitions = this.transitions.concat(changes.transitions).slice(-TAIL);
    if (changes.sets) this.sets = changes.sets;
    return changes.elections.map((election) => election.election).concat(changes.gone);
  }

  /** Elections that were selected by name are shown without a leader, too. */
  addAbsent() {
    if (!this.isRead) return;
    for (const name of this.names.filter((name) => !this.byName.has(name))) {
      this.take({
        election: name, leader: null, token: null, since: null, vacant: "no record found",
        address: null, remaining_ms: null, lease_ms: null, leaderless_ms: null, candidates: null,
      });
    }
  }

  take(election) {
    const now = performance.now();
    const left = election.remaining_ms, without = election.leaderless_ms;
    election.deadlineAt = left === null ? null : now + left;
    election.leaderlessFrom = without === null ? null : now - without;
    election.sinceMs = election.since ? Date.parse(election.since) : null;
    this.byName.set(election.election, election);
  }

  /** The clock of this computer may be wrong: ages are by that of the server. */
  noteTime(time) {
    this.offset = Date.parse(time) - performance.now();
  }

  /** The time by the clock of the server, in milliseconds since 1970. */
  now() {
    return performance.now() + (this.offset ?? 0);
  }

  all() {
    return this.byName.values();
  }

  get(name) {
    return this.byName.get(name);
  }

  /** What is left to the deadline, in milliseconds; `null` without one. */
  left(election) {
    return election.deadlineAt === null ? null : Math.max(0, election.deadlineAt - performance.now());
  }

  /** The age of the term, or how long there has been no leader; `null` if it is unknown. */
  since(election) {
    if (election.leader === null) {
      return election.leaderlessFrom === null ? null : performance.now() - election.leaderlessFrom;
    }
    return election.sinceMs === null ? null : Math.max(0, this.now() - election.sinceMs);
  }

  /** Words that say more of the leader than its name. */
  notes(election) {
    if (election.leader === null) return [election.vacant];
    const notes = [];
    if (this.left(election) === 0) notes.push("overdue");
    if (election.role === "draining") notes.push("draining");
    if (election.standing && election.standing !== "ready") notes.push(election.standing);
    if (election.paused_until && Date.parse(election.paused_until) > this.now()) notes.push("paused");
    return notes;
  }

  /** The transitions of one election, the first one first. */
  of(name) {
    return this.transitions.filter((transition) => transition.election === name);
  }
}
