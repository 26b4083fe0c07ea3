// SPDX-License-Identifier: Apache-2.0

// Package torture runs campaigns: clients work on three real servers while one
// fault after the other is injected and ended, and at the end all answers that
// the clients got are compared with the volume.
//
//	go test ./faulttests/torture -torture                    # each fault once, at every site
//	go test ./faulttests/torture -torture -torture.site fuse -torture.for 1h -timeout 0 -v
//
// A Site is a cluster with its storage and network, in which faults can be injected: a directory
// on the local disk, three mounts of a Share (package fuse), three mounts of a GlusterFS
// volume (package gluster), with or without a network of its own. A Fault is an
// object with a name. Before and after each fault the campaign requires a healthy cluster:
// one primary, able replicas, and clients whose rate of calls is at least the
// floor. A campaign whose rate was lower without a fault does not count.
//
// A campaign consists of rounds, each on a fresh volume and from a seed of its
// own, which is printed. Every round ends with fsck and all verdicts of package
// check. The results of all rounds are one Report, in Markdown.
package torture
