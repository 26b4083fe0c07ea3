// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"math/bits"
	"strings"
)

// Op is a set of kinds of calls, as a share's server sees them. The kernel decides how it
// translates system calls: an open by path, for example, is a Lookup
// for each component that is not cached, and then an Open or a Create.
type Op uint32

// The kinds of calls.
const (
	Lookup Op = 1 << iota
	GetAttr
	SetAttr // chmod, utimes, and truncate
	Open
	Create
	Read
	Write     // also each O_DSYNC write
	Fsync     // fsync and fdatasync of a file; a caching host sends one after O_DSYNC writes, too
	FsyncDir  // fsync of a directory
	ReadDir   // listing, counted once per open directory
	Mkdir     //
	Unlink    //
	Rmdir     //
	Rename    //
	Link      //
	Fallocate //
	Lock      // flock, and its release by unlock; not that by close
	StatFs    //

	opEnd
)

// AllOps is every call.
const AllOps = opEnd - 1

// Names are the calls that change directories.
const Names = Create | Mkdir | Unlink | Rmdir | Rename | Link

// Changes are the calls that may change something.
const Changes = Names | SetAttr | Write | Fsync | FsyncDir | Fallocate

var opNames = [...]string{
	"lookup", "getattr", "setattr", "open", "create", "read", "write", "fsync", "fsyncdir", "readdir",
	"mkdir", "unlink", "rmdir", "rename", "link", "fallocate", "lock", "statfs",
}

// String lists the kinds in the set.
func (o Op) String() string {
	var all []string
	for i, name := range opNames {
		if o&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return strings.Join(all, "|")
}

// index is the place of a single kind in a table.
func (o Op) index() int { return bits.TrailingZeros32(uint32(o)) }
