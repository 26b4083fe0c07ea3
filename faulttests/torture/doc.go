// SPDX-License-Identifier: Apache-2.0

// Package torture runs campaigns: clients work on three real servers while one
// fault after the other is injected and mended, and in the end everything that
// the clients were told is compared with what is there.
//
//	go test ./faulttests/torture -torture                    # each fault once, at every site
//	go test ./faulttests/torture -torture -torture.site fuse -torture.for 1h -timeout 0 -v
//
// A Site is a cluster and what can be broken around it: a directory on the local
// disk, three mounts of a Share (package fuse), three mounts of a GlusterFS
// volume (package gluster), with or without a network of its own. A Fault is an
// object with a name. Around each fault the campaign wants a healthy cluster:
// one primary, able replicas, and clients that get through at no less than the
// floor. A campaign whose calls fell below it without a fault does not count.
//
// A campaign consists of rounds, each on a fresh volume and from a seed of its
// own, which is printed. Every round ends with fsck and all verdicts of package
// check. What the rounds found is one Report, in Markdown.
package torture
