// SPDX-License-Identifier: Apache-2.0

// Package text is the front end for telnet, netcat and shells: a line asks, and a
// line answers.
//
//	LOCK,NAME,CLIENT[,TTL[,WAIT]]   SUCCESS, FAIL, TIMEOUT
//	UNLOCK,NAME,CLIENT[,TOKEN]      SUCCESS, FAIL
//	RENEW,NAME,CLIENT[,TOKEN]       SUCCESS, FAIL
//	TOKEN,NAME,CLIENT               the token, or NONE
//	OWN,NAME[,CLIENT]               the holder of the lock, or NONE
//	AUTH,CREDENTIAL                 SUCCESS, FAIL: the lines that follow are of the caller whose key or ticket it is
//	QUIT                            SUCCESS, and the connection ends
//
// Besides, every line may be answered with INVALID_COMMAND (there is no such command),
// INVALID_FORMAT (it is not written like this) or ERROR. ERROR means that nothing is known: the
// service is not available, or the answer was lost. No answer, because the connection broke,
// means the same. What to do then is below. DENIED means that the access rules do not allow it, or that the credential is
// missing, expired or revoked. A credential goes over the wire as it is: use TLS, or a server on the same host. Where TLS is
// required, plain text from another host is answered with DENIED, a colon and why, and the connection ends. LIMITED means that a
// quota leaves no room for a LOCK or an OWN, and that nothing was done: send it again in a second, or release something. A line
// that exceeds a rate is held for up to a second before that, but only while no other line of its connection waits: no RENEW and
// no UNLOCK waits for it.
//
// LOCK, UNLOCK, RENEW and TOKEN are answered by the primary, whichever server was asked.
// OWN is answered from this server's own table, which may be a moment behind: never behind
// what the same connection was answered before, and ERROR when it is older than five seconds.
// CLIENT is not used there, and may be left out.
//
// # Client names
//
// A line has no IDs. CLIENT is a name that the user chooses. Every line with that name is of that
// client, from any connection to any server. Two processes that exclude each other need different
// names, such as a host and a process ID.
//
// The lock table knows a client by the ID that clientID makes of its name and the lock's. That
// ID has the form of those that servers make, "~", so it is none that OpenClient makes, nor one
// that a user chose; and "text/" after it is in none that a server draws. It is one for each lock,
// because a client that is heard keeps all that it holds: a RENEW of one lock must not keep
// another. OWN turns it back into the name. A holder that did not come by this front end is shown
// by its client ID, with "=" in front of one that a user chose; no name of a client here begins
// like that. Of several holders of a lock the oldest is shown.
//
// All that this front end must remember is in the lock table: the holder of a lock, and its token.
// So a server that crashes loses nothing, and any other may be asked next.
//
// # What each line does
//
// LOCK grants the lock to the client, if it is free. A client that has it already gets
// SUCCESS too, and its lease begins anew: that is a repeat, whose first answer may be lost, and
// after SUCCESS a client may count on a whole TTL from the moment it sent the line. So where the
// lease that it has is shorter than the TTL in the line, the answer is FAIL. With WAIT the
// client waits in line that long. The same line, sent again meanwhile, finds the same place, and
// WAIT runs from the first. Where one of their connections is noticed to be dead, or says that it
// sends nothing more, that place is given up: the line on the other one then waits on, at the end,
// for what is left of its own WAIT. (Lines that differ in TTL or WAIT wait one after the other.)
//
// UNLOCK, RENEW and TOKEN first ask the primary under which token the client holds the lock, when
// the line is executed. UNLOCK then releases that token, and no later grant, also when it is the
// same client's. FAIL means that the client did not hold the lock. With TOKEN a line means one
// grant, and any other is a FAIL.
//
// Without TOKEN, UNLOCK ends what the client holds when it is executed, and that may be later than
// it seems: a line may be long on its way, or come after a LOCK that waits, while the client has the
// lock anew by another connection. So one that is not begun five seconds after it was read is an ERROR,
// and not executed; and one whose connection is known to be dead is left out. What was on its way
// before is not known here. Processes that share a name, or that may take the lock anew before an
// UNLOCK is answered, name the grant that they mean: TOKEN, and then UNLOCK,NAME,CLIENT,TOKEN.
//
// # Repeats
//
// After ERROR, or no answer:
//
//   - LOCK again, to any server. If the first one was executed, this one is SUCCESS with the
//     same grant. If that has ended meanwhile, it is an acquire like any other, so FAIL where
//     another client was faster. A client that does not want the lock any more sends UNLOCK; should
//     a pending LOCK be executed even later, its grant ends with its lease.
//   - UNLOCK again. SUCCESS and FAIL both mean that the client holds nothing now. Where processes
//     share the name, or the lock may have been taken anew, TOKEN asks for the grant, and UNLOCK
//     names it.
//   - RENEW again. FAIL means that the lease has ended: what it protected may be another's.
//
// A failover changes nothing of this: grants, places and tokens survive it, leases are counted
// afresh, and a line under way goes on at the next primary or is an ERROR.
//
// # Leases
//
// TTL and WAIT are whole seconds, such as 30, or Go durations, such as 1m30s or 1500ms. Without a
// TTL a lease has 30 seconds; one that the servers do not give (1 s to 10 min, unless they are
// told otherwise) is INVALID_FORMAT. A lease ends that long after the grant unless RENEW or LOCK
// comes, whatever becomes of the connection: a lock belongs to a client, not to a connection. A
// client that waited does not know since when it has the lock: it sends RENEW, and counts from
// there. All should count a little less. A client that may be late gives the token of TOKEN to what
// it writes to: a protected file (holdfast append --token) compares it.
//
// A LOCK that waits gives its place up when its client sends nothing more: because it closed the
// connection, died, or closed its half (as netcat -N does), which look alike from here. The answer
// is TIMEOUT, if the client still reads. A grant that came in the same moment stays: a repeat of the
// line may have been answered elsewhere, and to release it would take a lock from a client that was
// just answered that it holds it. It ends with its lease. A server that stops takes no place away:
// the line, sent to another one, finds it.
//
// # Lines
//
// A line ends with LF or CR LF, and its answer ends in the same way. Commands are taken in upper
// and lower case. NAME is a lock name without commas. CLIENT has 1 to 96 printable ASCII
// characters without spaces, commas, quotes and backslashes, and begins with a letter, a digit or
// "_"; no client has the name of an answer. Nothing is trimmed: a field that begins or ends with a
// space is refused. So is an empty line, one that is not UTF-8, and one with control characters,
// and so what telnet sends for an interrupt (IAC), for nothing is negotiated. A line of more than
// 1024 bytes is read to its end and refused. What follows the last line end is not a line.
//
// What begins with a word and a space, or with a word that is longer than any command, comes to the front end for HTTP
// instead, which refuses it (package clientport).
// Nothing is read after a line that begins a request over HTTP (it ends with HTTP/1.1 or HTTP/1.0),
// after one that is too long, which may be such a request, and after one that begins with the byte
// 0x16, as TLS does: no web page can make a browser send lines.
//
// Lines may be sent without waiting for answers. They are executed one after the other, and
// answered in this order. What has arrived is executed, also when the client is gone; only a LOCK,
// and an UNLOCK without TOKEN, are then left out. A server that stops answers ERROR to what it has
// no more time to begin.
//
// # Bounds
//
//	1024 connections       one more gets ERROR and is closed
//	128 lines ahead        then reading waits, for ten seconds at most
//	10 s to end a line     counted from its first byte
//	10 s to take answers   counted for each
//	5 s to begin an UNLOCK without TOKEN, from when it was read
//	15 min of silence      while nothing is asked; a minute before the first line (package clientport)
//	15 s without AUTH      where the access rules give nothing to who is unknown: then DENIED, unasked
//	24 h to wait           the longest WAIT
//
// A client beyond these is cut, without a further answer. A host that vanished is noticed in half a
// minute.
//
// # Goroutines
//
// Each connection has two: one reads lines and sends them through a channel, and the other owns
// everything else, executes and answers.
package text
