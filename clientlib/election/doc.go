// SPDX-License-Identifier: Apache-2.0

// Package election lets one of many processes lead: it does the work, the others stand
// in line and take over when it resigns, dies or is cut off.
//
//	e, err := election.New(client, "billing/leader", election.Options{TTL: 15 * time.Second, Value: "http://h1:8080"})
//	err = e.Run(ctx, func(ctx context.Context, l *election.Leadership) error {
//		return serve(ctx, l.Token()) // until ctx ends
//	})
//
// An election is a lock of the service, and its leader the holder. So candidates stand
// in a fair line that survives failovers, one of them is woken when the leader goes, and
// nobody asks again and again. The token of the lock numbers the terms, and its metadata
// is what the leader says of itself.
//
// # What is certain
//
// The Context of a Leadership ends before the lease can, by the clock of this process,
// whether or not anybody can be reached: when the last renewal that was answered was
// sent TTL - Grace ago, less a margin for clocks that drift. The next leader is granted
// the lock TTL after that at the earliest. So of all the Contexts of an election at most
// one is alive at any moment, and between one leader and the next, if no word was heard,
// lies at least Grace. An operator who breaks the lock does not wait for that.
//
// It ends, but what it was given to may not. Three things help, each where the one
// before does not reach:
//
//   - Run calls OnOverrun at the deadline if the function still runs. By default the
//     process ends: nothing is left that could go on as a leader.
//   - A process that is stopped, or starved, for longer than its lease wakes up late
//     and may do a little before it notices. So give Token to everything that the leader
//     changes, and let it refuse a token lower than the highest it has seen.
//   - Appends through Leadership.Lock are refused by the service when the token is not
//     the live one. Nothing else need be done.
//
// # Clocks
//
// The lease is counted on the Client's clock, which runs while the machine sleeps, and
// may be 1 % slower than the service's. A clock that stands still while the process runs
// is beyond what anybody can notice.
package election
