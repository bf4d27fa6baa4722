// The connection to the server: its events, and requests to the lock.

// The server sends something every five seconds.
const SILENCE = 12000;
const RETRY = 1000;
// The server answers a request within 25 seconds.
const ANSWER = 30000;
const TOKEN = "incumbent-token";

export class Connection {
  /** `on`: functions by the name of the event, and `state` for the state of the connection. */
  constructor(on) {
    this.on = on;
    this.token = stored();
    this.abort = null;
    // A browser has few connections to one server: a page that nobody sees gives its own back.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.abort?.abort();
    });
  }

  /** Reads events until the page is closed. */
  async run() {
    for (;;) {
      while (document.hidden) await next(document, "visibilitychange");
      try {
        await this.read();
        this.on.state("connecting", "the server closed the connection");
      } catch (error) {
        this.on.state("away", error instanceof Refusal ? error.message : "the server does not respond");
      }
      if (!document.hidden) await new Promise((done) => setTimeout(done, RETRY));
    }
  }

  async read() {
    const abort = (this.abort = new AbortController());
    let watchdog;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), SILENCE);
    };
    try {
      alive();
      const response = await fetch("api/events", {
        headers: this.headers(), signal: abort.signal, cache: "no-store",
      });
      if (response.status === 401) {
        clearTimeout(watchdog);
        await this.signIn();
        return;
      }
      if (!response.ok) throw new Refusal(await reason(response));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = [];
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        alive();
        // An event ends with an empty line, which may begin in one chunk and end in the next.
        rest.push(value);
        if (!value.includes("\n")) continue;
        const blocks = rest.join("").split("\n\n");
        rest = [blocks.pop()];
        blocks.forEach((block) => this.take(block));
      }
    } finally {
      clearTimeout(watchdog);
      abort.abort();
    }
  }

  take(block) {
    let name = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      if (line.startsWith("data: ")) data.push(line.slice(6));
    }
    try {
      if (data.length) this.on[name]?.(JSON.parse(data.join("\n")));
      this.on.state("open");
    } catch (error) {
      // An error of this page, not of the server: the next event may do.
      console.error(error);
      this.on.state("broken", String(error));
    }
  }

  /** Sends a request. Returns the answer; throws the reason as an error. */
  async ask(what, about) {
    let response;
    try {
      response = await fetch(`api/${what}`, {
        method: "POST",
        headers: { ...this.headers(), "content-type": "application/json" },
        body: JSON.stringify(about),
        signal: AbortSignal.timeout(ANSWER),
      });
    } catch {
      throw new Error("the server does not respond");
    }
    if (!response.ok) throw new Error(await reason(response));
    return response.json();
  }

  headers() {
    return this.token ? { authorization: `Bearer ${this.token}` } : {};
  }

  /** Asks for the token. It is kept for this tab only. */
  async signIn() {
    const dialog = document.getElementById("sign-in");
    const field = document.getElementById("token");
    this.on.state("token");
    if (this.token) {
      const why = document.getElementById("sign-in-why");
      why.textContent = "This token is wrong. Enter the one of the token file.";
    }
    keep((this.token = null));
    field.value = "";
    dialog.oncancel = (event) => event.preventDefault(); // there is nothing behind it
    dialog.showModal();
    await next(dialog, "close");
    // A header takes no other characters.
    keep((this.token = field.value.trim().replace(/[^\x21-\x7e]/g, "") || null));
  }
}

/** The server answers, but not with events. */
class Refusal extends Error {}

async function reason(response) {
  const text = await response.text();
  let words = text.trim();
  try {
    words = JSON.parse(text).error ?? words;
  } catch {
    // One line of text.
  }
  return words || `the server answered ${response.status}`;
}

function next(target, event) {
  return new Promise((done) => target.addEventListener(event, done, { once: true }));
}

// A browser may forbid storage: then the token lasts as long as the page.
function stored() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

function keep(token) {
  try {
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
  } catch {
    // As above.
  }
}
