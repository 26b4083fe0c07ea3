// SPDX-License-Identifier: Apache-2.0

// Package gluster makes a real shared filesystem for tests: a GlusterFS volume
// with three replicas on this machine, and three clients that mount it, each
// with a network of its own, as three hosts would.
//
//	go test ./faulttests/gluster -faults -timeout 30m -v
//
// The storage host is a process with namespaces of its own for network, mounts
// and process IDs: when it is killed, glusterd, all bricks and the self-heal
// daemon end with it. It has its own /var/lib/glusterd, /var/log/glusterfs and
// /run, so several volumes may be there at once. Each client is a network
// namespace with a link to the storage host. Its mount is made in the mount
// namespace of the test, where servers and tests find it.
//
// Everything ends with the test. The next Start ends what a killed test left.
//
// # What was measured
//
// GlusterFS 10.3, replica 3, two cores, 500 rounds each, between mounts:
//
//   - Stale reads, defaults: 498 renames and 500 synced appends. With Holdfast's options: none.
//   - One default option at a time, 30 rounds of each probe: quick-read, io-cache,
//     read-ahead, stat-prefetch, nl-cache, and 1 s of attribute-timeout, entry-timeout or
//     negative-timeout, and direct-io-mode=auto each showed old data in most rounds;
//     open-behind, write-behind, readdir-ahead, client-io-threads, choose-local and the rest did not.
//   - With cluster.quorum-type none a client that is cut from two bricks of three writes to the
//     third, gets an answer, and others do not see the write; with auto it is refused (ENOTCONN).
//   - A mount always shows in .meta which translators its client runs. Their options are
//     shown as they were when that graph was made: later settings are in effect but not shown.
//   - Two mounts rename a directory each onto one name at the same time: one always won, the
//     other got ENOTEMPTY, and its directory stayed whole under its old name.
//   - Inode numbers are equal on all mounts; aligned direct I/O shows no old blocks;
//     flock excludes other mounts and is free 5 ms after kill -9 of its holder.
//   - While a killed brick is away, calls continue. A tenth of a second after one had
//     come back, before it was healed, the writer of a file got the file's size
//     as it was when the brick was killed, through its open descriptor.
//   - A client that is cut from a brick hangs for network.ping-timeout at some calls.
//   - A client that was just cut from a brick writes, and gets an answer: the write is on
//     the two other bricks. Another mount that reads that file from the cut brick
//     through an open descriptor continues to read old data, for all of the 60 seconds
//     of the test; statx with AT_STATX_FORCE_SYNC does not help. A stat of
//     the path ends it, once the writer has marked the brick, after
//     cluster.post-op-delay-secs (1 s). So with one stat of the path per second, data
//     may be old by about two seconds when links between clients and bricks break.
package gluster
