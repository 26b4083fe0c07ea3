// SPDX-License-Identifier: Apache-2.0

// Package leader elects one of many processes: it does the work, the others wait and take over
// when it resigns, dies or is cut off.
//
//	e, err := leader.NewElection(client, "billing/leader", leader.Options{TTL: 15 * time.Second, Value: "http://h1:8080"})
//	err = e.Run(ctx, func(ctx context.Context, l *leader.Leadership) error {
//		return serve(ctx, l.Token()) // until ctx ends
//	})
//
// An election is a lock of the service, and its leader the holder. So candidates wait
// in a fair queue that survives failovers, one of them is woken when the leader goes, and
// none polls. The token of the lock numbers the terms, and its metadata
// is the value that the leader publishes.
//
// # What is certain
//
// The Context of a Leadership ends before the lease can, by the clock of this process,
// whether or not any server can be reached: when the last renewal that was answered was
// sent TTL - Grace ago, less a margin for clocks that drift. The next leader is granted
// the lock TTL after that at the earliest. So of all the Contexts of an election at most
// one is alive at any moment, and between one leader that could not resign and the next lies
// at least Grace. An operator who breaks the lock does not wait for that.
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
// cannot be noticed.
package leader
