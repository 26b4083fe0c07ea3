// SPDX-License-Identifier: Apache-2.0

// The page: which view is shown, what the connection is like, and who its visitor is.

import { get, Refusal } from "./api.js";
import { address, drawCluster, status } from "./cluster.js";
import { askBreak, askCredential } from "./dialogs.js";
import { el, show, tick, visible } from "./dom.js";
import { drawFiles, drawLocks, read } from "./lists.js";
import { live } from "./live.js";
import { drawLock, readLock } from "./lock.js";

const at = (id) => document.getElementById(id);
const view = at("view");

const page = {
  who: null, // for whom the server takes the visitor
  status: null, // the newest one
  connection: "connecting",
  steady: "live", // what it was before the server did not answer
  refusal: "", // why there are no events, if there are none
  shown: "", // the name of the view
  view: null, // what is shown, see live
};

// say tells who cannot see the page what has changed.
function say(text) {
  at("said").textContent = text;
}

// told takes in what the connection of the view is like.
function told(state, e) {
  if (state === "answers") state = ["down", "connecting"].includes(page.connection) ? page.steady : page.connection;
  if (state === "live" || state === "refused") page.steady = state;
  const before = page.connection;
  page.connection = state;
  if (state === "refused") page.refusal = e?.message ?? page.refusal;
  drawConnection();
  if (state !== before && (state === "down" || before === "down")) say(at("connection-text").textContent);
}

function drawConnection() {
  const here = page.status ? `server ${page.status.server_id}` : "this server";
  const text = {
    connecting: "Connecting",
    live: `Live at ${here}`,
    again: `Connecting again to ${here}`,
    refused: `Read every few seconds from ${here}: its events are not for you (${visible(page.refusal)})`,
    down: `${here[0].toUpperCase()}${here.slice(1)} does not answer. The page tries again`,
  }[page.connection];
  const others = page.connection !== "down" ? [] : (page.status?.servers || [])
    .filter((s) => s.id !== page.status.server_id && address(s))
    .map((s) => el("a", { href: address(s) + location.hash, rel: "noreferrer" }, `server ${s.id}`));
  at("connection").dataset.state = page.connection;
  show(at("connection-text"), [text, others.map((a, i) => [i === 0 ? "; or look at " : " or ", a])]);
}

// newStatus takes in a status, and tells of a failover.
function newStatus(b) {
  const before = page.status;
  page.status = b;
  const primary = b.servers.find((s) => s.role === "primary");
  const was = before?.servers.find((s) => s.role === "primary");
  if (before && primary && (primary.id !== was?.id || b.epoch !== before.epoch)) say(`Server ${primary.id} is primary now, in term ${b.epoch}`);
  if (before && !primary && was) say("No server is primary now");
  drawConnection();
}

const statusEvery = 2000;

// poll reads the status now and then where the view does not: it shows a failover, and whether the server lives.
async function poll() {
  if (!document.hidden && page.shown !== "cluster") {
    try {
      newStatus(await get("/v1/status"));
      told("answers");
    } catch (e) {
      if (!(e instanceof Refusal)) told("down");
    }
  }
  setTimeout(poll, statusEvery);
}

async function identify() {
  try {
    page.who = await get("/v1/whoami");
  } catch (e) {
    page.who = e instanceof Refusal ? { rules: 1, identity: "" } : null;
  }
  at("who").textContent = page.who?.identity ? visible(page.who.identity) : "Credential";
}

// Views by the first word of the address behind #.

function showCluster(into) {
  page.view = live(into, {
    load: status, every: statusEvery, told,
    draw: (b) => { newStatus(b); return drawCluster(b); },
  });
}

// showList shows a list with a field for the beginning of names.
function showList(into, title, path, prefix, draw, follow) {
  const state = { prefix, after: [] };
  const list = el("div", {});
  const field = el("input", { type: "search", id: "prefix", value: prefix, autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: "512" });
  const word = title.toLowerCase();
  const start = () => {
    page.view?.stop();
    page.view = live(list, { load: read(path, state), draw: draw(state, turn), every: 5000, told, follow: follow(state) });
  };
  const turn = (to, next) => {
    if (to === "first") state.after = [];
    else if (to === "back") state.after.pop();
    else state.after.push(next);
    start();
    into.scrollIntoView();
    say(`Page ${state.after.length + 1} of ${word}`);
  };
  let typed = 0;
  field.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => {
      if (!list.isConnected) return; // another view is shown by now
      state.prefix = field.value;
      state.after = [];
      history.replaceState(null, "", `#/${word}${field.value ? "/" + encodeURIComponent(field.value) : ""}`);
      start();
    }, 200);
  });
  into.replaceChildren(
    el("h1", {}, title),
    el("form.search", { role: "search", onsubmit: (e) => e.preventDefault() }, el("label", { for: "prefix" }, `${title} whose names begin with`), field),
    list);
  start();
}

const showLocks = (into, prefix) => showList(into, "Locks", "/v1/locks", prefix, drawLocks,
  (state) => (b) => ({ query: { prefix: state.prefix }, after: String(b.lsn) }));

const showFiles = (into, prefix) => showList(into, "Files", "/v1/files", prefix, drawFiles, () => () => null);

function showLock(into, lock) {
  let holds = null;
  const draw = drawLock(lock, (grant) => askBreak(grant, page.who, () => page.view.soon()));
  page.view = live(into, {
    load: readLock(lock, () => page.who?.rules), every: 2000, told,
    draw: (data) => {
      const token = data.why.lock.token;
      if (holds !== null && holds !== token) say(token ? `The lock is held under token ${token} now` : "The lock is free now");
      holds = token;
      return draw(data);
    },
    follow: ({ why }) => ({ query: { lock }, after: String(why.lock.lsn) }),
  });
}

const views = { cluster: showCluster, locks: showLocks, lock: showLock, files: showFiles };

// route shows the view that the address names.
function route(focus) {
  const [, word = "", ...rest] = location.hash.split("/");
  let what = "";
  try {
    what = decodeURIComponent(rest.join("/"));
  } catch { /* an address that is cut off names nothing */ }
  page.shown = Object.hasOwn(views, word) && !(word === "lock" && !what) ? word : "cluster";
  page.view?.stop();
  const into = el("div", {});
  view.replaceChildren(into);
  page.view = null;
  views[page.shown](into, what);
  for (const a of document.querySelectorAll("nav a")) {
    const here = a.dataset.view === (page.shown === "lock" ? "locks" : page.shown);
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.title = `${what && page.shown === "lock" ? visible(what) : page.shown[0].toUpperCase() + page.shown.slice(1)} – Holdfast`;
  if (focus) view.focus();
}

at("who").addEventListener("click", () => askCredential(page.who, async () => {
  await identify();
  route(false);
}));
at("skip").addEventListener("click", (e) => {
  e.preventDefault();
  view.focus();
});
addEventListener("hashchange", () => route(true));
setInterval(tick, 1000);
route(false);
identify();
poll();
