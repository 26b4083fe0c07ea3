// SPDX-License-Identifier: Apache-2.0

// Package election decides which server should serve: heartbeats, suspicion, pre-votes
// and the preference for the lowest live ID, or, in a cell, for the next one in turn.
//
// It is for liveness only. Nothing here is needed for safety: two servers that both
// believe they should be primary harm each other's term and nothing else, because
// claims and fences on the volume decide which of them may answer clients.
//
// # Ownership
//
// One goroutine, the loop in Run, owns what this server is about to do: when to
// ping, when to poll, whether a term is on offer. What was heard from the other
// servers is in the table that Elector.mu guards: the handlers, the pings in flight
// and the polls write it, the loop and the methods for the node read it. No
// callback and no call of the transport is made with the mutex held. Callbacks
// run on a goroutine of their own, so a slow one delays only later callbacks.
//
// # What counts as alive
//
// A server is heard when it answers: a ping that goes out and never comes back
// proves nothing about the way back, so a link that is dead in one direction is
// dead for both ends. The age of an answer is counted from the moment its
// ping was sent, so an answer that arrives late is as old as it really is.
//
// A live primary answers within Suspicion (see Late servers) in the role fencing or primary, and
// is not stalled. Stalled needs proof by one's own storage: its last check is
// older than StorageTimeout while ours is fresh, or its core loop made no progress
// while our own write went through, or a call of its takeover has not returned for
// StorageTimeout while ours is fresh. When the whole share stalls, no server has that
// proof and all wait.
//
// # Late servers
//
// A server that gets no CPU hears nobody, and where CPU is short all are late at the same times.
// So silence that a server could not have heard is no evidence. The loop measures by how much each
// of its ticks is late. Four times the worst of the last seconds, a tick that is overdue included,
// is the server's allowance: it judges the silence of others by a Suspicion and a MajorityWindow
// that are longer by as much, but by nine times the configured Suspicion at most.
//
// A tick that is later than half of that is a sleep: the process was stopped, or its machine. That
// adds to no allowance. From when the server wakes up it gives the primary the largest allowance
// to be heard again; once for each silence, so that a dead primary is suspected within a bound,
// however late this server is.
//
// A connection that breaks or is refused is no silence, and is heeded at once. StorageTimeout,
// Heartbeat, and whether a claim is confirmed before its first fence depend on no lateness.
//
// # The vote of the volume
//
// Of two servers, one alone is no majority. There the volume has a vote, as if it were a third server:
// for a primary as long as no other server has claimed, which a check of the term shows; and for a
// server that wants to claim when it has shown for long enough that no server goes on as primary. A
// primary raises its canary every second, and a server that takes over says so in its sign of life.
// The node reads both past the caches, those of all servers, and hands them to Saw. The volume votes yes when none has changed
// for three beats, and for twice as long as reads may be old; longer on a slow share, and for a late
// server. So the other server follows after some 3 s, and not after 0.3 s as one of three does.
//
// Time in which this server could not have seen a change does not count: that in which its own
// writes were not fresh, in which it slept, and its own terms. A vote of the volume is
// one of several: a server that answers, and is or hears a live primary, forbids a claim as ever.
//
// Two servers that do not hear each other, on a filesystem that shows old data, could end each
// other's terms in turns. A server whose term rested on the volume's vote, and that sees another server
// go on after it, waits twice as long the next time, up to minutes more, until it hears the other again.
//
// With other numbers of servers the volume votes by an operator's permission only (Permit): in place of
// all servers that do not answer, for one claim and the term that it becomes. It votes yes or
// no by the same looks. A server that is seen to go on ends the permission.
//
// # Who counts
//
// The node hands in each new list of servers (SetMembers). A server that only joins is pinged, and what it tells of
// itself is reported: by that the primary sees whether it could be primary. It counts in no majority, is asked for no vote
// and asks for none. A server does not answer the pings of one that it does not list, so a new one is able only when a majority
// has heard of it. A pre-vote or an offer that other voters decided counts no more when the list changes. Two servers
// with different lists may both be elected, by disjoint majorities; then one of them ends the other's term.
//
// # Two processes with one ID
//
// A server that is started again has another nonce. Two nonces that are heard in turn are two
// processes with one ID: a conflict, in which both are ignored. Unless exactly one of them is seen
// to write to this server's own volume, which the node checks: then the other is a stranger.
// It serves a copy of the volume, with the same addresses in it, and what it sends does not
// count. It gets the status of this server all the same: by that it can see that it has a copy.
// A process that is not seen to write, and should be, is not worse off than one without a volume.
package election
