// SPDX-License-Identifier: Apache-2.0

// Package text is the front end for telnet, netcat and shells: a line asks, and a
// line answers.
//
//	LOCK,NAME,CLIENT[,TTL[,WAIT]]   SUCCESS, FAIL, TIMEOUT
//	UNLOCK,NAME,CLIENT[,TOKEN]      SUCCESS, FAIL
//	RENEW,NAME,CLIENT[,TOKEN]       SUCCESS, FAIL
//	TOKEN,NAME,CLIENT               the token, or NONE
//	OWN,NAME[,CLIENT]               who holds the lock, or NONE
//	QUIT                            SUCCESS, and the connection ends
//
// Besides, every line may be answered with INVALID_COMMAND (there is no such command),
// INVALID_FORMAT (it is not written like this) or ERROR. ERROR says that nothing is
// known: the service is not there, or the answer was lost. Whoever gets no answer, because
// the connection broke, knows as much. What to do then is below, and needs no new word.
//
// LOCK, UNLOCK, RENEW and TOKEN are answered by the primary, whichever server was asked.
// OWN is answered from this server's own table, which may be a moment behind: never behind
// what the same connection was answered before, and ERROR when it is older than five seconds.
// CLIENT is read by nobody there, and may be left out.
//
// # Who a client is
//
// A line has no IDs. CLIENT is a name that the user chooses, and whoever uses it is that client,
// from any connection to any server. Two processes that shall exclude each other need different
// names, such as a host and a process ID.
//
// The lock table knows a client by the ID that clientID makes of its name and the lock's. That
// ID has the form of those that servers make, "~", so it is none that OpenClient makes, nor one
// that somebody chose; and "text/" behind it is in none that a server draws. It is one for each
// lock, because a client that is heard keeps all that it holds: a RENEW of one lock must not
// keep another. OWN turns it back into the name. A holder that did not come by this front end
// is shown by its client ID, with "=" in front of one that somebody chose; no name of a client
// here begins like that. Of several who share a lock the oldest is shown.
//
// All that this front end must remember is in the lock table: who holds a lock, and under which
// token. So a server that crashes loses nothing, and any other may be asked next.
//
// # What each line does
//
// LOCK grants the lock to the client, if it is free. A client that has it already gets
// SUCCESS too, and its lease begins anew: that is a repeat, whose first answer may be lost, and
// who hears SUCCESS may count on a whole TTL from the moment it sent the line. So where the
// lease that it has is shorter than the TTL in the line, the answer is FAIL. With WAIT the
// client waits in line that long. The same line, sent again meanwhile, finds the same place, and
// WAIT runs from the first. Where one of their connections is noticed to be dead, or says that it
// sends nothing more, that place is given up: the line on the other one then waits on, at the end,
// for what is left of its own WAIT. (Lines that differ in TTL or WAIT wait one behind the other.)
//
// UNLOCK, RENEW and TOKEN first ask the primary under which token the client holds the lock, when
// the line is executed. UNLOCK then releases that token, and no later grant, also when it is the
// same client's. FAIL says that the client did not hold the lock. With TOKEN a line means one
// grant, and any other is a FAIL.
//
// Without TOKEN, UNLOCK ends what the client holds when it is executed, and that may be later than
// it seems: a line may be long on its way, or lie behind a LOCK that waits, while the client has the
// lock anew by another connection. So one that is not begun five seconds after it was read is an ERROR,
// and not executed; and one whose connection is known to be dead is left out. What was on its way
// before nobody here can tell. Processes that share a name, and whoever may take the lock anew
// before an UNLOCK is answered, say which grant they mean: TOKEN, and then UNLOCK,NAME,CLIENT,TOKEN.
//
// # Repeats
//
// After ERROR, or no answer:
//
//   - LOCK again, to any server. If the first one was executed, this one is SUCCESS with the
//     same grant. If that has ended meanwhile, it is an acquire like any other, so FAIL where
//     somebody else was faster. Who does not want the lock any more says UNLOCK; should a LOCK
//     under way be executed even later, its grant ends with its lease.
//   - UNLOCK again. SUCCESS and FAIL both say that the client holds nothing now. Where processes share
//     the name, or the lock may have been taken anew, TOKEN asks for the grant, and UNLOCK names it.
//   - RENEW again. FAIL says that the lease has ended: what it protected may be another's.
//
// A failover changes nothing of this: grants, places and tokens survive it, leases are counted
// afresh, and a line under way goes on at the next primary or is an ERROR.
//
// # Leases
//
// TTL and WAIT are whole seconds, such as 30, or Go durations, such as 1m30s or 1500ms. Without a
// TTL a lease has 30 seconds; one that the servers do not give (1 s to 10 min, unless they are
// told otherwise) is INVALID_FORMAT. A lease ends that long after the grant unless RENEW or LOCK
// comes, whatever becomes of the connection: a lock belongs to a client, not to a connection. Who
// waited does not know since when it has the lock: it says RENEW, and counts from there. All should
// count a little less. Who may be late shows the token of TOKEN to what it writes to: a protected
// file (holdfast append --token) compares it.
//
// A LOCK that waits gives its place up when its client sends nothing more, be it that it closed
// the connection, that it died, or that it said so (half a connection, as netcat -N makes): these
// look alike from here. The answer is TIMEOUT, if anybody still listens. A grant that came in the same
// moment stays: a repeat of the line may have been told of it elsewhere, and to release it would
// take a lock from a client that was just told it has it. It ends with its lease. A server that
// stops takes no place away: the line, sent to another one, finds it.
//
// # Lines
//
// A line ends with LF or CR LF, and its answer ends in the same way. Commands are taken in upper
// and lower case. NAME is a lock name without commas. CLIENT has 1 to 96 printable ASCII
// characters without spaces, commas, quotes and backslashes, and begins with a letter, a digit or
// "_"; nobody is called like an answer. Nothing is trimmed: a field that begins or ends with a
// space is refused. So is an empty line, one that is not UTF-8, and one with control characters,
// and so what telnet sends for an interrupt (IAC), for nothing is negotiated. A line of more than
// 1024 bytes is read to its end and refused. What stands behind the last line end is no line.
//
// Nothing is read behind a line that begins a request over HTTP (it ends with HTTP/1.1 or HTTP/1.0),
// behind one that is too long, which may be such a request, and behind one that begins with the byte
// 0x16, as TLS does: no page that somebody looks at can have a browser send lines.
//
// Lines may be sent without waiting for answers. They are executed one after the other, and
// answered in this order. What has arrived is executed, also when nobody listens any more; only
// a LOCK, and an UNLOCK without TOKEN, are then left out. A server that ends answers what it has no
// more time to begin with ERROR.
//
// # Bounds
//
//	1024 connections       one more gets ERROR and is closed
//	128 lines ahead        then reading waits, for ten seconds at most
//	10 s to end a line     counted from its first byte
//	10 s to take answers   counted for each
//	5 s to begin an UNLOCK without TOKEN, from when it was read
//	15 min of silence      while nothing is asked
//	24 h to wait           the longest WAIT
//
// Whoever is beyond these is cut, without a further answer. A host that vanished is noticed in
// half a minute.
//
// # Goroutines
//
// Each connection has two: one reads lines and hands them over through a channel, and the other
// owns everything else, executes and answers.
package text
