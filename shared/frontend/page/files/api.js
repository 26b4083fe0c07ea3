// SPDX-License-Identifier: Apache-2.0

// What the page asks of its server: JSON, and watches as server-sent events. The credential goes with each request in a
// header, so a watch is read by fetch: EventSource sends no header.

const place = "holdfast.credential"; // in sessionStorage: it ends with the tab

export const credential = {
  get: () => sessionStorage.getItem(place) || "",
  set: (text) => sessionStorage.setItem(place, text),
  forget: () => sessionStorage.removeItem(place),
};

// Refusal is an answer of the server that is not OK.
export class Refusal extends Error {
  constructor(code, status, message) {
    super(message || status);
    this.code = code;
    this.status = status;
  }
}

// clock is by how much the server's clock is ahead of this one's, in ms: ages are counted by the server's.
export const clock = { ahead: 0, now: () => Date.now() + clock.ahead };

function setClock(response) {
  const told = Date.parse(response.headers.get("Date") || "");
  if (!told) return;
  const ahead = told + 500 - Date.now();
  clock.ahead = Math.abs(ahead) > 1500 ? ahead : 0; // the header has whole seconds
}

// parse reads JSON. A number that this language would round stays as its digits.
export function parse(text) {
  return JSON.parse(text, (_, v, context) =>
    typeof v === "number" && Number.isInteger(v) && !Number.isSafeInteger(v) && context?.source ? context.source : v);
}

function options(signal, more = {}) {
  const headers = { "Holdfast-Page": "1", ...more.headers };
  if (credential.get()) headers.Authorization = "Bearer " + credential.get();
  return { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", ...more, signal, headers };
}

async function answer(path, o) {
  const r = await fetch(path, o);
  setClock(r);
  const body = parse(await r.text());
  if (!r.ok || body.status !== "OK") throw new Refusal(r.status, body.status, body.message);
  return body;
}

const patience = 10000;

// get reads from the server. An error is a Refusal, or says that there was no answer.
export const get = (path, query = {}) => answer(address(path, query), options(AbortSignal.timeout(patience)));

// breakLock asks for a lock to be taken from its holder. The token is sent as the digits that it came with.
export function breakLock({ lock, token, actor, reason, grace }) {
  const fields = JSON.stringify({ lock, actor, reason, grace });
  const body = `${fields.slice(0, -1)},"token":${String(token).replace(/\D/g, "")}}`;
  return answer("/v1/break", options(AbortSignal.timeout(3 * patience), { method: "POST", body, headers: { "Content-Type": "application/json" } }));
}

// named returns a path that ends with a name of a lock or a file.
export const named = (path, name) => path + name.split("/").map(encodeURIComponent).join("/");

function address(path, query) {
  const q = new URLSearchParams(query).toString();
  return q ? `${path}?${q}` : path;
}

const silence = 15000; // a watch tells every five seconds that it lives

// watch tells of events until stop is called: changed(events) for the newest of those that came, state(word, detail) when the
// connection is live, is waiting to be tried again, or is refused for good. It resumes where it was.
export function watch(query, after, { changed, state }) {
  const stopped = new AbortController();
  let at = after;
  const run = async () => {
    for (let failed = 0; !stopped.signal.aborted; failed++) {
      try {
        const q = { ...query, bookmark: "5s" };
        if (at) q.after = at;
        await follow(address("/v1/watch", q), stopped.signal, (id, events) => {
          if (id) [at, failed] = [id, 0];
          state("live");
          if (events.length > 0) changed(events);
        });
      } catch (e) {
        if (stopped.signal.aborted) return;
        if (e instanceof Refusal && [400, 401, 403].includes(e.code)) {
          state("refused", e);
          return;
        }
      }
      if (stopped.signal.aborted) return;
      state("again");
      await pause(Math.min(5000, 250 * 2 ** failed) * (0.5 + Math.random()), stopped.signal);
    }
  };
  run();
  return () => stopped.abort();
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const t = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(t); resolve(); }, { once: true });
  });
}

const newest = 50; // of the events that come at once; they only say that the state has to be read again

// follow reads one stream to its end, and gives heard the last id and the newest events of each piece.
async function follow(path, signal, heard) {
  const silent = new AbortController();
  let timer = setTimeout(() => silent.abort(), silence);
  try {
    const r = await fetch(path, options(AbortSignal.any([signal, silent.signal]), { headers: { Accept: "text/event-stream" } }));
    if (!r.ok) {
      const body = parse(await r.text());
      throw new Refusal(r.status, body.status, body.message);
    }
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), silence);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      const told = read(blocks);
      heard(told.id, told.events);
      if (told.ended) return;
    }
  } finally {
    clearTimeout(timer);
    silent.abort();
  }
}

// read returns what a piece of a stream says. An id within a reset cannot be resumed at, and is left out.
function read(blocks) {
  let id = "", ended = false;
  const events = [];
  for (const [i, block] of blocks.entries()) {
    const field = (name) => block.split("\n").find((line) => line.startsWith(name + ": "))?.slice(name.length + 2);
    const at = field("id");
    if (at && at !== "reset") id = at;
    const kind = field("event");
    if (kind === "end") ended = true;
    if (!kind || kind === "bookmark" || kind === "end" || i < blocks.length - newest) continue;
    events.push(kind === "reset" ? { kind } : parse(field("data")));
  }
  return { id, events, ended };
}
