// SPDX-License-Identifier: Apache-2.0

// Package primary implements the primary server: it takes over from the previous
// term, owns the table, commits batches to the log and answers clients.
//
// # Commit
//
// One goroutine, the core loop, owns the table. Batch by batch:
//
//	decide    request + table -> records or a refusal; applied in memory at once
//	append    one frame; fdatasync. A crash before loses nothing that was answered
//	check     a read of the own fence that began after the fdatasync returned
//	write     appends go to their files' writers
//	deliver   answers, pushes
//
// While a frame syncs, the next batch is decided. With nothing else in flight
// the loop does all of it inline. A batch that only gives requests their places in queues
// rests for up to 2 ms: nobody waits for it, and the next call shares its sync.
//
// Every answer depends on an LSN, its basis: the last one decided when it was made.
// It is sent only after the log is durable up to there and a fence check that began
// later has passed. Refusals, reads and renewals are part of a batch like everything
// else, and batches are committed in order, which makes the rule hold by construction.
//
// # Protected files
//
// A file is verified by its writer before an append is admitted, so a refusal
// leaves no record. An append is answered after its own write. The answer to a
// grant waits for earlier appends to files bound to its lock.
//
// # Goroutines
//
//	core        owns table, leases, waiters, file slots and the batch being decided
//	committer   owns the batch in flight while the core loop decides the next
//	segments    makes the next log segment ready
//	watch       checks the volume's path once a second
//	housekeeper verifies what a warm takeover did not read; checkpoints, removal
//	viewer      writes the views for people
//	side logs   the history of grants and the index of files; they may lag and never
//	            block the core loop (package sidelog)
//	writers     one per protected file in use (package protected)
//	replication pushers, one per replica, and the barrier (package replication)
//
// The watch hub does not belong to the term: it gets every committed frame and goes
// on when the term ends (package watch).
//
// The primary ends as a whole: a term that is closed stops every one of them,
// and Run returns when all have ended. What was in flight is answered UNKNOWN.
//
// # Locks
//
// queue.mu and Primary.end are leaves, and neither is held during a call to the volume. The
// packages of the actors name theirs.
package primary
