// SPDX-License-Identifier: Apache-2.0

// Package checkpoint writes and reads the state of a volume at one position of its log: as the two
// files of a checkpoint, as the views for people, and as the stream that feeds a replica.
//
// All three have one format, described in codec.go, one writer, Export, and one decoder, Decoder. Both work line by
// line, so that neither needs the state in memory a second time. A checkpoint is durable before it gets its
// name. A reader verifies all sums, and the hash of a table that it restores.
package checkpoint

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// CopyName is the name of the stream of a snapshot in the data directory of a server, and in a backup.
const CopyName = "replica.table"

// Snapshot is a table at one position of the log.
type Snapshot struct {
	Cluster cluster.ID
	Epoch   cluster.Epoch // of the term that wrote it
	At      wal.Position
	// Table belongs to the snapshot: nothing may change it while the snapshot is in use.
	Table *locktable.Table
	// Pending are committed appends up to At that their files may lack, in log order.
	Pending []locktable.Record
}

// Export returns the export of the snapshot.
func (s Snapshot) Export() Export {
	return Export{
		Cluster: s.Cluster, Epoch: s.Epoch, At: s.At, Hash: s.Table.Hash(), Pending: s.Pending,
		Entities: func(yield func(locktable.Entity, error) bool) {
			for e := range s.Table.Export() {
				if !yield(e, nil) {
					return
				}
			}
		},
	}
}

// Export is the state at one position of the log, to be written once. Its entities come one by one, so
// that a table can change while it is exported.
type Export struct {
	Cluster cluster.ID
	Epoch   cluster.Epoch // of the term that writes it
	At      wal.Position
	// Hash is the hash of the table.
	Hash uint64
	// Entities yields the entities of the table once, receipts first. An error is the last thing it yields.
	Entities iter.Seq2[locktable.Entity, error]
	// Pending are committed appends up to At that their files may lack, in log order.
	Pending []locktable.Record

	// Taken is when a view was taken, in RFC 3339; "" in a checkpoint.
	Taken string
}

// Write writes x into a new directory below dir, and returns the size of its files in bytes. The directory gets
// its final name when everything in it is durable. Write calls may before this rename, and ends with its error.
func Write(fsys vfs.FS, dir string, x Export, may func() error) (size int64, err error) {
	final := dir + "/" + layout.CheckpointDir(x.At.LSN)
	tmp := final + layout.TmpSuffix
	if err := vfs.IgnoreMissing(vfs.RemoveTree(fsys, tmp)); err != nil {
		return 0, fmt.Errorf("checkpoint %d: remove an unfinished one: %w", x.At.LSN, err)
	}
	if size, err = fill(fsys, tmp, x); err != nil {
		return 0, errors.Join(fmt.Errorf("checkpoint %d: %w", x.At.LSN, err), vfs.IgnoreMissing(vfs.RemoveTree(fsys, tmp)))
	}
	// A crash here leaves a complete directory under a temporary name, which every reader ignores.
	if err := may(); err != nil {
		return 0, err
	}
	if err := fsys.Rename(tmp, final); err != nil {
		return 0, fmt.Errorf("checkpoint %d: %w", x.At.LSN, err)
	}
	return size, fsys.SyncDir(dir)
}

func fill(fsys vfs.FS, tmp string, x Export) (size int64, err error) {
	if err := fsys.Mkdir(tmp); err != nil {
		return 0, err
	}
	err = x.Files(func(name string, write func(io.Writer) error) error {
		n, err := writeWhole(fsys, tmp+"/"+name, write)
		size += n
		return err
	})
	if err != nil {
		return 0, err
	}
	return size, fsys.SyncDir(tmp)
}

// writeWhole creates a file, writes it in pieces and makes it durable.
func writeWhole(fsys vfs.FS, name string, write func(io.Writer) error) (size int64, err error) {
	f, err := fsys.Open(name, vfs.FlagCreate)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := io.NewOffsetWriter(f, 0)
	w := bufio.NewWriterSize(vfs.InPieces(out, f.Sync), vfs.PieceSize)
	if err := write(w); err != nil {
		return 0, err
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	if size, err = out.Seek(0, io.SeekCurrent); err != nil {
		return 0, err
	}
	return size, f.Sync()
}

// List returns the LSNs of the complete checkpoints in path, the directory of a term, newest first.
func List(fsys vfs.FS, path string) ([]cluster.LSN, error) {
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	var all []cluster.LSN
	for _, x := range entries {
		if lsn, ok := layout.ParseCheckpoint(x.Name); ok {
			all = append(all, lsn)
		}
	}
	slices.SortFunc(all, func(a, b cluster.LSN) int { return cmp.Compare(b, a) })
	return all, nil
}
