// SPDX-License-Identifier: Apache-2.0

// Package locktable is the deterministic heart of Holdfast: the table of locks,
// queues, protected files, clients and receipts.
//
// A Table changes only through Apply, and Apply depends only on the table and
// the record: no clock, disk, goroutine, randomness or map order. Servers that
// apply the same records in the same order hold identical tables, and Hash
// proves it. Decide turns a request into records or a refusal and changes
// nothing; time enters only as the records of DecideExpire and its kin, which
// the core loop asks for. A Table is not safe for concurrent use.
//
// # Invariants
//
// Check verifies these:
//
//  1. A lock has at most one holder. The token of its grant is the LSN of the
//     Grant record, so it is at most LSN() and no two grants share one.
//  2. A queue is in the order of its Enqueue records.
//  3. A free lock has no waiters, save between the record that freed it and
//     the Grant that belongs to the same batch; such a lock is known as owed.
//  4. A lock without holder, waiter and file is not in the table.
//  5. Each file is bound to one lock which lists it; no two files share an inode;
//     0 <= Start <= End, and the last append ends at End.
//  6. A client lists exactly the grants it holds, in token order, and the
//     requests it has waiting.
//  7. A request has a place in at most one of: a queue, the receipts. No receipt
//     is below its client's low-water mark. The number of receipts is bounded.
//  8. An anonymous client holds or waits, and its receipts are those of the
//     grants it holds. An opened client has a nonce that no other client has.
//  9. The sorted indexes name exactly what the maps hold.
//  10. Hash() equals the hash computed anew from the whole state.
//
// # At most once
//
// A request is (client, request ID). What it did stands in its receipt, written
// by the same record that did it; a repeat gets the receipt's answer and no
// record. A refusal leaves no receipt: it did nothing, so the request may be
// asked again. Receipts end in three ways, and none lets a request run twice:
//
//   - The client raises its low-water mark. Receipts below it go, and every ID
//     below it is STALE_REQUEST from then on. A waiter below the mark keeps its
//     place, but its grant will leave no receipt.
//   - A self-chosen client keeps the 64 receipts with the highest LSNs. When an
//     older one is dropped, the client's Dropped mark rises to its ID + 1, and an
//     ID below that mark which has neither receipt nor place in a queue is
//     STALE_REQUEST. So self-chosen IDs should rise: after an ID of a million and
//     64 more requests, nothing below a million is executed for this client.
//   - The client is forgotten. An opened client never comes back. A self-chosen
//     one starts anew, which is why it is forgotten only after the client retention.
//
// The receipt of an anonymous client's Acquire lives as long as its grant, so
// that a server which repeats a forwarded call after a failover finds the grant
// again; nothing else of an anonymous client is kept.
package locktable
