// SPDX-License-Identifier: Apache-2.0

// Package vmlab runs servers on virtual machines that mount a real network filesystem: one
// machine exports an ext4 over NFS, three mount it. Machines can lose their power, freeze, be cut
// off and boot again, so that a test includes the leases, delegations and grace periods of real
// kernels, which processes on one kernel cannot show.
//
//	make vmlab
//
// QEMU emulates the machines without hardware help, and boots Debian's kernel with an initramfs
// that Build makes of busybox, the NFS tools of this machine, the holdfast binary and an agent.
// An emulated machine is 20 to 50 times slower than a real one: verdicts, calls on the wire and
// waits for leases are valid for real ones, milliseconds are not.
//
// Everything runs inside the network namespace of the test's process (cluster.Inside): two
// bridges, one for what is tested and one over which the test commands the agents, so that a
// machine that is cut off still executes commands. Nothing is connected to the machine's own
// network.
package vmlab
