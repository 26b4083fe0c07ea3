// SPDX-License-Identifier: Apache-2.0

// Package work holds the workloads of holdfast-bench. All go through the public
// client library, as a user's program would. Users are mostly separate processes, so own,
// contended and append run with a client for each worker, which has its own connection, and
// then with one client for all workers: --clients chooses one of them, or a number.
//
//	own        each worker acquires and releases a key of its own, with --wait as users do,
//	           though the key is free; closed loop
//	contended  all workers want one key and wait in its queue; closed loop, so the
//	           latency of the acquire is the time in the queue: compare the rate, which
//	           is hand-overs, and the shares of the least and the most served worker
//	append     each worker appends to a file of its own under a lock that it holds all
//	           the time; closed loop. At the end each file must consist of exactly the
//	           records that were answered
//	ceiling    pairs as in own with a server that is no lock service: it syncs each request to a
//	           log and answers, see package ceiling. This bounds own on the same machine
//	keepalive  each worker is a client of its own that holds one lock with the shortest
//	           lease; the rate is renewals, the cost is processor time. A lock that was
//	           lost fails the workload. The library decides when to renew; renewals are
//	           counted by reading the ends of the leases eight times in each
//	watch      pairs on own keys at a given rate of events (an open loop, two events of a
//	           pair) with watchers in this process: of all keys, or each of a key of its
//	           own, with as many keys as watchers. Several are spread over all
//	           servers. Each must see exactly the events of its keys, identified by
//	           their tokens, in the order of the log. The time of the commit is not known, so
//	           there are two rows: from the call of the acquire or release, which includes
//	           its commit; and "from the answer", 0 if the watcher had the event before
//	           the caller had its answer. Memory per watcher is what a server uses more than
//	           with one, both times after the same work on keys without watchers
//	watchers   watch with --watchers watchers of own keys, each with a connection of its own, at
//	           --rate events per second
//	connections  --connections clients in --processes processes, or in as few as file descriptors allow, each of which
//	           connects and holds one lock with a lease of --lease: how long that takes for all, and
//	           what the servers' memory grew by, as in watch, which says little for less than some
//	           thousand clients; keep-alives for a lease, and which were
//	           late; then --repeat times kill -9 of the primary, until the library of each client has
//	           renewed the lease with the next one, without a call of the program. The processor time beside that is of the
//	           clients' processes, and of the servers that live. It says how many
//	           connections the machine allows; locks that are lost are counted and acquired again
//	starved    some clients take locks of their own with pauses: while all is quiet; while busy loops
//	           (--starve-loops) and a disk load run for --duration, with the same priority as
//	           the servers, where each new term is one without a cause; through a kill -9 under
//	           the load; and after it, until nothing is unusual any more: errors, servers that are
//	           not well, new terms, acquires much slower than before. Only where it is named
//	holders    very many locks are acquired, held while other workers continue to acquire, and
//	           released; memory of each server before, at the height and afterwards.
//	           Latencies of acquires are separated by whether a checkpoint was in progress.
//	           With --holders-kills the primary is killed as in failover, before the locks
//	           are held and again while they are, and none of them may be lost by it
//	churn      pairs at a bounded rate, each on a name that was never used before: most by
//	           clients of the library, each of which ends after 50 steps; some while another
//	           client waits for the lock, and gets it, or waits too long, or gives up; some
//	           over HTTP under self-chosen IDs that are used once, a few of them never
//	           released. At the same time there are appends, and watchers that come and go. The
//	           servers remember silent clients for two minutes. Every 30 s servers, volume and
//	           this program are sampled. The result is not the rate but whether a value
//	           grows: the medians of the last third compared with those of the middle one
//	failover   the primary is killed with SIGKILL under a light load; the time is to the
//	           next grant that a client sees. Then the server is started again
//	pause      the same with SIGSTOP, until the next primary serves
//	handover   the primary role is handed over under a light load; the time is the longest one
//	           without a grant
//
// Own servers run on the machine of the workers and share its processors and its
// disk with them. To compare figures, use one machine, one filesystem, nothing
// else running, and at least three repetitions; the medians are printed with the
// least and the most.
package work
