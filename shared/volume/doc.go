// SPDX-License-Identifier: Apache-2.0

// Package volume implements the shared directory: its layout, how a term begins and
// ends, and everything that a primary writes there besides the frames of its log.
//
// # Layout
//
//	CLUSTER                      the cluster's ID and servers, and what a cell of a site owns; Init writes it last
//	epochs/<epoch, 10 digits>/   everything that one term writes; no other term writes to it
//	    fence                    block 0: the fence flag; block 1, 64 KiB on: START
//	    fenced.json              a note that all older terms are fenced, down to one that started
//	    claim.json               the claiming server and its nonce; flocked while the term has writers
//	    checkpoint-<lsn>/        immutable: lock_state.json, processed_requests.log
//	    wal-<lsn, 20 digits>.log segments, see package wal
//	MEMBERS                      the list of servers that the log has, derived: see members.go
//	lock_state.json              view for people, derived
//	processed_requests.log       view for people, derived
//	files/<path>                 protected files
//	history/                     the grants that ended
//	index/                       which request appended which bytes: see package index
//	servers/<id>.*               guard, reserve and prepared claims of one server,
//	                             its canary and its process's sign of life, its newest keys: see canary.go,
//	                             witness.go, process.go and keys.go
//	servers/tls-required         servers accept each other over TLS only: see keys.go
//	ca.crt, secrets/ca*.key      by which clients know the servers: see authority.go
//	secrets                      a file where the secrets are elsewhere: see secrets.go
//	keys.json, secrets/signing*  by which servers know what they signed: see signing.go
//	login/<nonce>                what users make who prove who they are, if logins are switched on: see login.go
//	audit/<server>-<day>-<n>.jsonl  what was refused to whom, and what operators did: see package auditdir
//	access/<version, 10 digits>.toml  the access rules, the highest number counts: see rules.go
//
// # Safety
//
// Authority depends on the content of blocks that are read through an open descriptor,
// never on a name that appears, disappears or is replaced.
//
//   - Claim: one rename of a complete directory to a free number. A number is
//     never free again, because the directory and its fence are never removed.
//   - Fence: block 0 of an older term's fence changes from zeros to a flag,
//     once, in place. A fence write that comes late changes nothing any more.
//   - START: block 1 of a term's own fence. It says up to which position the term adopted the log.
//   - Check: a read shows that block 0 of the term's own fence is still zero. A primary
//     sends an answer only after a check that began when the answer's records were durable.
//
// A primary writes only in the directory of its own epoch, with these exceptions: the
// protected files, the fences of older epochs, views, MEMBERS, history, index and servers/, and the removal
// of what terms older than the adopted one left. A takeover trusts none of these.
//
// # Adoption
//
// A cold takeover reads all of its base, the newest checkpoint that verifies, and all of
// the log after it, and adopts both. A warm takeover begins with the table of a replica: it reads the first
// lines of the newest two checkpoints and the end of the log, and adopts both checkpoints and the log from the
// older one on. What it did not read is verified while the term serves. Nothing that older
// terms left is removed before that, or before the term has a checkpoint of its own.
//
// # Packages below
//
// vfs is the interface to the filesystem, checkpoint the state as files, sidelog the files
// beside the log, of which historydir and index are two kinds; internal/layout has the names, internal/epochdir the content of one epoch's directory. The offline
// tools fsck and recovery use this package: neither it nor a server imports them.
//
// # Ownership
//
// A Volume and a Term are safe for concurrent use. A Prepared belongs to one
// goroutine. Every write in the name of a term asks the Term first, and is refused once the term has ended.
package volume
