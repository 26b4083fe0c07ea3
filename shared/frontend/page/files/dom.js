// SPDX-License-Identifier: Apache-2.0

// Elements and texts. Everything that comes from a server becomes text, and nothing else: no markup is ever made of it.

import { clock } from "./api.js";

// el makes an element: el("p.note", {title: "x"}, "text", child, …). Children that are null or "" are left out.
export function el(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const e = document.createElement(tag);
  e.classList.add(...classes);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") e[name] = value;
    else if (value !== null && value !== false) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

// visible returns text with what would be invisible, or turn the text around it, written out.
export function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\u2028\u2029\u115f\u1160\u3164\uffa0]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// lines is visible for a text that may have several lines.
export const lines = (text) => String(text).split("\n").map(visible).join("\n");

// name shows the name of a lock or a file, or another text of strangers, apart from the text around it.
export const name = (text) => el("bdi.name", {}, visible(text));

// show has a container show children. What is there already and did not change stays as it is, with its focus, its scrolled place and what is
// selected in it. The focus of what goes away moves to what has the same data-key.
export function show(container, made) {
  const next = container.cloneNode(false);
  next.append(...[made].flat(Infinity).filter((c) => c !== null && c !== ""));
  const key = container.contains(document.activeElement) ? document.activeElement.dataset.key : "";
  patch(container, next);
  if (key && document.activeElement?.dataset.key !== key) container.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// patch makes a node what another one is, or puts that in its place.
function patch(old, next) {
  if (old.nodeName !== next.nodeName || old.dataset?.key !== next.dataset?.key) {
    old.replaceWith(next);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = next.style.cssText; // the policy takes no style as text
    else old.setAttribute(name, value);
  }
  old.onclick = next.onclick;
  const [before, after] = [[...old.childNodes], [...next.childNodes]];
  after.forEach((n, i) => i < before.length ? patch(before[i], n) : old.append(n));
  before.slice(after.length).forEach((n) => n.remove());
}

const units = { h: 3600000, m: 60000, s: 1000, ms: 1 };

// millis reads a duration as Go writes it, such as 1m30.5s; NaN for "".
export function millis(text) {
  if (!/^-?(\d+(\.\d+)?(h|ms|m|s))+$/.test(text || "")) return NaN;
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/(\d+(?:\.\d+)?)(h|ms|m|s)/g)) sum += Number(n) * units[unit];
  return text.startsWith("-") ? -sum : sum;
}

// span formats milliseconds for people, with the two largest units.
export function span(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return ms < 1 ? "0 s" : `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  const parts = [[Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "min"], [s % 60, "s"]];
  const first = parts.findIndex(([n]) => n > 0);
  return parts.slice(first, first + 2).filter(([n]) => n > 0).map(([n, unit]) => `${n} ${unit}`).join(" ");
}

// duration formats what Go wrote.
export const duration = (text) => span(millis(text));

// age shows how long ago something was, and goes on counting.
export function age(since) {
  const at = Date.parse(since);
  if (!at) return "–";
  const e = el("time", { datetime: since, title: new Date(at).toLocaleString() });
  e.textContent = ageText(at);
  return e;
}

const ageText = (at) => span(Math.max(1000, Math.floor((clock.now() - at) / 1000) * 1000));

// tick counts all ages on.
export function tick() {
  for (const e of document.querySelectorAll("time[datetime]")) {
    const text = ageText(Date.parse(e.dateTime));
    if (e.textContent !== text) e.textContent = text;
  }
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  for (; n >= 1024 && i < names.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${names[i]}`;
}

export const count = (n, thing) => `${Number(n).toLocaleString("en")} ${thing}${n === 1 ? "" : "s"}`;

// place is the process and the machine of a holder or a waiter, and its user there, as it says itself; "" if it says nothing.
export const place = (h) => h.host ? `pid ${h.pid} ${h.user ? `of ${h.user} ` : ""}on ${h.host}` : "";

// person shows a holder or a waiter.
export function person(h) {
  if (!h) return "–";
  const where = place(h);
  return el("span.person", {},
    el("bdi", {}, visible(h.identity || h.command || h.client_id)),
    el("small", {}, el("bdi", {}, visible([h.identity && h.command ? `calling itself ${h.command}` : "", where, h.identity || h.command ? h.client_id : ""].filter((x) => x).join(", ")))));
}

// facts is a list of names and what they are.
export const facts = (rows) => el("dl", {}, rows.filter((r) => r).map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));
