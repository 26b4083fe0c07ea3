// SPDX-License-Identifier: Apache-2.0

// Package gluster makes a real shared filesystem for tests: a GlusterFS volume
// with three replicas on this machine, and three clients that mount it, each
// with a network of its own, as three hosts would.
//
// The storage host is a process with namespaces of its own for network, mounts
// and process IDs: when it is killed, glusterd, all bricks and the self-heal
// daemon end with it. It has its own /var/lib/glusterd, /var/log/glusterfs and
// /run, so several volumes may be there at once. Each client is a network namespace with a link to the storage host. Its
// mount is made in the mount namespace of the test, where servers and tests find it.
//
// Everything ends with the test. What a killed test left is ended by the next Start.
package gluster
