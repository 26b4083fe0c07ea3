// SPDX-License-Identifier: Apache-2.0

// A view that stays as new as its server: it is read again when an event says so, and now and then.

import { Refusal, watch } from "./api.js";
import { el, show, visible } from "./dom.js";

const gap = 400; // ms between two readings, however many events come

// live reads with load and shows with draw, until stop is called. Every is how often at least, in ms. Once the first reading is there,
// follow(data) returns what to watch: {query, after}, or null. Told gets what the connection is like: ("live" | "again" | "refused" | "down",
// error), and events the events that come.
//
// A tab that nobody sees reads nothing and has no watch: a browser has few connections to a server for all its tabs.
export function live(view, { load, draw, every, follow, told, events }) {
  let stopped = false, timer = 0, busy = false, dirty = false, unwatch = null, last = 0;

  const later = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(run, ms);
  };
  const soon = () => {
    dirty = true;
    if (!busy) later(Math.max(0, last + gap - Date.now()));
  };

  async function run() {
    if (stopped || busy || document.hidden) return;
    busy = true;
    dirty = false;
    try {
      const data = await load();
      if (stopped) return;
      show(view, draw(data));
      if (!unwatch) begin(data);
    } catch (e) {
      if (stopped) return;
      if (!(e instanceof Refusal)) {
        if (e instanceof SyntaxError || e instanceof TypeError && !/fetch|network|load/i.test(e.message)) console.error(e);
        told("down", e);
      } else {
        told("answers");
        show(view, refused(e));
      }
    } finally {
      busy = false;
      last = Date.now();
    }
    later(dirty ? gap : every);
  }

  function begin(data) {
    const what = follow?.(data);
    if (!what) {
      told("live");
      return;
    }
    unwatch = watch(what.query, what.after, {
      changed: (all) => { events?.(all); soon(); },
      state: (word, e) => {
        told(word, e);
        if (word === "again") soon();
      },
    });
  }

  function end() {
    unwatch?.();
    unwatch = null;
  }

  const seen = () => {
    if (document.hidden) {
      clearTimeout(timer);
      end();
    } else {
      soon();
    }
  };
  document.addEventListener("visibilitychange", seen);
  run();
  return {
    soon,
    stop: () => {
      stopped = true;
      clearTimeout(timer);
      end();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}

// refused says why there is nothing to show, and what would help.
export function refused(e) {
  const missing = e.code === 401
    ? el("button", { type: "button", "data-key": "credential", onclick: () => document.getElementById("who").click() }, "Give a key or a ticket")
    : null;
  const what = { 401: "The server wants a credential that may see this.", 403: "The access rules do not let you see this.", 503: "The cluster cannot answer this now; the page tries again." }[e.code] || "The server refused this.";
  return el("section.note.bad", { "data-refused": e.status }, el("h2", {}, what), el("p", {}, visible(e.message)), missing);
}
