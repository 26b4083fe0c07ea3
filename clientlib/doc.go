// SPDX-License-Identifier: Apache-2.0

// Package clientlib is the Go client of Holdfast: locks with fencing tokens, and
// exactly-once appends to protected files.
//
//	c, err := clientlib.New(clientlib.Options{Endpoints: []string{"h1:7601", "h2:7601", "h3:7601"}})
//	lock, err := c.Acquire(ctx, "billing/job", clientlib.AcquireOptions{Wait: time.Minute})
//	receipt, err := lock.Append(ctx, "billing/log", line)
//	err = lock.Release(ctx)
//
// # What is protected, and what is advisory
//
// Append is protected: the service writes, and only under the live token. A
// holder that was paused for an hour and wakes up changes nothing. Any other
// resource is protected only if it checks Token itself: let it remember the
// highest token it has seen and refuse lower ones. Everything else is advisory.
// A program can be stopped between looking at Context and acting on it, and no
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
// renewal was sent, State says so, with the deadline and why renewals fail, and States
// yields it; then the lock is valid again, or lost. A program that can write down
// where it is does so now.
//
// A session brings the service's word on a loss at once: why, at which LSN and who comes
// next. What a side that was cut off could not hear, and which append was the last, Loss
// asks for as soon as the service can be reached.
//
// # At most once
//
// A call that changes something has a request ID before its first try and keeps
// it for every retry, over lost answers and failovers: it is executed at most
// once. When the context of a call ends first, the call returns, and the client
// sees to it in the background that the request never executes; a lock granted
// meanwhile is released. Close gives that a moment. If a call ends and it is not
// known whether it was executed, the error is a *CallError that wraps
// wire.ErrUnknown and names the request, for Outcome.
//
// The service remembers the answers to 65,536 requests of a client, from the
// oldest one that is open. A wait may be open for days, so each Acquire that waits
// goes under an identity of its own, of a few that the Client keeps for that.
//
// # Sessions
//
// Behind its first calls a Client opens a session with the primary: one stream that
// carries its operations, many in one message, its keep-alives and the word that a
// lock is lost. When the session breaks or the reign ends, whatever was under way is
// asked again, under the same request IDs, over another one; a Client that does nothing but
// hold locks opens that within two seconds. Where a server has none, each operation is a
// call of its own.
//
// # Watching
//
// Watch yields what happens to locks as a sequence of events, from any server that
// is up, and goes on at another one where it was. It tells what was committed, a
// moment later: to look at or to act upon, but no proof of who holds a lock now. A
// Mirror keeps the locks that it tells of as a state that is whole at every moment.
//
// A Client is safe for use by several goroutines, and so is a Lock.
//
// # Locks
//
// Held in this order, the next one only where it says so: Client.mu, keeper.mu,
// Lock.mu. seat.mu, sequence.mu, servers.mu, session.mu and Mirror.mu are held alone. None
// is held during a call, but Mirror.mu while its users look.
package clientlib
