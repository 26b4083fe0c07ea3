// SPDX-License-Identifier: Apache-2.0

// What example.html does: it waits for a lock, appends a line under it, and lets go.

import { Holdfast, HoldfastError } from "./holdfast.js";

const asked = new URLSearchParams(location.search);
const name = asked.get("lock") || "page";
const here = new URL("/v1/ws", location.href.replace(/^http/, "ws")).href;

function say(line) {
  document.getElementById("log").textContent += line + "\n";
  // Whoever tries this page out may listen.
  if (asked.has("report")) fetch(asked.get("report"), { method: "POST", body: line });
}

// The credential is in the fragment of the address, which no browser sends to any server.
const holdfast = new Holdfast(asked.has("ws") ? asked.getAll("ws") : here, { credential: location.hash.slice(1), first: 0 });
holdfast.watch({ lock: name }, (event) => say(`event ${event.kind}`), (e) => say(`watch ${e.status}`));
try {
  const own = await holdfast.acquire(`${name}/own`, { ttl: 10000, wait: 0 });
  own.signal.onabort = () => say(`lost ${own.name}: ${own.signal.reason.reason}`);
  say("own OK");
  say("waits");
  await holdfast.hold(name, { ttl: 10000 }, async (lock) => {
    say(`granted OK ${lock.token}`);
    const receipt = await lock.append(`${name}.log`, "a line from a page\n");
    say(`appended ${receipt.status} at ${receipt.offset}`);
  });
  say("released OK");
} catch (e) {
  if (!(e instanceof HoldfastError)) throw e;
  say(`failed ${e.status}: ${e.message}`);
}
