// SPDX-License-Identifier: Apache-2.0

// Package locktable is the replicated state machine of Holdfast: a deterministic
// table of locks, queues, protected files, clients and receipts.
//
// A Table changes only through Apply, and Apply depends only on the table and
// the record: no clock, disk, goroutine, randomness or map order. Servers that
// apply the same records in the same order hold identical tables, and Hash
// proves it. Decide turns a request into records or a refusal and changes
// nothing; time enters only as the records of DecideExpire and the like, which
// the core loop calls. A Table is not safe for concurrent use.
//
// # Turns
//
// A lock is held by one holder in exclusive mode or by any number in shared mode, each with
// a grant, token, lease and client of its own. The turns are phase-fair (Brandenburg and
// Anderson, "Spin-based reader-writer synchronization for multiprocessor real-time
// systems"): a shared request waits for at most one exclusive holder, an exclusive one for
// those before it and at most one phase of shared holders per turn.
//
//   - A request is granted at once if no request waits and the lock is free or, for a shared
//     request, not held in exclusive mode. Otherwise it waits.
//   - After an exclusive grant ends, all shared requests that wait at that moment have their
//     turn together, wherever they are in the queue: a phase. If there are none, it is the
//     turn of the first exclusive request.
//   - After the last grant of a phase ends, it is the turn of the first exclusive request.
//   - A Downgrade makes an exclusive grant a shared one under the same token. It begins a
//     phase, of which that grant is a part. There is no upgrade: two holders that waited for
//     each other to upgrade would wait for ever.
//   - When the last exclusive request that waits leaves, and the lock is not held in
//     exclusive mode, the shared requests that waited are a phase.
//
// The record that begins a phase and all its grants belong together, but the log may end
// between any two of them, and a large phase is decided in several steps. So the table
// keeps the LSN of that record until the last request of the phase is granted or has left:
// shared requests with a place up to there are owed a grant; later ones are not, unless no
// exclusive request waits: then they join. The grants that are owed follow in the same
// batch, in the next ones by DecideOwed, or after the record that begins the next term.
//
// Only an exclusive token writes: file operations under a shared token are refused.
//
// # Semaphores
//
// A request may take some of the permits of a lock with a limit (Permit): its weight. Its grant is one of several in shared mode,
// with a token, lease and client of its own, and the weights of all grants together are at most the limit. There are no phases:
//
//   - A request is granted at once if no request waits and its weight is free. Otherwise it waits.
//   - When a grant ends, or the first waiter leaves, the first waiters have their turn, in order, as far as what is free reaches. One that
//     needs more is waited for: lighter ones behind it do not overtake it, since it could wait for ever otherwise.
//
// The limit stands in each grant and place, and nowhere else. All of a lock have the same, or none has: whoever asks with another
// one, or with none, is refused (cluster.StatusOtherLimit). So the kinds of turns never mix, and a lock that nobody holds or waits
// for is free for any limit.
//
// # Invariants
//
// Check verifies these:
//
//  1. A lock has at most one exclusive holder, and with it no other. The token of a grant
//     is the LSN of the Grant record, so it is at most LSN() and no two grants share one.
//  2. A queue is in the order of its Enqueue records.
//  3. A free lock has no waiters, and no shared request waits where no exclusive one
//     holds or waits, except between the record that made it so and the Grants that
//     belong to it; such a lock is in the owed index. A phase owes at least one grant.
//  4. A lock without holder, waiter and file is not in the table.
//  5. Each file is bound to one lock which lists it; no two files share an inode;
//     0 <= Start <= End, and the last append ends at End.
//  6. A client lists exactly the grants it holds, in token order, and the
//     requests it has waiting.
//  7. A request has a place in at most one of: a queue, the receipts. No receipt
//     is below its client's low-water mark. The number of receipts is bounded.
//  8. An anonymous client holds or waits, and its receipts are those of the
//     grants it holds. An opened client has a nonce that no other client has.
//  9. The sorted indexes name exactly what the table holds, and a lock has an entry
//     for waiters, files, metadata, asks and further holders only while it has some.
//  10. Hash() equals the hash computed anew from the whole state.
//  11. What is remembered of ended bindings is in order and bounded.
//  12. The feature level, if the cluster was raised to one, is one that this binary knows.
//  13. The list of servers, if the log made one, is valid, and its version is above that of CLUSTER.
//  14. Marks are in the order of the records that made or changed them last, bounded, and of a lock that is held the last token,
//     if it is known, is not below that of a holder.
//  15. All who hold a lock or wait for it have the same limit, and the permits of the holders are at most so many. A lock with a limit
//     has no phase.
//  16. What the cell owns, if the log says so, is valid, and every lock and file in the table has a name of its own.
//
// # At most once
//
// A request is (client, request ID). What it did stands in its receipt, written
// by the same record that did it; a repeat gets the receipt's answer and no
// record. A refusal leaves no receipt: it did nothing, so the request may be
// asked again. Receipts end in three ways, and none lets a request run twice:
//
//   - The client raises its low-water mark. Receipts below it are dropped, and every ID
//     below it is STALE_REQUEST from then on. A waiter below the mark keeps its
//     place, but its grant will leave no receipt.
//   - A self-chosen client keeps the 64 receipts with the highest LSNs. When an
//     older one is dropped, the client's Dropped mark rises to its ID + 1, and an
//     ID below that mark which has neither receipt nor place in a queue is
//     STALE_REQUEST. So self-chosen IDs should rise: after an ID of a million and
//     64 more requests, nothing below a million is executed for this client.
//   - The client is forgotten. An opened client never comes back. A self-chosen
//     one starts anew, so it is forgotten only after the client retention, or where a
//     request asks for it, which says that nothing of it is repeated any more.
//
// The receipt of an anonymous client's Acquire lives as long as its grant, so
// that a server which repeats a forwarded call after a failover finds the grant
// again; nothing else of an anonymous client is kept.
//
// A Bind of a file that is bound to that lock, or a Seal of one that is sealed, changes
// nothing and leaves a receipt all the same (KindAlready): its late duplicate must do
// nothing after an Unbind or a Rotate either.
//
// # Identities
//
// A client belongs to the identity of the first request that is executed for it under one
// (Record.Identity), while the table has it: with its grants, its places in queues, its receipts
// and its low-water mark. A request of another identity that names the client, and one of another
// identity that uses a token of it, is refused; so is one without an identity. A refusal leaves
// nothing. Breaks are not concerned. A client without an identity is open to all, as all were once.
//
// Only Decide and its callers compare identities. What Apply takes to be legal does not depend on
// them, nor does the hash: older binaries skip the field, and must have the same table otherwise.
// A checkpoint that such a binary wrote has none; the next request of a client brings its back.
//
// # Bindings that ended
//
// A server that was paused before its write to a protected file may do it an hour later, in
// a file that is not bound any more, or not under that name. And clients refer to a position
// by name, generation and offset long after. So the table remembers:
//
//   - up to which offset an inode was given to appends, and refuses to bind it again where
//     it is shorter. A file that the service has just made is a new one, even if its inode
//     number was used before.
//   - the highest generation of a file that was unbound. The next binding of any name begins
//     above it, so no name ever has a generation twice.
//   - which appends to an unbound file may be in no file, because their generation was
//     quarantined. A quarantined file has to be rotated before it is unbound.
//
// All of it is bounded: see past. Records of older binaries remember nothing of this and are
// applied as they always were (Record.Remember).
//
// # Marks
//
// A lock that nobody holds, waits for or bound a file to is not in the table, so that names that never come again cost nothing.
// Where a grant asks for it (Record.Remember), the table keeps a mark of its lock for later: the token of the last grant. So it can
// grant a lock only if nobody was granted it after a token (Record.After), and whoever held it under that token knows that
// everything is as it left it. Where there is no mark, it is not known, and such a request is refused: never the other way around.
//
// A mark also has the highest slot of the lock that is done. A grant for a slot (Record.Slot) may be released as done, and from then on
// nobody is granted the lock for that slot, nor for an earlier one: a request is answered ALREADY_DONE, and one that waits is
// taken out of its queue by KindSkip, at once or, behind many others or after a crash, at its turn. If the holder's lease ends before, nothing is
// done, and the next one has its turn. Slots are texts in the order of cluster.Slot.
//
// Marks are bounded: with more than MaxMarks the one is forgotten that was made or changed longest ago, and KindForgetMark forgets
// those that were not changed for long. There is no clock in the table: the core loop decides when. A ForceClear leaves marks, but
// their last tokens are not known from then on: it follows a recovery, where grants may be lost of which nobody knows.
//
// # Servers
//
// The list of the cluster's servers is that of CLUSTER, version 1, until a KindMembers makes another. Each carries the whole list
// (cluster.Membership), so that one record says all, and each version follows the one before: no list is lost in between, and no ID
// that was removed comes back. The table decides nothing by it: it is for those who claim, vote and connect.
//
// # Cells
//
// A volume may be one cell of a site (cluster.Own). Then KindOwn, the first record of its log, says which names it owns, and never
// changes. A request for another lock or file is answered WRONG_CELL, with the cell that has the name as far as this one knows; a repeat
// of one that was executed gets its receipt's answer first. A record that brings another name into the table is illegal: so two cells
// whose ranges are disjoint never grant the same lock, whatever anybody believes of them. Without a KindOwn the table has all names.
//
// # Rings
//
// Clients that wait for each other in a ring (Ring) are told to people. Who waits for permits waits for a holder if the others could
// not make room. A client is a process with any number of threads: a
// ring is no proof that nobody goes on, so nothing is decided by it, and nobody's wait ends.
//
// # Feature levels
//
// What an older binary must not meet waits for the feature level of the cluster. KindLevel raises
// it, only upwards, and it is part of the state: a binary that finds a higher level in the log or in a
// state than MaxLevel refuses both (ErrUnknownLevel). Level 4 is KindLevel itself, which binaries of level
// 3 refuse as an unknown kind; nothing else waits for it. So a log without a KindLevel can be taken over by them. Level 5 is KindMembers:
// below it the list of servers does not change. Level 6 is marks: below it a grant that asks for one, or depends on one, is refused.
// Level 7 is semaphores: below it a request with a limit is refused.
// Level 8 is KindOwn: a volume that is a cell begins with it.
//
// A table may be driven by a newer binary than its replicas run. Request.Level says up to which
// feature level records may go, at most that of the cluster: binaries of level 1 know neither Mark nor Remember nor KindAlready.
// For them an opened client's ID names no cluster, a Bind or Seal that changes nothing leaves no
// receipt, and an Unbind or Rotate remembers nothing, or is refused where it would forget appends
// that may be lost. They cannot load a table that remembers something, so from then on their level
// is ignored. Binaries of level 2 do not know KindExtend, nor its receipts: while one of them is
// there, no lease is extended.
//
// # Export
//
// A checkpoint is the state at one LSN, and takes seconds while the table goes on
// changing. An Exporter returns it in bounded steps. What an Apply is about to
// remove is saved with every export that has not reached it; everything else
// is distinguished by its LSN. So an Apply pays for what it changes, and nothing at all
// while no export is under way.
//
// # What is not state
//
// A Lease and a Presence have fields in which the core loop counts leases and the silence
// of clients, so that a million of them need no second map. The table never reads them.
package locktable
