// Changes that an operator makes: each after a question.

import { printable } from "./text.js";

/** Asks a question. Returns whether the answer is yes. */
export function ask(text) {
  const dialog = document.getElementById("question");
  document.getElementById("question-text").textContent = text;
  dialog.showModal();
  // Not by its event `close`, which comes late: the next question may be open by then.
  return new Promise((done) => {
    dialog.oncancel = () => done(false);
    dialog.firstElementChild.onsubmit = ({ submitter }) => done(submitter?.value === "yes");
  });
}

/** The term of an election, as requests name it. */
function termOf({ election, leader, token, pod }) {
  return { election, leader, token, pod };
}

/** The changes of an election that are offered: their label, question, request and content. */
export function offered(election) {
  const name = printable(election.election);
  const changes = [];
  const about = { election: election.election };
  if (election.leader !== null) {
    const leader = printable(election.leader);
    const term = termOf(election);
    const text = election.pod
      ? `Delete the lock of pod ${leader}, which may still work when the successor starts?`
      : `Evict ${leader}, who leads ${name}?`;
    changes.push({ label: "Evict", text, what: "evict", about: term });
    changes.push({
      label: "Move", text: `Move ${name} from ${leader} to any ready candidate?`, what: "move", about: term,
    });
  }
  const pause = (label, text, seconds) =>
    changes.push({ label, text, what: "pause", about: { ...about, seconds } });
  pause("Pause 1 h", `Pause ${name} for an hour? No failed check and no preference moves it meanwhile.`, 3600);
  pause("Resume", `End the pause of ${name}?`, 0);
  return changes;
}

/** The move to this candidate. */
export function moveTo(election, identity) {
  const [name, from, to] = [election.election, election.leader, identity].map(printable);
  const about = { ...termOf(election), to: identity };
  return { label: "Move here", text: `Move ${name} from ${from} to ${to}?`, what: "move", about };
}
