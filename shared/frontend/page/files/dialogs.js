// SPDX-License-Identifier: Apache-2.0

// The two dialogs: for the credential, and for breaking a lock.

import { breakLock, credential, get, Refusal } from "./api.js";
import { duration, place, visible } from "./dom.js";

const at = (id) => document.getElementById(id);

// openDialog shows a dialog. The view behind it may be drawn anew meanwhile: the focus goes back to what has the same data-key then.
function openDialog(dialog) {
  const from = document.activeElement, key = from?.dataset.key;
  dialog.onclose = () => {
    if (!from?.isConnected) (document.querySelector(`[data-key="${CSS.escape(key || "")}"]`) || at("view")).focus();
  };
  for (const b of dialog.querySelectorAll("[data-close]")) b.onclick = () => dialog.close();
  dialog.showModal();
}

// whoText says for whom the server takes the visitor.
export function whoText(who) {
  if (!who) return "The server does not answer.";
  if (!who.rules) return "This cluster has no access rules: everybody may do everything, and no credential is needed.";
  if (!who.identity) return "You have shown no credential.";
  return `The server takes you for ${visible(who.identity)}${who.operator ? ", an operator" : ""}${who.expires ? `, until ${new Date(who.expires).toLocaleString()}` : ""}.`;
}

const loopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

// askCredential lets the visitor paste a credential. Changed is called when there is another one, or none.
export function askCredential(who, changed) {
  const dialog = at("credential"), text = at("credential-text"), said = at("credential-said");
  at("credential-who").textContent = whoText(who);
  at("credential-plain").hidden = location.protocol === "https:" || loopback.test(location.hostname);
  at("credential-forget").hidden = !credential.get();
  said.textContent = text.value = "";
  at("credential-forget").onclick = () => {
    credential.forget();
    dialog.close();
    changed();
  };
  dialog.querySelector("form").onsubmit = async (e) => {
    e.preventDefault();
    const before = credential.get();
    const given = text.value.trim();
    if (!/^[\x21-\x7e]+$/.test(given)) {
      said.textContent = "This is no credential: paste what the command printed, without anything else.";
      return;
    }
    credential.set(given);
    try {
      await get("/v1/whoami");
    } catch (e) {
      if (before) credential.set(before);
      else credential.forget();
      said.textContent = e instanceof Refusal ? e.message : "The server does not answer: try again.";
      return;
    }
    text.value = "";
    dialog.close();
    changed();
  };
  openDialog(dialog);
}

// askBreak lets the visitor break a grant: {lock, token, holder}. Done is called after an answer.
export function askBreak({ lock, token, holder }, who, done) {
  const dialog = at("break"), form = dialog.querySelector("form"), button = at("break-do"), said = at("break-said");
  form.reset();
  said.textContent = "";
  said.className = "";
  button.hidden = button.disabled = false;
  at("break-close").textContent = "Cancel";
  at("break-lock").textContent = visible(lock);
  at("break-holder").textContent = `It is held by ${visible([holder.identity, holder.command, place(holder), holder.client_id].filter((x) => x).join(", "))}, under token ${token}.`;
  form.onsubmit = async (e) => {
    e.preventDefault();
    button.disabled = true;
    said.className = "";
    said.textContent = "Asking the primary…";
    const grace = at("break-grace").value;
    try {
      await breakLock({ lock, token, actor: who?.identity || "somebody at the page", reason: at("break-reason").value, grace });
      said.textContent = grace === "0s" ? "The lock was broken." : `The holder was asked to let go. The lock is broken in ${duration(grace)}, unless it is released before.`;
      said.className = "good";
      button.hidden = true;
      at("break-close").textContent = "Close";
      at("break-close").focus();
    } catch (e) {
      said.className = "bad";
      said.textContent = !(e instanceof Refusal) || e.status === "UNKNOWN" ? "It is not known whether that was done: look at the lock before you try again."
        : { 401: "The server wants a credential that may break locks: ", 403: "The access rules do not let you break this lock: " }[e.code]?.concat(e.message) || `Not done: ${e.message}`;
      button.disabled = false;
    }
    done();
  };
  openDialog(dialog);
  at("break-reason").focus();
}
