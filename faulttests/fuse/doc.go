// SPDX-License-Identifier: Apache-2.0

// Package fuse is a shared filesystem for fault tests: a file server with a
// disk (a Share) that several client hosts have mounted (Mounts), as the hosts
// of one NFS server have. Linux, as root.
//
//	share, err := fuse.NewShare(backing, seed) // an existing directory
//	one, err := share.Mount(dir1, fuse.Strict())
//	two, err := share.Mount(dir2, fuse.Stale(time.Second))
//	defer share.Close()
//
//	slow := one.Inject(fuse.Fault{Ops: fuse.Fsync, Delay: 20 * time.Millisecond})
//	full := share.Inject(fuse.Fault{Ops: fuse.Write, Under: "files", Err: unix.ENOSPC})
//	once := two.Inject(fuse.Fault{Ops: fuse.Fsync, Contains: "/wal-", Skip: 9, Times: 1, Err: unix.EIO})
//	late := two.Inject(fuse.Fault{Ops: fuse.Write, Contains: "/fence", Times: 1, Err: unix.EIO, Effect: fuse.DoneLate})
//	cut := one.Cut()
//	…
//	cut.Release() // hanging calls continue, and are executed
//	late.Release()
//	loss, err := share.PowerLoss(0.5)
//
// # The backing directory
//
// The backing directory always has what clients see, with the same
// inode numbers: a test can read it there directly, or with a cluster.Options with Dir
// = backing and Dirs = the mounts. Only an un-synced removal looks
// different there: the link count still has the removed name.
// Renaming onto a name may for a moment show the replaced file there under the old name.
// Files may be put there directly before clients use them; they count as durable.
//
// A name is looked up again by the kernel after an error, once, when it was known
// before: a single fault of a Lookup may have no effect. A directory that the share
// moved without the kernel's knowledge, as PowerLoss may, can cost one ESTALE in a rename.
//
// Each file that the kernel remembers of a share costs this process a descriptor.
// From Linux 6.18 on the kernel is now and then asked to forget files that are not in use.
//
// # What a power loss takes
//
// Data is durable after fsync or fdatasync of the file, or when it was written with
// O_DSYNC or O_SYNC; names are durable after fsync of their directory. A rename becomes durable
// as one change, with the directory it leads from or to. A name cannot become durable
// without its earlier changes. Without a sync, names become
// durable after 30 s, as in journals; data never does.
//
// Everything is in the page cache of this machine only: nothing here survives
// a power loss of the machine itself, and an fsync costs nothing but its call.
//
// # Never use a mount from its own process
//
// The process that serves a mount must not use it: a call on a mount can hold a
// thread, or the runtime, that is needed to answer it. Tests work on mounts
// through child processes and look at the backing directory themselves.
// Nor may a served mount be the working directory or hold files of that process.
//
// # What is not modelled
//
// Symbolic links, devices, extended attributes, byte-range locks (ENOLCK),
// write-back caches of clients (each write reaches the share before the call
// returns), permissions beyond mode bits.
package fuse
