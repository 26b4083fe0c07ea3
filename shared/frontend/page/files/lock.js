// SPDX-License-Identifier: Apache-2.0

// The view of one lock: who holds it, why it is not available, who waits, its files, and the line of its past.

import { clock, get, named } from "./api.js";
import { age, bytes, count, duration, el, facts, lines, millis, name, person, span, visible } from "./dom.js";
import { fileState } from "./lists.js";

const past = 50; // grants of the time line

// readLock reads all that the view shows. May says whether the rules let the visitor break it.
export const readLock = (lock, rules) => async () => {
  const [why, history, may] = await Promise.all([
    get(named("/v1/why/", lock)),
    get("/v1/history", { lock, limit: String(past) }),
    rules() ? get("/v1/whoami", { verb: "break", lock }) : { allowed: true },
  ]);
  return { why, history, may };
};

export const drawLock = (lock, breaks) => ({ why, history, may }) => {
  const l = why.lock, held = l.token !== 0;
  return [
    el("section", { "aria-labelledby": "lock-title" },
      el("p.path", {}, el("a", { href: "#/locks", "data-key": "back" }, "Locks")),
      el("h1", { id: "lock-title" }, name(lock)),
      el("p", {}, el(`span.state.${held ? "held" : "free"}`, { "data-state": held ? "held" : "free" }, held ? (l.limit ? `${l.permits_taken} of ${l.limit} permits` : l.mode === "shared" ? `shared by ${Math.max(l.holders, 1)}` : "held") : "free"),
        l.queue_length ? ` ${count(l.queue_length, "request")} waiting` : " nobody waits"),
      el("p.why", {}, el("b", {}, "Why: "), advice(why.advice)),
      may.allowed || !held ? null : el("p.hint", {}, `You may not break it: ${visible(may.why || "")}`)),
    held ? el("section", { "aria-labelledby": "holder-title" },
      el("h2", { id: "holder-title" }, l.holders > 1 ? "Holders" : "Holder"),
      holder(l, { ...l, ...l.holder, ask: l.ask }, why.silent, may.allowed, breaks),
      l.shared_with.map((s) => holder(l, s, "", may.allowed, breaks))) : null,
    l.waiters.length > 0 ? el("section", { "aria-labelledby": "waiters-title" },
      el("h2", { id: "waiters-title" }, "Waiting"),
      el("ol.waiters", {}, l.waiters.map((w) => el("li", {}, person(w), " for ", age(w.since), w.limit ? `, ${w.weight} of ${w.limit} permits` : w.mode === "shared" ? ", to share it" : "", said(w.metadata)))),
      l.queue_length > l.waiters.length ? el("p.hint", {}, `and ${l.queue_length - l.waiters.length} more`) : null) : null,
    l.files.length > 0 ? el("section", { "aria-labelledby": "files-title" },
      el("h2", { id: "files-title" }, "Files"),
      el("ul.plain", {}, l.files.map((f) => el("li", {}, name(f.file), `, ${bytes(f.end)}, `, fileState(f))))) : null,
    el("section", { "aria-labelledby": "past-title" },
      el("h2", { id: "past-title" }, "History"),
      line(history),
      why.missing || history.skipped || history.gaps.length > 0 ? el("p.hint", {}, "The history may lack grants that ended.") : null,
      history.message ? el("p.hint", {}, visible(history.message)) : null),
  ];
};

// advice sets the command with which it ends apart.
function advice(text) {
  const [, words, command] = /^(.*?)(holdfast (?:break|acquire|file) .*)$/s.exec(text) || ["", text, ""];
  return [visible(words), command ? el("code", {}, visible(command)) : ""];
}

const said = (metadata) => metadata ? el("pre.said", { tabindex: "0", role: "note", "aria-label": "What it says of itself" }, lines(metadata)) : null;

function holder(l, h, silent, allowed, breaks) {
  const left = millis(h.remaining), ttl = millis(h.ttl);
  return el("div.holder", {},
    facts([
      ["Who", person(h)],
      ["Held for", age(h.since)],
      ["Token", String(h.token)],
      ["Lease", Number.isNaN(left) ? `${duration(h.ttl)}; what is left only the primary knows` : [`${span(left)} of ${span(ttl)} left`, el("meter", { min: 0, max: ttl, value: left, "aria-label": "What is left of the lease" })]],
      silent ? ["Last heard", `${duration(silent)} ago`] : null,
      h.max_hold && h.max_hold !== "0s" ? ["Ends after", duration(h.max_hold)] : null,
      h.ask ? ["Asked to let go", `by ${visible(h.ask.actor || "somebody")}: ${visible(h.ask.reason)}${h.ask.remaining ? `; it is broken in ${duration(h.ask.remaining)}` : ""}`] : null,
    ]),
    said(h.metadata),
    allowed ? el("button.danger", { type: "button", "data-key": `break ${h.token}`, onclick: () => breaks({ lock: l.lock, token: h.token, holder: h }) }, "Break…") : null);
}

const ends = { held: "held", released: "released", released_by_other: "released by another client", expired: "expired", broken: "broken", cleared: "cleared" };

// line is the history as a time line, newest first: each grant is a bar on the time from the oldest of them to now.
function line(history) {
  const all = history.grants;
  if (all.length === 0) return el("p.hint", {}, "No grant of this lock is known.");
  const now = clock.now();
  const begin = Math.min(...all.map((g) => Date.parse(g.since) || now));
  const whole = Math.max(1000, now - begin);
  return el("ol.line", { reversed: true }, all.map((g) => {
    const from = Date.parse(g.since) || begin, to = g.why === "held" ? now : Date.parse(g.ended) || from;
    const bar = el(`span.bar.${Object.hasOwn(ends, g.why) ? g.why : "other"}`);
    bar.style.left = `${(99 * (from - begin) / whole).toFixed(2)}%`;
    bar.style.width = `${Math.max(1, 100 * (to - from) / whole).toFixed(2)}%`;
    return el("li", {},
      el("div.track", { "aria-hidden": "true" }, bar),
      el("div.grant", {},
        el("span", {}, el("b", {}, Object.hasOwn(ends, g.why) ? ends[g.why] : visible(g.why)), g.why === "held" ? ` for ${span(to - from)}` : ` after ${span(to - from)}`, g.why === "broken" || g.reason ? ` by ${visible(g.actor || "somebody")}: ${visible(g.reason)}` : ""),
        " · ", person(g), " · ",
        el("small", {}, `token ${g.token}, from ${when(g.since)}${g.why === "held" ? "" : ` to ${when(g.ended)}`}${g.file ? `, last wrote ${visible(g.file)}` : ""}`)));
  }));
}

const when = (moment) => moment ? new Date(moment).toLocaleString() : "an unknown time";
