// SPDX-License-Identifier: Apache-2.0

// The lists of locks and of files: a page at a time, by the beginning of their names, which the server looks for.

import { get } from "./api.js";
import { age, bytes, duration, el, name, person, visible } from "./dom.js";

export const pageSize = 100;

// read returns a function that reads the page of a list that a state is at: {prefix, after}.
export const read = (path, state) => () => {
  const q = { limit: String(pageSize) };
  if (state.prefix) q.prefix = state.prefix;
  const after = state.after.at(-1);
  if (after) q.after = after;
  return get(path, q);
};

// pager is the line with the buttons between pages. Turn is called with "first", "back" or "on".
function pager(state, shown, next, thing, turn) {
  const button = (text, to, off) => el("button.quiet", { type: "button", "data-key": `page ${to}`, disabled: off, onclick: () => turn(to) }, text);
  const from = state.after.length * pageSize;
  const text = shown === 0 ? `No ${thing.toLowerCase()} here` : `${thing} ${(from + 1).toLocaleString("en")} to ${(from + shown).toLocaleString("en")}${next ? ", and more" : ""}`;
  if (from === 0 && !next) return el("div.pager", {}, el("span", {}, text));
  return el("div.pager", {}, el("span", {}, text), button("First", "first", from === 0), button("Back", "back", from === 0), button("Next", "on", !next));
}

// list draws a list with its head and pager.
function list({ title, caption, columns, rows, bar }) {
  return [
    bar(),
    rows.length === 0 ? null : el("table.rows", {},
      el("caption.unseen", {}, caption),
      el("thead", {}, el("tr", {}, columns.map((c) => el("th", { scope: "col" }, c)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((c, i) => i === 0 ? el("th", { scope: "row" }, c) : el("td", { "data-label": columns[i] }, c)))))),
    rows.length > 20 ? bar() : null,
  ];
}

export const lockPage = (lock) => "#/lock/" + encodeURIComponent(lock);

export const drawLocks = (state, turn) => (b) => list({
  caption: "Locks, in the order of their names",
  columns: ["Lock", "Holder", "Held for", "Lease", "Waiting", "Files"],
  rows: b.locks.map((l) => [
    el("a", { href: lockPage(l.lock), "data-key": "lock " + l.lock }, name(l.lock)),
    l.token ? [person(l.holder), l.holders > 1 ? el("small", {}, ` and ${l.holders - 1} more, ${l.limit ? `${l.permits_taken} of ${l.limit} permits` : "shared"}`) : null].filter((x) => x) : el("span.free", {}, "free"),
    l.token ? age(l.since) : "–",
    !l.token ? "–" : l.remaining ? `${duration(l.remaining)} of ${duration(l.ttl)}` : duration(l.ttl),
    l.queue_length ? el("b", {}, String(l.queue_length)) : "0",
    String(l.file_count),
  ]),
  bar: () => pager(state, b.locks.length, b.next, "Locks", (to) => turn(to, b.next)),
});

export const drawFiles = (state, turn) => (b) => list({
  caption: "Protected files, in the order of their names",
  columns: ["File", "Lock", "Bytes", "Generation", "State"],
  rows: b.files.map((f) => [
    name(f.file),
    el("a", { href: lockPage(f.lock), "data-key": "lock of " + f.file }, name(f.lock)),
    bytes(f.end), String(f.generation), fileState(f),
  ]),
  bar: () => pager(state, b.files.length, b.next, "Files", (to) => turn(to, b.next)),
});

export function fileState(f) {
  if (f.quarantined) return el("span.bad", {}, `quarantined: ${visible(f.reason)}`);
  return f.sealed ? "sealed" : "open";
}
