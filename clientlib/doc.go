// SPDX-License-Identifier: Apache-2.0

// Package clientlib is the Go client of Holdfast: locks with fencing tokens, and
// exactly-once appends to protected files.
//
//	c, err := clientlib.New(clientlib.Options{Endpoints: []string{"h1:7601", "h2:7601", "h3:7601"}})
//	lock, err := c.Acquire(ctx, "billing/job", clientlib.AcquireOptions{Wait: time.Minute})
//	receipt, err := lock.Append(ctx, "billing/log", line)
//	err = lock.Release(ctx)
//
// With does the same around a function, whose context ends when the lock is lost:
//
//	err := c.With(ctx, "billing/job", clientlib.AcquireOptions{}, func(ctx context.Context, l *clientlib.Lock) error {
//		return work(ctx, l.Token())
//	})
//	if errors.Is(err, clientlib.ErrNotAcquired) {
//		return nil // another process is at it
//	}
//
// A worker that does its work under a lock, for as long as it has the lock, and acquires it
// again after a loss:
//
//	for ctx.Err() == nil {
//		lock, err := c.Acquire(ctx, "billing/job", clientlib.AcquireOptions{Wait: clientlib.Forever})
//		if err != nil {
//			return err // no server answered for Options.Budget, or the request was refused
//		}
//		err = work(lock.Context(), lock.Token()) // returns when its context ends
//		if lock.Context().Err() == nil {
//			return errors.Join(err, lock.Release(ctx))
//		}
//		log.Print(context.Cause(lock.Context())) // a *LostError: why, and what is known of the end
//	}
//
// Packages below this one build on it: leader elects one of many processes, watch keeps a
// copy of locks up to date, fencing remembers tokens where a resource is, holdfasttest runs servers
// inside tests. What is promised of these packages from version to version is in docs/promises.md.
//
// # What is protected, and what is advisory
//
// Append is protected: the service writes, and only under the live token. A
// holder that was paused for an hour and wakes up changes nothing. Any other
// resource is protected only if it checks Token itself: let it remember the
// highest token it has seen and refuse lower ones. Everything else is advisory.
// A program can be stopped between checking Context and acting on it, and no
// lock service can prevent what it does when it goes on.
//
// # Loss
//
// A lease is kept alive until Release, Close or loss. Its end is counted from
// when the last answered renewal was sent, less a margin for drift, on a clock
// that runs while the machine sleeps; so this side gives up before the service
// does. At the latest then, cut off or not, the Context of the Lock ends with a
// *LostError as its cause. A token is never revived: acquire again for a new one.
//
// Before that the lock is in jeopardy: when half a TTL has passed since an answered
// renewal was sent, State reports it, with the deadline and why renewals fail, and States
// yields it; then the lock is valid again, or lost. A program that can save its work
// does so now.
//
// The service reports a loss on a session at once: why, at which LSN, and the next holder's
// token. What a client that was cut off could not hear, and which append was the last, Loss
// asks for as soon as the service can be reached.
//
// # At most once
//
// A call that changes something has a request ID before its first try and keeps
// it for every retry, over lost answers and failovers: it is executed at most
// once. When the context of a call ends first, the call returns, and the client
// cancels the request in the background, so that it never executes; a lock granted
// meanwhile is released. Close gives that a moment. If a call ends and it is not
// known whether it was executed, the error is a *CallError that wraps
// ErrUnknown and names the request, for Outcome.
//
// The service remembers the answers to 65,536 requests of a client, from the
// oldest one that is open. A wait may be open for days, so each Acquire that waits
// has a client ID of its own, of a few that the Client keeps for that.
//
// # Sessions
//
// A Client has one connection to a server that it speaks to. After its first calls it opens a
// session with the primary there: that carries its operations, many in one message, its
// keep-alives and reports of lost locks.
// When the session breaks or the term ends, whatever was under way is
// sent again, under the same request IDs, over another one; a Client that does nothing but
// hold locks opens that within two seconds. Where a server has none, each operation is a
// call of its own.
//
// # Watching
//
// Watch yields what happens to locks as a sequence of events, from any server that
// is up, and goes on at another one where it was. It yields what was committed, a
// moment later: good to show or to act upon, but no proof of who holds a lock now. A
// Mirror of package watch keeps the locks themselves.
//
// # What is where
//
// Most programs need few of the types: Options and Client; With, TryAcquire and Acquire with AcquireOptions; Lock; and the
// errors ErrNotAcquired and *LostError. The others by what they are for:
//
//   - To hold a lock: Holder is what this process says of itself. Lock.State returns a State, which has a Phase and, where an
//     operator wants the lock, Asked.
//   - To append and read: Receipt, FileInfo, FilePiece and Follower.
//   - To look at locks of others: Get and List return a LockInfo, which has a HolderInfo, a SharerInfo or a WaiterInfo for each
//     client, and Ask. History returns PastGrants. Verify tells what is left of a token.
//   - To see what happens: Watch yields Events, of which the first is a Reset.
//   - To operate: Status returns a StatusInfo, which has a ServerInfo with a VolumeInfo for each server, and a TableInfo.
//     Break takes a lock from its holder. Outcome and Cancel return the OutcomeInfo of a request.
//   - For metrics and traces: Hooks and CallTrace.
//   - Names and numbers, such as LockName, Token and LSN, are types of their own, so that none is taken for another.
//
// A Client is safe for use by several goroutines, and so is a Lock.
package clientlib
