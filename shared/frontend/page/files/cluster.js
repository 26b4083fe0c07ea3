// SPDX-License-Identifier: Apache-2.0

// The view of the cluster and its servers.

import { get } from "./api.js";
import { bytes, count, duration, el, facts, visible } from "./dom.js";

export const status = () => get("/v1/status", { each: "true" });

// cares lists what is wrong with a server.
export function cares(s) {
  const all = [];
  if (s.conflict) all.push("two processes use this ID");
  else if (s.role === "unreachable") all.push("does not answer");
  else if (s.unwaited) all.push("answers do not wait for it: it was silent");
  else if (s.role === "replica" && !s.able) all.push("could not take over now");
  if (s.volume.full) all.push("the volume is full");
  if (s.volume.canary.stale_direct_reads > 0) all.push("the filesystem showed it old data");
  return all.concat(s.volume.warnings || []);
}

// address returns the URL of the page of a server, "" if there is none.
export function address(s) {
  try {
    const u = new URL(`${location.protocol}//${s.client}/`);
    return u.pathname === "/" && u.search === "" && u.username === "" ? u.origin + "/" : "";
  } catch {
    return "";
  }
}

export function drawCluster(b) {
  const primary = b.servers.find((s) => s.role === "primary");
  const troubles = b.servers.flatMap((s) => cares(s).map((text) => `Server ${s.id}: ${text}`));
  const live = b.servers.filter((s) => s.reachable).length, need = Math.floor(b.servers.length / 2) + 1;
  if (!primary && live < need) troubles.push(`No majority: ${live} of ${b.servers.length} servers live, and a primary needs ${need}. Start the others.`);
  const health = !primary ? "down" : troubles.length > 0 ? "degraded" : "healthy";
  const said = {
    down: "Down: no server is primary",
    degraded: `Server ${primary?.id} is primary, and something needs attention`,
    healthy: `Healthy: server ${primary?.id} is primary`,
  }[health];
  return [
    el("section", { "aria-labelledby": "cluster-title" },
      el("h1", { id: "cluster-title" }, "Cluster"),
      el(`p.health.${health}`, { "data-health": health }, said),
      troubles.length > 0 ? el("ul.troubles", {}, troubles.map((t) => el("li", {}, visible(t)))) : null,
      facts([["Cluster", el("code", {}, visible(b.cluster_id))], ["Term", String(b.epoch)], ["Position in the log", b.lsn ? String(b.lsn) : "–"]]),
      b.table ? counts(b.table) : null,
      b.message ? el("p.hint", {}, visible(b.message)) : null),
    el("section", { "aria-labelledby": "servers-title" },
      el("h2", { id: "servers-title" }, "Servers"),
      el("ul.cards", {}, b.servers.map((s) => server(s, b)))),
  ];
}

function counts(t) {
  const tile = (n, label, href, bad) => el(bad && n > 0 ? "li.bad" : "li", {},
    el(href ? "a" : "span", href ? { href, "data-key": label } : {}, el("b", {}, Number(n).toLocaleString("en")), ` ${label}`));
  return el("ul.tiles", { "aria-label": "What there is" },
    tile(t.locks, "locks", "#/locks"), tile(t.held, "held"), tile(t.waiting, "waiting"), tile(t.files, "files", "#/files"),
    tile(t.clients, "clients"), tile(t.quarantined, "quarantined", "", true), tile(t.unheard, "not heard in this term", "", true));
}

function server(s, b) {
  const v = s.volume, own = s.id === b.server_id, known = v.filesystem !== "";
  const wrong = cares(s);
  return el(wrong.length > 0 ? "li.card.care" : "li.card", { "data-server": s.id },
    el("h3", {}, `Server ${s.id} `, el(`span.role.${/^[a-z]+$/.test(s.role) ? s.role : "unknown"}`, {}, s.role)),
    wrong.length > 0 ? el("ul.troubles", {}, wrong.map((t) => el("li", {}, visible(t)))) : null,
    facts([
      ["Clients at", own || !address(s) ? el("code", {}, visible(s.client)) : el("a", { href: address(s), rel: "noreferrer", "data-key": `server ${s.id}` }, visible(s.client))],
      ["Term", s.epoch ? String(s.epoch) : "–"],
      ["Heard", own ? "it shows this page" : s.heard_ago ? `${duration(s.heard_ago)} ago` : "never"],
      known ? ["Volume", `${visible(v.filesystem)}, ${v.full ? "full" : wrong.length > 0 ? "see above" : "fine"}, checked ${duration(v.check_age)} ago`] : null,
      known ? ["Space left", bytes(v.free_bytes)] : null,
      known && s.role !== "primary" ? ["Canary", canary(v.canary)] : null,
      s.version ? ["Version", visible(s.version)] : null,
      s.pid ? ["Process", `${s.pid}, up ${duration(s.uptime)}`] : null,
    ]));
}

function canary(c) {
  if (!c.looks) return "not looked at yet";
  const old = c.stale_direct_reads > 0 ? `ALARM: ${count(c.stale_direct_reads, "direct read")} showed old data`
    : c.stale_reads > 0 ? `plain reads were up to ${duration(c.max_lag)} old` : "fresh";
  return `${old}, read ${duration(c.age)} ago`;
}
