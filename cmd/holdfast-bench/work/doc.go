// SPDX-License-Identifier: Apache-2.0

// Package work holds the workloads of holdfast-bench. All go through the public
// client library, as a user's program would.
//
//	own        each worker acquires and releases a key of its own; closed loop
//	contended  all workers want one key and wait in its queue; closed loop, so the
//	           latency of the acquire is the time in the queue: look at the rate, which
//	           is hand-overs, and at what the least and the most served worker got
//	append     each worker appends to a file of its own under a lock that it holds all
//	           the time; closed loop. At the end each file must consist of exactly the
//	           records that were answered
//	keepalive  each worker is a client of its own that holds one lock with the shortest
//	           lease; the rate is renewals, the cost is processor time. A lock that was
//	           lost fails the workload. Renewals come when the library sends them, and are
//	           counted by looking at the ends of the leases eight times in each
//	watch      pairs on own keys at a given rate of events (an open loop, two events of a
//	           pair) with watchers in this process: of all keys, or each of a key of its
//	           own, where there are as many keys as watchers. Several are spread over all
//	           servers. Each must see exactly the events of what it watches, told apart by
//	           their tokens, in the order of the log. The commit is nowhere told, so there
//	           are two rows: from when the acquire or release was called, which includes
//	           its commit; and "from the answer", 0 where the watcher had the event before
//	           the caller had its answer. Memory per watcher is what a server has more than
//	           with one, both times after the same work on what nobody watches
//	holders    very many locks are acquired, held while others go on to acquire, and
//	           released; memory of each server before, at the height and afterwards.
//	           Latencies of acquires are told apart by whether a checkpoint was under way.
//	           With --holders-kills the primary is killed as in failover, before the locks
//	           are held and again while they are, and none of them may be lost by it
//	churn      pairs at a bounded rate, each on a name that was never used before: most by
//	           clients of the library, each of which ends after 50 steps; some while another
//	           client waits for the lock, and gets it, or waits too long, or gives up; some
//	           over HTTP under self-chosen IDs that are used once, a few of them never
//	           released. Beside them appends, and watchers that come and go. The servers
//	           remember silent clients for two minutes. Every 30 s servers, volume and this
//	           program are looked at. What counts is not the rate but whether something
//	           grows: the medians of the last third beside those of the middle one
//	failover   the primary is killed with SIGKILL under a light load; the time is to the
//	           next grant that a client sees. Then the server is started again
//	pause      the same with SIGSTOP, until the next primary serves
//	handover   the reign is handed over under a light load; the time is the longest one
//	           without a grant
//
// Own servers run on the machine of the workers and share its processors and its
// disk with them. To compare figures, use one machine, one filesystem, nothing
// else running, and at least three repetitions; the medians are printed with the
// least and the most.
package work
