// SPDX-License-Identifier: Apache-2.0

// Package fencing protects a resource of one's own by the tokens of Holdfast's locks.
//
// A lock alone protects nothing: its holder may be paused, lose its lease, and write an hour
// later. But tokens rise with every grant, so a resource that remembers the highest token it has
// seen and refuses lower ones is safe from every holder but the latest that it heard of (M.
// Kleppmann, "How to do distributed locking", 2016; the sequencers of Chubby, OSDI 2006, 2.4). A
// Guard is that memory, and it is durable:
//
//	g, err := fencing.Open(dir)
//	err = g.Do("accounts", token, func() error { return store.Write(…) })
//	if errors.Is(err, fencing.ErrStale) { … } // its holder was replaced
//
// A token is a number that anybody can make up, and a huge one would lock out every holder. Where
// that matters, holders bring a proof instead, which a server has signed (clientlib.Lock.Proof,
// holdfast proof); the guard believes nothing else:
//
//	keys, err := fencing.OpenKeys("/etc/store/keys.json", clusterID)
//	err = g.DoProof(keys, "accounts", proof, func(p fencing.Proof) error { return store.Write(…) })
//	if errors.Is(err, fencing.ErrForged) { … } // or ErrExpired, ErrOtherLock, ErrShared, ErrStale
//
// The guard belongs where the resource is, one guard for each, not with the writers. Where
// several processes serve one resource they must share its guard's decision: one of them
// keeps it. The files of Holdfast itself need none of this: the service writes them.
//
// Middleware does this for handlers of HTTP. SQL keeps the memory in a table of a database, and Exec is for tables that have a
// fence in each row; they need no Guard.
//
// A guard does not know how a token holds its lock. Of a lock that is shared there are several
// live ones at a time, and the highest may be a reader's: what only a holder alone may change
// accepts tokens of exclusive grants only. Client.Verify reports which they are, and DoProof
// accepts no others.
//
// # What is written
//
// One file, "tokens", with a line for each token that was higher than all before for its key:
// CRC-32C, token and quoted key. A line is synced before Do calls its function, so that a guard
// which was killed or lost power knows every token under which anything was done. A last line
// that is torn was never relied on and is dropped; any other damage is an error. The file is
// written anew when the guard is opened, and, without what was surpassed, when it has grown to
// more than twice what it has to keep. The names of the directories above it are durable when
// Open returns.
//
// # Where
//
// On a local filesystem. A lock on the directory keeps other processes out, and each token that
// is admitted is preceded by a check whether another process has written all the same, because
// the lock's file was removed or a network filesystem lost the lock: the guard then closes
// itself. But a network filesystem may show that late.
package fencing
