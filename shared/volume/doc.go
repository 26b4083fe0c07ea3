// SPDX-License-Identifier: Apache-2.0

// Package volume is the shared directory: its layout, how a term begins and
// how it ends, and everything a primary writes there besides its log's frames.
//
// # Layout
//
//	CLUSTER                      who the volume belongs to; committed last by Init
//	epochs/<epoch, 10 digits>/   everything one term writes, written by nobody else
//	    fence                    block 0: the fence flag; block 1, 64 KiB on: START
//	    fenced.json              that all below are fenced, down to an epoch that began
//	    claim.json               who claimed, with a nonce; flocked while the term has writers
//	    checkpoint-<lsn>/        immutable: lock_state.json, processed_requests.log
//	    wal-<lsn, 20 digits>.log segments, see package wal
//	lock_state.json              view for people, derived
//	processed_requests.log       view for people, derived
//	files/<path>                 protected files
//	history/                     who held what
//	index/                       who appended what: see package index
//	servers/<id>.*               guard, reserve and prepared claims of one server,
//	                             its canary and its process's sign of life: see canary.go,
//	                             witness.go and process.go
//
// # Safety
//
// Authority rests on the content of blocks read through an open descriptor,
// never on a name appearing, disappearing or being replaced.
//
//   - Claim: one rename of a complete directory onto a free number. Numbers are
//     never free again, because a directory with its fence stays for ever.
//   - Fence: block 0 of an older term's fence goes from zero to something,
//     once, in place. A late fence write fences what is fenced already.
//   - START: block 1 of the own fence. It binds which log was adopted and up to where.
//   - Check: block 0 of the own fence still reads zero. What a primary tells
//     anybody is justified by a check that began after it was durable.
//
// A primary writes only inside its own epoch's directory. The exceptions are
// the protected files, the fences of older epochs, views, history and servers/,
// and the removal of what terms older than the adopted one left; recovery
// trusts none of these.
//
// # Adoption
//
// A cold takeover reads all of its base, the newest checkpoint that verifies, and all of
// the log behind it, and adopts these. A warm one reads their edges and the tail of
// the log, and adopts the base before as well, and the log from there on. What it did
// not read is verified while the term serves; nothing that older terms left is
// removed before that, or before the term has a checkpoint of its own.
//
// # Packages below
//
// vfs is the interface to the filesystem, checkpoint the state as files, index the side files of
// appends; internal/layout has the names, internal/epochdir the content of one epoch's directory. The offline
// tools fsck and recovery stand above: neither this package nor a server imports them.
//
// # Ownership
//
// A Volume is safe for use by several goroutines. A Prepared belongs to one
// goroutine. A Term is safe for several; everything that writes in its name
// asks it first and stops once it is closed.
package volume
