// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clients/javascript"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// inNode runs what a test has to say in Node.js, with the module of clients/javascript, and returns what it prints. The URLs of servers are
// in the list urls.
func inNode(t *testing.T, script string, servers ...*site) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no Node.js here: install nodejs to have the module tried")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, javascript.Files()); err != nil {
		t.Fatal(err)
	}
	urls := []string{}
	for _, s := range servers {
		urls = append(urls, "ws://"+s.addr+Path)
	}
	list, err := json.Marshal(urls)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "test.mjs")
	text := fmt.Sprintf("import { Holdfast, HoldfastError, LostError, milliseconds } from \"./holdfast.js\";\nconst urls = %s;\n%s\n", list, script)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, node, "--experimental-websocket", "--no-warnings", name) // from Node.js 22 on it needs no flag
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// fakeSocket is a WebSocket that a script plays the server of: it answers what answer(message) returns.
const fakeSocket = `
	const sent = [];
	let answer = () => null, socket = null, clients = 0;
	class Fake {
		constructor(url, protocols) {
			Object.assign(this, { url, protocols, readyState: 1 });
			socket = this;
			setTimeout(() => this.onopen({}), 0);
		}
		send(text) {
			const m = JSON.parse(text);
			sent.push(m);
			const basic = { open: { client_id: "~" + ++clients }, hello: {} }[m.op];
			const a = basic ?? answer(m);
			if (a) setTimeout(() => this.onmessage({ data: JSON.stringify({ id: m.id, status: "OK", ...a }) }), 0);
		}
		tell(m) { this.onmessage({ data: JSON.stringify(m) }); }
		close() { this.readyState = 3; }
	}
	const rest = (ms) => new Promise((done) => setTimeout(done, ms));
`

// The module against servers: it waits, holds, appends, watches and releases, and comes back at another server.
func TestModule(t *testing.T) {
	b := startPrimary(t)
	first, second := open(t, b, Options{}), open(t, b.replica(), Options{})
	got := inNode(t, `
		const h = new Holdfast(urls, { first: 0 }), events = [];
		await new Promise((begun) => h.watch({ lock: "l" }, (e) => { events.push(e.kind); begun(); }));
		const lock = await h.acquire("l", { ttl: 5000, metadata: "step 1" });
		console.log("held", lock.held, lock.remaining > 0 && lock.remaining <= 5000, lock.token > 0);
		const e = await h.acquire("l", { wait: 0 }).catch((e) => e);
		console.log(e.name, e.status, e.answer.queue_length);
		console.log(await h.acquire("l", { wait: 50 }).catch((e) => e.status));
		const r = await lock.append("f", "one\n");
		console.log("at", r.offset, r.length, (await lock.append("f", new Uint8Array([0x32, 10]), { at: 4 })).offset);
		console.log((await lock.append("f", "x", { at: 1 }).catch((e) => e.status)));
		await lock.say("step 2");
		const waiting = h.acquire("l", { ttl: 5000 });
		while (events.filter((e) => e === "enqueue").length < 2) await new Promise((done) => setTimeout(done, 5));
		await lock.release();
		await lock.release();
		console.log("released", lock.held, lock.signal.reason.status, await lock.append("f", "late").catch((e) => e.status));
		const next = await waiting;
		console.log("next", next.token > lock.token, next.held);
		console.log("done", await h.hold("m", { shared: true }, async (l) => l.name + (await h.ask("verify", { lock: "m", token: l.token })).status));
		console.log(await h.hold("m", {}, () => { throw new Error("mine"); }).catch((e) => e.message), (await h.acquire("m", { wait: 0 })).held);
		await h.ask("break", { lock: "l", token: next.token, actor: "ann", reason: "test" });
		while (!next.signal.aborted) await new Promise((done) => setTimeout(done, 5));
		console.log(next.signal.reason.name, await next.release().catch((e) => e.name));
		while (!events.includes("break")) await new Promise((done) => setTimeout(done, 5));
		console.log(events.join(" "));
		await h.close();
		console.log(await h.ask("verify", {}).catch((e) => e.status));`, first, second)
	want := `held true true true
HoldfastError HELD 0
WAIT_TIMEOUT
at 0 4 4
OFFSET_MISMATCH
released false RELEASED RELEASED
next true true
done mOK
mine true
LostError LostError
reset grant enqueue wait_timeout bind metadata enqueue release grant break
CLOSED`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if f := b.file(t, "f"); f != "one\n2\n" {
		t.Errorf("the file holds %q", f)
	}
	eventually(t, "nothing is held when the client was closed", func() bool { return b.held(t, "m").Holders == 0 })
}

// A request that gets no answer is repeated under its number, at another server, and done once. A wait that is given up is cancelled.
func TestModuleRepeats(t *testing.T) {
	b := startPrimary(t)
	first, second := open(t, b, Options{}), open(t, b.replica(), Options{})
	cut := func(q *locktable.Request, done bool) {
		if done && q.Op == locktable.OpAppend { // it is done, and nobody hears of it
			b.hold.Store(nil)
			for _, s := range []*site{first, second} {
				for _, x := range s.connections() {
					x.cut()
				}
			}
		}
	}
	b.hold.Store(&cut)
	got := inNode(t, `
		const h = new Holdfast(urls);
		const lock = await h.acquire("l");
		const r = await lock.append("f", "once\n");
		console.log(r.repeat, r.offset, r.length);
		const giveUp = new AbortController();
		const waiting = h.acquire("l", { signal: giveUp.signal });
		while ((await h.acquire("l", { wait: 0 }).catch((e) => e)).answer.queue_length < 1);
		giveUp.abort("enough");
		console.log(await waiting.catch((e) => e));
		while ((await h.acquire("l", { wait: 0 }).catch((e) => e)).answer.queue_length > 0);
		await h.close();`, first, second)
	if want := "true 0 5\nenough"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if f := b.file(t, "f"); f != "once\n" {
		t.Errorf("the file holds %q", f)
	}
}

// A lease counts from when the question was sent, and ends by this side's clocks; a grant that comes late is renewed before it is believed.
func TestModuleTrustsItsClock(t *testing.T) {
	got := inNode(t, fakeSocket+`
		let wall = Date.now();
		Date.now = () => wall;
		const h = new Holdfast("ws://h:1/v1/ws", { WebSocket: Fake });
		let renewals = 0;
		answer = (m) => m.op === "acquire" ? { token: 5, ttl: "10s" } : m.op === "renew" ? (renewals++, { ttl: "10s" }) : m.op === "release" ? {} : null;
		const lock = await h.acquire("l", { ttl: 10000 });
		console.log("held", lock.held, "renewed", renewals);
		wall += 9000;
		console.log(lock.held, lock.remaining <= 1000);
		wall += 1000; // the machine slept, and no timer has run
		console.log(lock.held, lock.signal.reason instanceof LostError, await lock.append("f", "x").catch((e) => e.status), sent.some((m) => m.op === "append"));
		const early = answer;
		answer = (m) => { if (m.op === "acquire") wall += 3000; return early(m); };
		const late = await h.acquire("l", { ttl: 10000 });
		console.log("late", late.held, late.remaining > 9000, "renewed", renewals);
		await h.close();`)
	if want := "held true renewed 0\ntrue true\nfalse true LOST false\nlate true true renewed 1"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What the answer to a keep-alive does not list is lost, unless it was granted later; what nobody knows of is released.
func TestModuleKeepsWhatWasGrantedLater(t *testing.T) {
	got := inNode(t, fakeSocket+`
		const h = new Holdfast("ws://h:1/v1/ws", { WebSocket: Fake });
		let token = 0, beat = null;
		answer = (m) => {
			if (m.op === "acquire") return { token: ++token, ttl: "300ms" };
			if (m.op === "keepalive") beat ??= m;
			return m.op === "release" ? {} : null;
		};
		const ended = await h.acquire("ended", { ttl: 300 }), live = await h.acquire("live", { ttl: 300 });
		beat = null; // one before knew of neither
		while (!beat) await rest(1);
		const later = await h.acquire("later", { ttl: 60000 });
		socket.tell({ id: beat.id, status: "OK", differs: true, grants: [{ lock: "live", token: live.token }, { lock: "stray", token: 99 }] });
		await rest(20);
		console.log(ended.held, live.held, live.remaining > 150, later.held);
		console.log(sent.filter((m) => m.op === "release").map((m) => m.lock + m.token).join());
		const lost = new Promise((done) => live.signal.addEventListener("abort", () => done(live.signal.reason.reason)));
		answer = (m) => m.op === "release" ? {} : null;
		console.log(await lost);
		await h.close();`)
	want := "false true true true\nstray99\nno renewal was answered in time: the lease may have ended"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A client that the service has forgotten repeats nothing under its new ID that may have been done under the old one.
func TestModuleThatWasForgotten(t *testing.T) {
	got := inNode(t, fakeSocket+`
		const h = new Holdfast("ws://h:1/v1/ws", { WebSocket: Fake });
		answer = (m) => m.op === "acquire" ? { token: 5, ttl: "10s" } : null;
		const lock = await h.acquire("l", { ttl: 10000 });
		const appended = lock.append("f", "x").catch((e) => e);
		await rest(20); // it was sent, and is not answered
		answer = (m) => ({ status: "STALE_REQUEST" });
		const said = await h.ask("metadata", { lock: "l", token: 5, metadata: "m" });
		answer = (m) => m.op === "acquire" ? { token: 7, ttl: "10s" } : m.op === "release" ? {} : null;
		const e = await appended;
		console.log(said.status, lock.held, e.status, e.unknown);
		console.log((await h.acquire("l")).token, sent.filter((m) => m.op === "open").length, sent.filter((m) => m.op === "append").length);
		await h.close();`)
	if want := "STALE_REQUEST false STALE_REQUEST true\n7 2 1"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What is done once is told once, and by who held the lock until then; what a server does not know is not granted on no condition.
func TestModuleMarks(t *testing.T) {
	got := inNode(t, fakeSocket+`
		const h = new Holdfast("ws://h:1/v1/ws", { WebSocket: Fake }), status = (e) => e.status ?? e.name;
		let token = 0, marked = true, released = {};
		answer = (m) => m.op === "acquire" ? { token: ++token, ttl: "60s", marked } : m.op === "release" ? released : null;
		const releases = () => sent.filter((m) => m.op === "release").map((m) => m.token + (m.done ? " done" : ""));
		const first = await h.acquire("l", { once: "a-1", afterToken: 7 }), asked = sent.find((m) => m.op === "acquire");
		console.log(asked.once, asked.after_token, asked.wait, "remember" in asked);
		await first.done();
		await first.done();
		await first.release();
		console.log(first.held, releases().splice(0).join());
		const second = await h.acquire("l", { once: "a-2" });
		await second.release();
		console.log(await second.done().catch(status), (await h.acquire("l")) && await (await h.acquire("l")).done().catch(status));
		const lost = await h.acquire("l", { once: "a-3" });
		socket.tell({ loss: { lock: "l", token: lost.token, reason: "broken" } });
		console.log(await lost.done().catch((e) => e.name), releases().at(-1) === String(lost.token));
		const late = await h.acquire("l", { once: "a-4" });
		released = { status: "INVALID_TOKEN" };
		console.log(await late.done().catch((e) => e.name), await late.done().catch((e) => e.name), releases().at(-1) === late.token + " done");
		marked = false;
		released = {};
		for (const o of [{ once: "1" }, { remember: true }, { afterToken: 1 }]) {
			console.log(await h.acquire("l", o).then(() => "granted", status), releases().at(-1) === String(token));
		}
		console.log(await h.acquire("l", { once: "" }).catch(status));
		answer = (m) => m.op === "acquire" ? { token: ++token, ttl: "60s", ...(marked && { limit: m.limit, weight: m.weight }) } : m.op === "release" ? {} : null;
		console.log(await h.acquire("l", { limit: 3, weight: 2 }).then(() => "granted", status), releases().at(-1) === String(token));
		marked = true;
		console.log((await h.acquire("l", { limit: 3, weight: 2 })).held, (await h.acquire("l", { limit: 3 })).held);
		for (const o of [{ limit: 0 }, { weight: 2 }, { limit: 2, weight: 3 }, { limit: 2, shared: true }, { limit: 2, once: "1" }]) console.log(await h.acquire("l", o).catch(status));
		await h.close();`)
	want := `a-1 7 0ms false
false 1 done
RELEASED TypeError
LostError true
LostError LostError true
INVALID_ARGUMENT true
INVALID_ARGUMENT true
INVALID_ARGUMENT true
TypeError
INVALID_ARGUMENT true
true true
TypeError
TypeError
TypeError
TypeError
TypeError`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A done that nobody answers in time goes on, and who calls it again is told its end.
func TestModuleDoneGoesOn(t *testing.T) {
	got := inNode(t, fakeSocket+`
		const h = new Holdfast("ws://h:1/v1/ws", { WebSocket: Fake, budget: 300 }), said = (e) => e.unknown ? "unknown" : e.name;
		let token = 0;
		answer = (m) => m.op === "acquire" ? { token: ++token, ttl: "60s", marked: true } : null;
		const releases = () => sent.filter((m) => m.op === "release");
		const marked = await h.acquire("l", { once: "a-1" }), refused = await h.acquire("m", { once: "a-1" });
		for (const l of [marked, refused]) console.log(await l.done().catch(said), l.held);
		const [first, second] = releases();
		socket.tell({ id: first.id, status: "OK" });
		socket.tell({ id: second.id, status: "INVALID_TOKEN" });
		for (const l of [marked, refused]) console.log(await l.done().then(() => "done", said));
		console.log(new Set(releases().map((m) => m.id)).size);
		const last = await h.acquire("l", { once: "a-2" }), asked = last.done().catch(said);
		await rest(20);
		await h.close(10);
		console.log(await asked, await last.done().catch(said));`)
	want := `unknown false
unknown false
done
LostError
2
unknown unknown`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A server that says nothing any more is left, and what has no answer is asked again elsewhere. What a server says by itself is taken in.
func TestModuleHears(t *testing.T) {
	got := inNode(t, fakeSocket+`
		let wall = Date.now();
		Date.now = () => wall;
		const h = new Holdfast("ws://h:1/v1/ws", { WebSocket: Fake });
		answer = (m) => m.op === "acquire" ? { token: 5, ttl: "60s" } : m.op === "release" ? {} : null;
		const lock = await h.acquire("l", { ttl: 60000 });
		const asked = new Promise((done) => { lock.onask = (a) => done(a.actor); });
		socket.tell({ ask: { lock: "l", token: 5, actor: "ann" } });
		console.log(await asked);
		const first = socket, verified = h.ask("verify", { lock: "l", token: 5 });
		wall += 11000;
		answer = (m) => m.op === "verify" ? { lock: "l" } : m.op === "release" ? {} : null;
		console.log((await verified).status, socket !== first, lock.held, sent.filter((m) => m.op === "hello").at(-1).losses_after_lsn);
		socket.tell({ loss: { lock: "l", token: 4, reason: "released" } });
		console.log(lock.held);
		socket.tell({ loss: { lock: "l", token: 5, reason: "broken" } });
		console.log(lock.held, lock.signal.reason.reason);
		await h.close(10);`)
	want := "ann\nOK true true 5\ntrue\nfalse broken"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A watch goes on behind the last event, at another server where this one ends it or cannot serve it; one that is refused for good says so.
func TestModuleWatches(t *testing.T) {
	got := inNode(t, fakeSocket+`
		const h = new Holdfast("ws://h:1/v1/ws", { WebSocket: Fake }), watches = () => sent.filter((m) => m.op === "watch");
		let refuse = null;
		answer = (m) => m.op === "watch" ? refuse ?? {} : {};
		const events = [], stop = h.watch({ lock: "l" }, (e) => events.push(e.kind));
		while (watches().length < 1) await rest(1);
		const first = socket, id = watches()[0].id;
		socket.tell({ watch: id, event: { kind: "grant", lsn: 7 } });
		socket.tell({ watch: id, event: { kind: "end" } });
		while (watches().length < 2) await rest(1);
		console.log(events.join(), socket !== first, watches()[1].after);
		refuse = { status: "SECONDARY_MODE", retry_after: "1ms" };
		socket.tell({ watch: id, event: { kind: "end" } });
		while (watches().length < 3) await rest(1);
		const third = socket;
		while (watches().length < 4) await rest(1);
		refuse = null;
		while (watches().length < 5) await rest(1);
		await rest(5);
		socket.tell({ watch: id, event: { kind: "release", lsn: 9 } });
		console.log(events.join(), socket !== third);
		stop();
		socket.tell({ watch: id, event: { kind: "late", lsn: 10 } });
		refuse = { status: "PERMISSION_DENIED", message: "not you" };
		console.log(events.length, sent.at(-1).op, (await new Promise((done) => h.watch({}, () => {}, done))).status);
		await h.close(10);`)
	want := "grant true 7\ngrant,release true\n2 unwatch PERMISSION_DENIED"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Where no server answers, a call says so after its budget; with a credential, the servers get it as a protocol.
func TestModuleWithoutServers(t *testing.T) {
	got := inNode(t, fakeSocket+`
		const h = new Holdfast("ws://127.0.0.1:1/v1/ws", { budget: 100 });
		const e = await h.acquire("l").catch((e) => e);
		console.log(e.status, e.unknown);
		await h.close(10);
		for (const bad of [[], "http://h:1/v1/ws", "h:1"]) {
			try { new Holdfast(bad); } catch (e) { console.log(e.name); }
		}
		const secret = new Holdfast("ws://h:1/v1/ws", { WebSocket: Fake, credential: async () => "hfk_1" });
		await rest(20);
		console.log(socket.protocols.join());
		await secret.close(10);
		console.log(["1m29.5s", "300ms", "1h0m0s", ""].map(milliseconds).join());`)
	want := "UNAVAILABLE false\nTypeError\nTypeError\nTypeError\nholdfast.v1,holdfast.bearer.hfk_1\n89500,300,3600000,0"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The blocks of docs/javascript.md print what stands behind them.
func TestModuleGuide(t *testing.T) {
	b, err := os.ReadFile("../../../docs/javascript.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(b), "```js\n")[1:]
	if len(blocks) != 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	s := open(t, startPrimary(t), Options{})
	address := regexp.MustCompile(`127\.0\.0\.1:760[123]`)
	for _, x := range blocks {
		script, rest, _ := strings.Cut(x, "```\n```text\n")
		want, _, ended := strings.Cut(rest, "```")
		_, script, imported := strings.Cut(script, "\n") // inNode has it
		if !ended || !imported {
			t.Fatalf("what does this print? %s", x)
		}
		if got := inNode(t, address.ReplaceAllString(script, s.addr)); got != strings.TrimSpace(want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
