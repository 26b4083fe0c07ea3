// SPDX-License-Identifier: Apache-2.0

package mutants

// moduleMutants break what the module for JavaScript promises.
var moduleMutants = []Mutant{
	{
		Name: "module-lease-from-the-answer", Also: "",
		Rule: "a lease counts from when the question was sent whose answer renewed it (holdfast.js, Lock)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `    let { sent } = m;`, `    let sent = now();`},
			{"clients/javascript/holdfast.js", `        ({ sent } = r);`, `        sent = now();`},
		},
		By: unit("shared/frontend/ws", "^TestModuleTrustsItsClock$"), Dies: `late true true renewed 0`,
	},
	{
		Name: "module-sleeps-over-its-lease", Also: "",
		Rule: "a lease ends by the clock that has advanced more (holdfast.js, since)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `return Math.max(at.steady - then.steady, at.wall - then.wall);`, `return at.steady - then.steady;`},
		},
		By: unit("shared/frontend/ws", "^TestModuleTrustsItsClock$"), Dies: `true false|true true`,
	},
	{
		Name: "module-believes-a-late-grant", Also: "",
		Rule: "a grant whose answer came late is renewed before it is believed (holdfast.js, take)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `if (m.repeat || since(sent) > ttl / 4) {`, `if (false) {`},
		},
		By: unit("shared/frontend/ws", "^TestModuleTrustsItsClock$"), Dies: `renewed 0`,
	},
	{
		Name: "module-holds-what-is-not-listed", Also: "",
		Rule: "a lock that the answer to a keep-alive does not list is lost (holdfast.js, keepAlive)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `if (lock.held && !listed.has(lock.token)) lock.lose(`, `if (false) lock.lose(`},
		},
		By: unit("shared/frontend/ws", "^TestModuleKeepsWhatWasGrantedLater$"), Dies: `true true true true`,
	},
	{
		Name: "module-loses-what-was-granted-later", Also: "",
		Rule: "the answer to a keep-alive says nothing of what was granted after it was asked for (holdfast.js, keepAlive)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `    for (const lock of asked) {
      if (lock.held`, `    for (const lock of [...this.#locks.values()]) {
      if (lock.held`},
		},
		By: unit("shared/frontend/ws", "^TestModuleKeepsWhatWasGrantedLater$"), Dies: `false true true false`,
	},
	{
		Name: "module-keeps-strays", Also: "",
		Rule: "a grant that nobody knows of is released (holdfast.js, keepAlive)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `&& !waited.has(name)) this.letGo(`, `&& !waited.has(name) && false) this.letGo(`},
		},
		By: unit("shared/frontend/ws", "^TestModuleKeepsWhatWasGrantedLater$"), Dies: `got`,
	},
	{
		Name: "module-repeats-under-another-id", Also: "",
		Rule: "a request is not repeated under another client ID than it was sent with (holdfast.js, resend)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `if (call.client && call.client !== this.#client) return`, `if (false) return`},
		},
		By: unit("shared/frontend/ws", "^TestModuleThatWasForgotten$"), Dies: `7 2 [23]`,
	},
	{
		Name: "module-repeats-nothing", Also: "",
		Rule: "a request without an answer is sent again when a server knows us (holdfast.js, welcome)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `    for (const id of this.#asked.keys()) this.#resend(id);
    this.#keepAlive();`, `    for (const [id, call] of this.#asked) if (call.sends === 0) this.#resend(id);
    this.#keepAlive();`},
		},
		By: unit("shared/frontend/ws", "^TestModuleRepeats$"), Dies: `UNAVAILABLE|no server executed it`,
	},
	{
		Name: "module-waits-on", Also: "",
		Rule: "a wait that is given up is cancelled (holdfast.js, cancel)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `    this.#send("cancel", { client_id: call.client, request_id: id }, { within: Infinity }).then(`, `    Promise.reject(new Error("not sent")).then(`},
		},
		By: unit("shared/frontend/ws", "^TestModuleRepeats$"), Dies: `signal: killed`,
	},
	{
		Name: "module-waits-for-ever", Also: "",
		Rule: "a call that no server executes ends after its budget (holdfast.js, beat)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `      if (unheard > call.within || (`, `      if (false && (`},
		},
		By: unit("shared/frontend/ws", "^TestModuleWithoutServers$"), Dies: `signal: killed`,
	},
	{
		Name: "module-stays-with-the-silent", Also: "",
		Rule: "a server that says nothing any more is left (holdfast.js, beat)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `if (this.#ready && quiet > 2 * silence) this.#lost();`, `if (false) this.#lost();`},
		},
		By: unit("shared/frontend/ws", "^TestModuleHears$"), Dies: `UNAVAILABLE|no server executed it`,
	},
	{
		Name: "module-loss-of-another", Also: "",
		Rule: "the loss of another grant of a lock is none of this one (holdfast.js, loss)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `if (!loss.lock || loss.token === lock.token) lock.lose(`, `if (!loss.lock || loss.lock === lock.name) lock.lose(`},
		},
		By: unit("shared/frontend/ws", "^TestModuleHears$"), Dies: `false released`,
	},
	{
		Name: "module-watch-begins-anew", Also: "",
		Rule: "a watch goes on behind the last event that it told (holdfast.js, event)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `    if (event.lsn > 0) w.after = event.lsn;
`, ``},
		},
		By: unit("shared/frontend/ws", "^TestModuleWatches$"), Dies: `grant true undefined`,
	},
	{
		Name: "module-watch-waits-there", Also: "",
		Rule: "a watch that a server cannot serve goes on at another one (holdfast.js, watchAnswered)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `++w.refused % 2 === 0 ? () => this.#lost() : () =>`, `false ? () => this.#lost() : () =>`},
		},
		By: unit("shared/frontend/ws", "^TestModuleWatches$"), Dies: `grant,release false|signal: killed`,
	},
	{
		Name: "module-released-is-done", Also: "",
		Rule: "done says so where the lock was released before, and nothing is marked (holdfast.js, Lock.done)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `      if (done) throw new HoldfastError("RELEASED", `, `      if (false) throw new HoldfastError("RELEASED", `},
		},
		By: unit("shared/frontend/ws", "^TestModuleMarks$"), Dies: `undefined TypeError`,
	},
	{
		Name: "module-lost-is-done", Also: "",
		Rule: "what was done under a lock that was lost is not marked (holdfast.js, Lock.done)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `letGo(this, held && done)`, `letGo(this, done)`},
		},
		By: unit("shared/frontend/ws", "^TestModuleMarks$"), Dies: `LostError false`,
	},
	{
		Name: "module-takes-an-unmarked-grant", Also: "",
		Rule: "a grant of a server that ignored what was asked of it is given back (holdfast.js, acquire)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `.length > 0 && !m.marked) {`, `.length > 0 && false) {`},
		},
		By: unit("shared/frontend/ws", "^TestModuleMarks$"), Dies: `granted false`,
	},
	{
		Name: "module-done-is-given-up", Also: "",
		Rule: "a done whose end is not known goes on, and can be waited for again (holdfast.js, Lock.done)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `done ? { within: Infinity } : {}`, `{}`},
		},
		By: unit("shared/frontend/ws", "^TestModuleDoneGoesOn$"), Dies: `--- FAIL: TestModuleDoneGoesOn`,
	},
	{
		Name: "module-takes-an-unlimited-grant", Also: "",
		Rule: "a grant of a server that ignored the limit is given back (holdfast.js, acquire)",
		Edits: []Edit{
			{"clients/javascript/holdfast.js", `      if (limit !== undefined && (m.limit`, `      if (false && (m.limit`},
		},
		By: unit("shared/frontend/ws", "^TestModuleMarks$"), Dies: `granted false`,
	},
}
