// SPDX-License-Identifier: Apache-2.0

// Locks and exactly-once appends of a Holdfast cluster, for pages and other programs in JavaScript, over one WebSocket. It needs
// nothing else, and has no dependencies.
//
//   import { Holdfast } from "./holdfast.js";
//
//   const holdfast = new Holdfast(["wss://h1:7601/v1/ws", "wss://h2:7601/v1/ws"], { credential: key });
//   await holdfast.hold("orders", { ttl: 10000, wait: 60000 }, async (lock) => {
//     await lock.append("orders.log", "one line\n");
//   });
//
// All times are in milliseconds. Whatever happens to connections and servers, a request is executed at most once: it is repeated under
// its number until it is answered.

const dialing = 5000; // for how long one server may take until it knows us
const silence = 5000; // after which a server is asked whether it lives, and as long again until it is left
const longest = 5000; // between two attempts
const unknownHeld = 2 ** 32 - 1; // a number of locks that no client holds: the answer then lists those that it has

// What these say is that nothing was done, or that it is not known yet: the request is repeated.
const notNow = new Set(["UNKNOWN", "SECONDARY_MODE", "SERVER_FENCING", "NO_QUORUM", "STORAGE_UNAVAILABLE", "LIMITED"]);
// What changes something has a number, under which it is executed once.
const numbered = new Set(["acquire", "release", "downgrade", "extend", "metadata", "break", "bind", "unbind", "seal", "rotate", "append"]);
const tokenRefused = new Set(["INVALID_TOKEN", "LEASE_EXPIRED", "STALE_REQUEST"]);

// HoldfastError says that something did not happen. status is the service's word for why (docs/http.md), or UNAVAILABLE if no server said
// in time. With unknown, the request may have been executed all the same, or may be yet.
export class HoldfastError extends Error {
  constructor(status, message, more = {}) {
    super(message || status);
    this.name = new.target.name;
    this.status = status;
    this.unknown = more.unknown || false;
    this.answer = more.answer;
  }
}

// LostError says that a lock is not held any more, though nobody here released it. status is LOST.
export class LostError extends HoldfastError {
  constructor(lock, token, reason) {
    super("LOST", `lock ${JSON.stringify(lock)} was lost: ${reason}`);
    this.lock = lock;
    this.token = token;
    this.reason = reason;
  }
}

// now reads both clocks: one of them stands still while some machines sleep, the other one may be set.
const now = () => ({ steady: performance.now(), wall: Date.now() });

// since returns how long ago a moment was, by the clock that says more: a lease rather ends early.
function since(then) {
  const at = now();
  return Math.max(at.steady - then.steady, at.wall - then.wall);
}

// parse reads JSON. A whole number that this language would round stays as its digits.
function parse(text) {
  return JSON.parse(text, (_, v, context) =>
    typeof v === "number" && Number.isInteger(v) && !Number.isSafeInteger(v) ? context?.source ?? String(v) : v);
}

// milliseconds reads a duration as the service writes it, such as "1m29.5s".
export function milliseconds(text) {
  const units = { h: 3600000, m: 60000, s: 1000, ms: 1, "µs": 0.001, us: 0.001, ns: 0.000001 };
  let total = 0;
  for (const [, n, unit] of String(text || "").matchAll(/([0-9.]+)(ms|µs|us|ns|h|m|s)/g)) total += Number(n) * units[unit];
  return total;
}

// span writes a duration as the service reads it.
function span(ms) {
  if (ms === Infinity) return "forever";
  if (typeof ms !== "number" || !(ms >= 0)) throw new TypeError(`${ms}: use milliseconds`);
  return `${Math.ceil(ms)}ms`;
}

// Lock is one holding of a lock. Holdfast.acquire makes it. Its end is final.
export class Lock {
  #client;
  #sent; // when the question was sent whose answer renewed it last
  #left; // of the lease, counted from then
  #ended = new AbortController();
  #timer;
  #once; // the slot that it was acquired for
  #done; // what done returned

  constructor(client, name, token, ttl, sent, left, once) {
    this.#once = once;
    this.name = name;
    this.token = token; // the fencing token, for resources that remember the highest one they have seen
    this.ttl = ttl;
    this.onask = null; // called with {actor, reason, grace} when an operator asks for the lock
    this.#client = client;
    this.renewed(sent, left);
  }

  // signal is aborted when the lock has ended; its reason is a LostError unless it was released.
  get signal() {
    return this.#ended.signal;
  }

  // held reports whether the lock is certainly held now. The clock decides, whatever timers and the network do.
  get held() {
    return this.remaining > 0;
  }

  // remaining is for how long the lock is certainly held, if no renewal is answered.
  get remaining() {
    if (this.signal.aborted) return 0;
    const left = this.#left - since(this.#sent);
    if (left > 0) return left;
    this.lose("no renewal was answered in time: the lease may have ended");
    return 0;
  }

  // check throws a LostError unless the lock is certainly held.
  check() {
    if (!this.held) throw this.signal.reason;
  }

  // append appends text, or bytes, to a protected file, exactly once, and only under the live token. It resolves with the receipt:
  // {file, offset, length, crc32c, generation, lsn}. With at, it appends only if the file ends there.
  async append(file, data, { at, adopt = false } = {}) {
    const fields = typeof data === "string" ? { data } : { data_base64: base64(data) };
    if (at !== undefined) fields.expected_offset = at;
    if (adopt) fields.adopt_existing = true;
    return this.ask("append", { file, ...fields });
  }

  // say replaces the text that others see beside the holder.
  say(text) {
    return this.ask("metadata", { metadata: text });
  }

  // ask sends any operation that names a lock and a token, see docs/http.md.
  async ask(op, fields = {}) {
    this.check();
    const m = await this.#client.ask(op, { lock: this.name, token: this.token, ...fields });
    if (m.status === "OK" || (m.status === "UNKNOWN" && m.committed)) return m;
    if (tokenRefused.has(m.status)) throw this.lose(`the service refuses its token: ${m.message}`);
    throw new HoldfastError(m.status, `${op}: ${m.message || m.status}`, { answer: m });
  }

  // release gives the lock back. To release again is no error; it throws a LostError if the lock was lost before.
  release() {
    return this.#giveBack(false);
  }

  // done releases the lock, and marks the slot that it was acquired for as done, both or neither: nobody gets the lock for that slot, nor
  // for an earlier one, from then on. It throws a LostError if the lock was lost before, and has marked nothing then. With another error
  // that is unknown, no server has answered within the budget: the request goes on until the client is closed, and to call done again
  // waits for its answer. To call it again never does anything else.
  async done() {
    if (!this.#once) throw new TypeError(`lock ${JSON.stringify(this.name)} was acquired without once: release it`);
    this.#done ??= this.#giveBack(true);
    return this.#client.budgeted("done", this.#done);
  }

  async #giveBack(done) {
    const held = this.held;
    if (held) this.#end(new HoldfastError("RELEASED", `lock ${JSON.stringify(this.name)} was released`));
    else if (!(this.signal.reason instanceof LostError)) {
      if (done) throw new HoldfastError("RELEASED", `lock ${JSON.stringify(this.name)} was released before: slot ${this.#once} is not marked as done`);
      return;
    }
    const lost = this.signal.reason instanceof LostError && this.signal.reason;
    const m = await this.#client.letGo(this, held && done).catch((e) => { throw lost || e; }); // others need not wait for the end of the lease
    if (lost) throw lost;
    if (done && m.status === "STALE_REQUEST" && m.sends > 1) throw new HoldfastError(m.status, `done: ${m.message}`, { unknown: true, answer: m });
    if (tokenRefused.has(m.status)) throw new LostError(this.name, this.token, `the service has ended it before its release: ${m.message}`);
    if (m.status !== "OK") throw new HoldfastError(m.status, `release: ${m.message || m.status}`, { answer: m });
  }

  // renewed counts the lease from when a question was sent, if it has not ended.
  renewed(sent, left) {
    if (this.#sent && !this.held) return;
    this.#sent = sent;
    this.#left = left * 0.99 - 10; // clocks of servers run a little faster or slower, see docs/PROTOCOL.md
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.held, Math.min(this.#left, 2 ** 31 - 1));
  }

  // lose ends the lock, unless it has ended, and returns why it did.
  lose(reason) {
    this.#end(new LostError(this.name, this.token, reason));
    return this.signal.reason;
  }

  #end(why) {
    if (this.signal.aborted) return;
    clearTimeout(this.#timer);
    this.#client.forget(this);
    this.#ended.abort(why);
  }
}

function base64(data) {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

// Holdfast is a client of a cluster, at any of its servers. It comes back at another one when its connection ends.
//
// Its options are credential, a key or a ticket, or a function that returns or resolves with one; budget, for how long a call looks for a
// server that executes it (15000); first, the index of the server that is tried first (any); and WebSocket, for programs that have it
// elsewhere.
//
// It renews what it holds on a timer of its own: a program that hangs loses its locks. Browsers slow the timers of pages that nobody
// sees, to one in a minute: give locks that such a page holds a ttl of some minutes.
export class Holdfast {
  #urls;
  #options;
  #next; // which server is tried next
  #failed = 0; // times in a row
  #downSince = now(); // since when no server knows us; null while one does
  #client = null; // our ID, from the service
  #nonce = crypto.getRandomValues(new Uint32Array(1))[0] * 2 ** 20 + Math.floor(Math.random() * 2 ** 20) + 1;
  #request = 0; // the last request ID that was given out
  #sequence = 0; // the last id of a message that is no request
  #asked = new Map(); // calls without an answer, by id
  #watches = new Map();
  #locks = new Map(); // by token
  #leaving = new Set(); // tokens that are being released
  #socket = null;
  #ready = false; // the server knows us
  #heard = now();
  #renewed = now(); // when leases were last to be renewed
  #timers = new Set();
  #beating = null; // the timer of the next beat, and in how long it was to be
  #pause = Infinity;
  #closed = false;

  constructor(urls, options = {}) {
    this.#urls = [urls].flat();
    if (this.#urls.length === 0 || this.#urls.some((u) => !/^wss?:$/.test(new URL(u).protocol))) throw new TypeError(`${urls}: name servers, such as ws://127.0.0.1:7601/v1/ws`);
    this.#options = { budget: 15000, WebSocket: globalThis.WebSocket, ...options };
    if (!this.#options.WebSocket) throw new TypeError("there is no WebSocket here: give one as an option");
    this.#next = options.first ?? Math.floor(Math.random() * this.#urls.length);
    this.#connect();
    this.#beat();
  }

  // acquire resolves with a Lock. Its options are ttl (30000), how long others wait when this program dies; wait (Infinity), how long to
  // wait in the fair queue, 0 for not at all; shared; metadata, which others see; and signal, which ends the wait. It throws a
  // HoldfastError with the status HELD or WAIT_TIMEOUT if others hold the lock.
  //
  // once is a slot, such as "2026-11-22" or "build-17", for which something is done once: when Lock.done has said so, the status is
  // ALREADY_DONE. remember has the service remember the lock's last token, for a later afterToken: it acquires the lock only if nobody was
  // granted it since it was granted under that token, and does not wait; the status is LOCK_CHANGED otherwise, also where nobody knows.
  //
  // limit leaves the lock to so many holders at a time, of whose permits this one takes weight (1). All who hold it or wait for it have to give
  // the same limit; the status is OTHER_LIMIT otherwise.
  async acquire(name, { once, remember = false, afterToken, ttl = 30000, wait = afterToken === undefined ? Infinity : 0, shared = false, limit, weight = 1, metadata, signal } = {}) {
    if (limit === undefined ? weight !== 1 : !(weight >= 1 && weight <= limit) || shared || once) throw new TypeError("weight is from 1 to limit, and a limit goes neither with shared nor with once");
    if (once === "") throw new TypeError("the slot of once is empty: name a day or a build");
    const began = now();
    const marks = { ...(once && { once }), ...(remember && { remember }), ...(afterToken !== undefined && { after_token: afterToken }) };
    for (let forgotten = 0; ;) {
      signal?.throwIfAborted();
      const fields = { lock: name, ttl: span(ttl), wait: span(wait === Infinity ? wait : Math.max(0, wait - since(began))), mode: shared ? "shared" : "exclusive", ...marks, ...(limit !== undefined && { limit, weight }) };
      if (metadata) fields.metadata = metadata;
      const m = await this.#send("acquire", fields, { waits: wait > 0, ttl, lock: name, signal });
      if (m.status === "LEASE_EXPIRED" && (wait === Infinity || since(began) < wait)) continue; // it was granted while no answer came, and has ended
      if (m.status === "STALE_REQUEST" && m.sends === 1 && forgotten++ < 3) continue; // the service has forgotten a client that was idle for long
      if (m.status !== "OK") throw new HoldfastError(m.status, `acquire ${JSON.stringify(name)}: ${m.message || m.status}`, { answer: m });
      if (Object.keys(marks).length > 0 && !m.marked) {
        this.letGo({ name, token: m.token }).catch(() => {}); // it ends with its lease otherwise
        throw new HoldfastError("INVALID_ARGUMENT", `acquire ${JSON.stringify(name)}: the server is of an older version, which does not know what a lock remembers: upgrade all servers, then type holdfast upgrade --finish`, { answer: m });
      }
      if (limit !== undefined && (m.limit !== limit || m.weight !== weight)) {
        this.letGo({ name, token: m.token }).catch(() => {}); // as above
        throw new HoldfastError("INVALID_ARGUMENT", `acquire ${JSON.stringify(name)}: the server is of an older version, which does not know locks with a limit: upgrade all servers, then type holdfast upgrade --finish`, { answer: m });
      }
      const lock = await this.#take(name, m, ttl, once);
      if (!lock) continue;
      if (!signal?.aborted) return lock;
      lock.release().catch(() => {}); // it ends with its lease otherwise
    }
  }

  // hold runs work(lock) while it holds the lock, and releases it at the end. It throws a LostError if the lock was lost meanwhile: what
  // work did last may not have been protected.
  async hold(name, options, work) {
    const lock = await this.acquire(name, options);
    let done;
    try {
      done = await work(lock);
    } catch (e) {
      await lock.release().catch(() => {}); // the error of work says more
      throw e;
    }
    await lock.release();
    return done;
  }

  // watch calls told(event) for what happens to a lock ({lock}), to all locks below a prefix ({prefix}) or to all ({}), without gaps: what
  // cannot be told one by one comes as an event of kind "reset" with the state. It goes on at other servers until the returned function is
  // called; with after, an LSN, it begins behind that. If the service refuses it for good, failed(error) is called.
  watch({ lock, prefix, kinds, after } = {}, told, failed = (e) => { throw e; }) {
    const id = `w${++this.#sequence}`;
    this.#watches.set(id, { fields: { lock, prefix, kinds }, after, told, failed, refused: 0 });
    this.#sendWatch(id);
    return () => {
      if (this.#watches.delete(id)) this.#tell({ id: `u${++this.#sequence}`, op: "unwatch", watch: id });
    };
  }

  // ask sends an operation of POST /v1/NAME (docs/http.md), at most once, and resolves with its answer, whatever its status is. It throws
  // if no server answers within the budget.
  ask(op, fields = {}) {
    return this.#send(op, fields);
  }

  // close releases all locks, and ends the connection when that is answered, or after limit.
  async close(limit = 2000) {
    const released = Promise.allSettled([...this.#locks.values()].map((l) => l.release()));
    await Promise.race([released, new Promise((done) => this.#later(done, limit))]);
    this.#closed = true;
    for (const t of [...this.#timers, this.#beating]) clearTimeout(t);
    for (const lock of [...this.#locks.values()]) lock.lose("the client was closed");
    for (const id of [...this.#asked.keys()]) this.#fail(id, "the client was closed");
    this.#drop();
  }

  // What Lock calls

  forget(lock) {
    this.#locks.delete(lock.token);
  }

  letGo(lock, done = false) {
    this.#leaving.add(lock.token);
    return this.#send("release", { lock: lock.name, token: lock.token, ...(done && { done }) }, done ? { within: Infinity } : {}).finally(() => this.#leaving.delete(lock.token));
  }

  // budgeted has the end of what is under way, if that comes within the budget.
  budgeted(op, underWay) {
    let timer;
    const over = new Promise((_, reject) => {
      const why = new HoldfastError("UNAVAILABLE", `${op}: no server has answered in time; it may have been executed all the same`, { unknown: true });
      timer = setTimeout(() => reject(why), this.#options.budget);
    });
    return Promise.race([underWay, over]).finally(() => clearTimeout(timer));
  }

  // take returns the Lock of an answer, or null if its lease has ended. Where that may be old, it is renewed first.
  async #take(name, m, ttl, once) {
    if (!Number.isSafeInteger(m.token)) throw new HoldfastError("UNSAFE_TOKEN", `token ${m.token} of lock ${JSON.stringify(name)} is more than a number can hold here`);
    let { sent } = m;
    let left = Math.min(ttl, milliseconds(m.ttl));
    this.#leaving.add(m.token); // no stray
    try {
      if (m.repeat || since(sent) > ttl / 4) {
        const r = await this.#send("renew", { lock: name, token: m.token });
        if (r.status !== "OK") return null;
        ({ sent } = r);
        left = Math.min(ttl, milliseconds(r.ttl) || ttl);
      }
      const lock = new Lock(this, name, m.token, ttl, sent, left, once);
      if (!lock.held) return null;
      this.#locks.set(lock.token, lock);
      this.#hurry(ttl);
      return lock;
    } finally {
      this.#leaving.delete(m.token);
    }
  }

  // Connections

  async #connect() {
    if (this.#closed) return;
    const { credential, WebSocket } = this.#options;
    let socket;
    try {
      const key = typeof credential === "function" ? await credential() : credential;
      if (this.#closed) return;
      const url = this.#urls[this.#next++ % this.#urls.length];
      socket = key ? new WebSocket(url, ["holdfast.v1", `holdfast.bearer.${key}`]) : new WebSocket(url);
    } catch {
      this.#again();
      return;
    }
    this.#socket = socket;
    this.#heard = now();
    const mine = (f) => (e) => { if (this.#socket === socket) f(e); };
    socket.onopen = mine(() => this.#opened());
    socket.onmessage = mine((e) => { this.#heard = now(); this.#read(parse(e.data)); });
    socket.onclose = mine(() => this.#lost());
    socket.onerror = () => {}; // a close follows
    this.#later(mine(() => { if (!this.#ready) this.#lost(); }), dialing);
  }

  // again tries the next server: not at once, and not all clients at the same moment.
  #again() {
    this.#downSince ??= now();
    this.#later(() => this.#connect(), Math.random() * Math.min(longest, 50 * 2 ** Math.min(this.#failed++, 10)));
  }

  #lost() {
    this.#drop();
    this.#again();
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null;
    this.#ready = false;
    try {
      socket?.close();
    } catch {
      // it never was open
    }
  }

  #later(f, ms) {
    const t = setTimeout(() => {
      this.#timers.delete(t);
      f();
    }, ms);
    this.#timers.add(t);
  }

  #opened() {
    if (this.#client === null) this.#tell({ id: "open", op: "open", nonce: this.#nonce });
    else this.#hello();
  }

  // hello says who we are, and since when we have not listened.
  #hello() {
    const oldest = Math.min(...this.#locks.keys()); // Infinity if there is none
    this.#tell({ id: "hello", op: "hello", client_id: this.#client, losses_after_lsn: Number.isFinite(oldest) ? oldest : 0 });
  }

  #welcome() {
    this.#ready = true;
    this.#failed = 0;
    this.#downSince = null;
    for (const id of this.#watches.keys()) this.#sendWatch(id);
    for (const id of this.#asked.keys()) this.#resend(id);
    this.#keepAlive();
  }

  #tell(message) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  #read(m) {
    if (m.id === "open") {
      if (m.status !== "OK") return this.#lost();
      this.#client = m.client_id;
      return this.#hello();
    }
    if (m.id === "hello") return m.status === "OK" ? this.#welcome() : this.#lost();
    if (m.event) return this.#event(m);
    if (m.loss) return this.#loss(m.loss);
    if (m.ask) return this.#locks.get(m.ask.token)?.onask?.(m.ask);
    if (m.missed) return this.#keepAlive();
    if (this.#watches.has(m.id)) return this.#watchAnswered(m);
    if (this.#asked.has(m.id)) this.#answered(m);
  }

  // Requests

  #send(op, fields, { waits = false, ttl, lock, signal, within = this.#options.budget } = {}) {
    if (this.#closed) return Promise.reject(new HoldfastError("CLOSED", "the client is closed"));
    const id = numbered.has(op) ? ++this.#request : `n${++this.#sequence}`;
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { op, fields, waits, ttl, lock, within, resolve, reject, sends: 0, sent: null, client: null, since: now() });
      const abort = () => this.#cancel(id, signal.reason);
      signal?.addEventListener("abort", abort, { once: true });
      const done = (f) => (x) => { signal?.removeEventListener("abort", abort); f(x); };
      Object.assign(this.#asked.get(id), { resolve: done(resolve), reject: done(reject) });
      this.#hurry(ttl);
      this.#resend(id);
    });
  }

  #resend(id) {
    const call = this.#asked.get(id);
    if (!call || !this.#ready) return; // a welcome sends it
    const message = { id, op: call.op, ...call.fields };
    if (numbered.has(call.op)) {
      if (call.client && call.client !== this.#client) return this.#fail(id, "the service has forgotten this client", "STALE_REQUEST");
      call.client = this.#client;
      Object.assign(message, { client_id: this.#client, request_id: id, low_water: Math.min(...[...this.#asked.keys()].filter(Number.isInteger)) });
    } else if (call.op === "keepalive") {
      message.client_id = this.#client;
    }
    call.sends++;
    call.sent = now();
    this.#tell(message);
  }

  async #answered(m) {
    const call = this.#asked.get(m.id);
    const last = m.status === "UNKNOWN" && m.committed; // what is in the log is done
    if (notNow.has(m.status) && !last && !(m.status === "LIMITED" && !m.retry_after)) {
      if (since(call.since) > call.within && !call.waits) return this.#fail(m.id, m.message, m.status);
      return this.#later(() => this.#resend(m.id), milliseconds(m.retry_after) || 50 + 150 * Math.random());
    }
    this.#asked.delete(m.id);
    if (m.status === "STALE_REQUEST" && numbered.has(call.op)) await this.#forgotten();
    call.resolve({ ...m, sent: call.sent, sends: call.sends });
  }

  // forgotten finds out whether the service has forgotten us, or one request only, and begins with a new ID if it has.
  async #forgotten() {
    const client = this.#client;
    const m = await this.#send("keepalive", { held: unknownHeld }).catch(() => null);
    if (m?.status !== "STALE_REQUEST" || this.#client !== client) return;
    for (const lock of [...this.#locks.values()]) lock.lose("the service has forgotten this client");
    this.#client = null;
    this.#nonce++;
    this.#lost();
  }

  // cancel ends a call that is not to be waited for. What it was granted meanwhile is released.
  #cancel(id, reason) {
    const call = this.#asked.get(id);
    if (!call) return;
    call.reject(reason);
    if (call.sends === 0) {
      this.#asked.delete(id);
      return;
    }
    call.resolve = (m) => {
      if (m.status === "OK" && m.token) this.letGo({ name: call.lock, token: m.token }).catch(() => {}); // it ends with its lease otherwise
    };
    // The answer of either is that of both. The call stays until then, so that its number is not given up.
    this.#send("cancel", { client_id: call.client, request_id: id }, { within: Infinity }).then((m) => {
      if (this.#asked.delete(id)) call.resolve(m);
    }, () => this.#asked.delete(id));
  }

  #fail(id, why, status = "UNAVAILABLE") {
    const call = this.#asked.get(id);
    this.#asked.delete(id);
    const unknown = call.sends > 0 && numbered.has(call.op);
    call.reject(new HoldfastError(status, `${call.op}: no server executed it in time: ${why}${unknown ? "; it may have been executed all the same" : ""}`, { unknown }));
  }

  // Leases

  // beat renews what is held and waited for, finds out whether the server lives, and gives up calls that no server executes.
  #beat() {
    const shortest = Math.min(...[...this.#locks.values(), ...this.#asked.values()].map((x) => x.ttl || Infinity));
    if (this.#ready && since(this.#renewed) >= shortest / 3) this.#keepAlive();
    const quiet = since(this.#heard);
    if (this.#ready && quiet > 2 * silence) this.#lost();
    else if (this.#ready && quiet > silence) this.#tell({ id: "ping", op: "ping" });
    for (const [id, call] of [...this.#asked]) {
      const unheard = this.#downSince ? Math.min(since(this.#downSince), since(call.since)) : 0;
      if (unheard > call.within || (!call.waits && since(call.since) > call.within)) this.#fail(id, "none was reached, or none answered");
    }
    this.#pause = Infinity;
    this.#hurry(shortest);
  }

  // hurry has the next beat come in time for a lease of this TTL.
  #hurry(ttl = Infinity) {
    const pause = Math.min(500, ttl / 10);
    if (pause >= this.#pause || this.#closed) return;
    this.#pause = pause;
    clearTimeout(this.#beating);
    this.#beating = setTimeout(() => this.#beat(), pause * (0.9 + Math.random() / 10));
  }

  async #keepAlive() {
    const asked = [...this.#locks.values()];
    if (asked.length === 0 && ![...this.#asked.values()].some((c) => c.waits)) return;
    this.#renewed = now();
    const m = await this.#send("keepalive", { held: unknownHeld }, { within: Math.max(500, Math.min(5000, ...asked.map((l) => l.ttl / 3))) }).catch(() => null);
    if (m?.status === "STALE_REQUEST") return this.#forgotten();
    if (m?.status !== "OK") return;
    const listed = new Map((m.grants || []).map((g) => [g.token, g.lock]));
    for (const lock of asked) {
      if (lock.held && !listed.has(lock.token)) lock.lose("the service has ended it: it was broken, or no renewal reached the service in time");
      else lock.renewed(m.sent, lock.ttl); // counted from when the question was sent
    }
    // What nobody here knows of, and nobody waits for, is given back.
    const waited = new Set([...this.#asked.values()].map((c) => c.lock));
    for (const [token, name] of listed) {
      if (!this.#locks.has(token) && !this.#leaving.has(token) && !waited.has(name)) this.letGo({ name, token }).catch(() => {});
    }
  }

  #loss(loss) {
    for (const lock of [...this.#locks.values()]) {
      if (!loss.lock || loss.token === lock.token) lock.lose(loss.reason);
    }
  }

  // Watches

  #sendWatch(id) {
    const w = this.#watches.get(id);
    if (w && this.#ready) this.#tell({ id, op: "watch", ...w.fields, ...(w.after === undefined ? {} : { after: w.after }) });
  }

  #event({ watch, event }) {
    const w = this.#watches.get(watch);
    if (!w) return;
    if (event.kind === "end") return this.#lost(); // it goes on elsewhere
    if (event.lsn > 0) w.after = event.lsn;
    w.told(event);
  }

  #watchAnswered(m) {
    const w = this.#watches.get(m.id);
    if (m.status === "OK") {
      w.refused = 0;
      return;
    }
    if (notNow.has(m.status)) { // the server comes to it in a moment, or another one does
      const socket = this.#socket;
      const again = ++w.refused % 2 === 0 ? () => this.#lost() : () => this.#sendWatch(m.id);
      return this.#later(() => { if (this.#socket === socket) again(); }, milliseconds(m.retry_after) || 500);
    }
    this.#watches.delete(m.id);
    w.failed(new HoldfastError(m.status, `watch: ${m.message || m.status}`, { answer: m }));
  }
}
