// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	clientPkg     = "clientlib"
	usersTestsPkg = "clientlib/holdfasttest"
)

// goMutants break what Go programs rely on around a lock: errors, hooks, fences and servers in tests.
var goMutants = []Mutant{
	{
		Name: "with-ignores-loss",
		Rule: "With returns the loss of the lock, also where the function returned nil (package clientlib, With)",
		Edits: []Edit{
			{clientPkg + "/acquire.go", `lost != nil && !errors.Is(err, lost) {`, `lost != nil && err != nil && !errors.Is(err, lost) {`},
		},
		By: unit(clientPkg, "^TestWithLosesTheLock$"), Dies: `<nil> became <nil>`,
	},
	{
		Name: "with-keeps-the-lock-after-a-panic",
		Rule: "With releases the lock when the function panics (package clientlib, With)",
		Edits: []Edit{
			{clientPkg + "/acquire.go", `		if !returned {`, `		if !returned && ctx.Err() != nil {`},
		},
		By: unit(clientPkg, "^TestWithReleasesAfterAPanic$"), Dies: `the lock is held under token`,
	},
	{
		Name: "not-acquired-misses-deadline",
		Rule: "a context that ends while the request waits is ErrNotAcquired (package clientlib, ErrNotAcquired)",
		Edits: []Edit{
			{clientPkg + "/acquire.go", `e.notAcquired = waited || errors.Is`, `e.notAcquired = waited && errors.Is`},
		},
		By: unit(clientPkg, "^TestNotAcquired$"), Dies: `deadline`,
	},
	{
		Name: "outage-is-not-acquired",
		Rule: "a service that is silent is not a lock that others have (package clientlib, noteVain)",
		Edits: []Edit{
			{clientPkg + "/acquire.go", `e.Unknown && to != nil && c.lately(to, true)`, `(e.Unknown || to == nil)`},
		},
		By: unit(clientPkg, "^TestNotAcquired$"), Dies: `outage`,
	},
	{
		Name: "hook-called-twice",
		Rule: "the end of a lock is reported once (package clientlib, reportEnd)",
		Edits: []Edit{
			{clientPkg + "/hooks.go", `if !l.handed.Load() || !l.reported.CompareAndSwap(false, true) {`, `if !l.handed.Load() {`},
		},
		By: unit(clientPkg, "^(TestHooks|TestLossIsReportedOnce)$"), Dies: `lost: |released: `,
	},
	{
		Name: "middleware-accepts-lower",
		Rule: "a token that is lower than one that was seen is refused (package fencing, Middleware)",
		Edits: []Edit{
			{fencingPkg + "/http.go", `	return m.Guard.Do(lock, p.Token, func() error { return f(p) })`, `	return f(p)`},
		},
		By: unit(fencingPkg, "^TestMiddlewareBelievesTokens$"), Dies: `token "6": 200`,
	},
	{
		Name: "middleware-skips-expiry",
		Rule: "a proof that has expired is refused (package fencing, claims)",
		Edits: []Edit{
			{fencingPkg + "/http.go", `		return m.Guard.DoProof(m.Keys, lock, shown, f)`, `		if p, err := m.Keys.Verify(lock, shown); errors.Is(err, ErrExpired) {
			return f(p)
		}
		return m.Guard.DoProof(m.Keys, lock, shown, f)`},
		},
		By: unit(fencingPkg, "^TestMiddleware$"), Dies: `expired: 200`,
	},
	{
		Name: "sql-fence-takes-lower",
		Rule: "a transaction goes on only under the highest token (package fencing, SQL.Admit)",
		Edits: []Edit{
			{fencingPkg + "/sql.go", `	case Token(seen) > token:
		return &StaleError{Key: key, Token: token, Seen: Token(seen)}
	}`, `	case Token(seen) > token:
		return nil
	}`},
		},
		By: unit(fencingPkg, "^TestSQL$"), Dies: `<nil>, called 1 times`,
	},
	{
		Name: "test-server-leaks",
		Rule: "what a test has started ends with it (package holdfasttest)",
		Edits: []Edit{
			{usersTestsPkg + "/member.go", `	m.kill()
	m.loop.Wait()`, `	m.loop.Wait()`},
		},
		By: unit(usersTestsPkg, "^TestNothingIsLeft$"), Dies: `goroutines became`,
	},
	{
		Name: "jump-without-a-quorum",
		Rule: "without a quorum no lease ends, also for a test (package primary, jump)",
		Edits: []Edit{
			{"primary/leases.go", `	if !c.p.quorum.Load() || c.resigning {
		return
	}
	c.clock.elapsed += x.By`, `	c.clock.elapsed += x.By`},
		},
		By: unit("primary", "^TestJump$"), Dies: `live is false`,
	},
}
