// SPDX-License-Identifier: Apache-2.0

// Package auditdir names, writes and searches the files of the audit, in audit/ on the volume, which only their owner may
// read. Package audit has the format of their lines.
//
// A file is written by one process, from its beginning to its end: it is created under a number that is free. So neither a server that
// was started again nor two processes under one ID write into a file of another, and what a crash has torn is the end of a file.
package auditdir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/sidelog"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Commands is the server that files of commands on the volume are named for: none has this ID.
const Commands cluster.ServerID = 0

// Name identifies a file.
type Name struct {
	Server cluster.ServerID
	// Day is that on which it was begun, as 2006-01-02, by the clock of its server in UTC.
	Day string
	N   uint32 // from 1, in the order in which they were begun
}

const suffix = ".jsonl"

// Path returns the path of a file on the volume.
func (n Name) Path() string {
	return fmt.Sprintf("%s/%d-%s-%06d%s", layout.AuditDir, n.Server, n.Day, n.N, suffix)
}

// Parse returns the Name of the file that is called so in the directory; false if it is none of the audit.
func Parse(name string) (n Name, ok bool) {
	stem, _ := strings.CutSuffix(name, suffix)
	server, rest, _ := strings.Cut(stem, "-")
	if len(rest) < len(time.DateOnly)+1 {
		return n, false
	}
	id, idErr := strconv.ParseUint(server, 10, 32)
	number, err := strconv.ParseUint(rest[len(time.DateOnly)+1:], 10, 32)
	n = Name{Server: cluster.ServerID(id), Day: rest[:len(time.DateOnly)], N: uint32(number)}
	_, dayErr := time.Parse(time.DateOnly, n.Day)
	return n, idErr == nil && err == nil && dayErr == nil && n.Path() == layout.AuditDir+"/"+name
}

// Compare orders names by day.
func (n Name) Compare(other Name) int {
	return cmp.Or(strings.Compare(n.Day, other.Day), cmp.Compare(n.Server, other.Server), cmp.Compare(n.N, other.N))
}

// Day returns the day of a time, as names have it.
func Day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// List lists the files, the oldest first. A volume without an audit has none.
func List(fsys vfs.FS) (all []Name, err error) {
	entries, err := fsys.ReadDir(layout.AuditDir)
	if err := vfs.IgnoreMissing(err); err != nil {
		return nil, fmt.Errorf("list %s: %w", layout.AuditDir, err)
	}
	for _, x := range entries {
		if n, ok := Parse(x.Name); ok && x.Type == vfs.TypeFile {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, Name.Compare)
	return all, nil
}

// Writer writes the files of one server's process, one after another. It belongs to one goroutine.
type Writer struct {
	*sidelog.Output
	fs   vfs.FS
	name Name // of the last file that was begun
}

// NewWriter returns a writer without a file. It touches nothing yet.
func NewWriter(fsys vfs.FS, server cluster.ServerID) *Writer {
	return &Writer{Output: sidelog.NewOutput(fsys, vfs.FlagPrivate|vfs.FlagDsync, func() error { return nil }), fs: fsys, name: Name{Server: server}}
}

// Name returns that of the last file that was begun; its N is 0 before the first.
func (w *Writer) Name() Name { return w.name }

// maxTries is how many numbers are tried for a file, where others take them meanwhile, or a cache hides them.
const maxTries = 100

// Begin has a file open that was begun on this day and has less than limit bytes: it closes one that was not or has more, and creates the next.
func (w *Writer) Begin(day string, limit int64) error {
	if w.Open() && w.name.Day == day && w.Size() < limit {
		return nil
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := sidelog.MakeDir(w.fs.MkdirPrivate, w.fs, layout.AuditDir); err != nil {
		return fmt.Errorf("make %s: %w", layout.AuditDir, err)
	}
	next, err := w.free(day)
	if err != nil {
		return err
	}
	for range maxTries {
		if err = w.Create(next.Path()); !errors.Is(err, fs.ErrExist) {
			break
		}
		next.N++
	}
	w.name = next
	return err
}

// free returns a name that no file has, if the directory shows all.
func (w *Writer) free(day string) (n Name, err error) {
	n = Name{Server: w.name.Server, Day: day, N: 1}
	if w.name.Day == day {
		n.N = w.name.N + 1
	}
	all, err := List(w.fs)
	for _, x := range all {
		if x.Server == n.Server && x.Day == day {
			n.N = max(n.N, x.N+1)
		}
	}
	return n, err
}

// Result is what a search found.
type Result struct {
	// Events are the newest that match, oldest first.
	Events []audit.Event
	// More reports whether there are older ones that match.
	More bool
	// Damaged counts lines that could not be read.
	Damaged int
}

// Search searches the files for events, until ctx ends. With an error, which tells what could not be read, the result is what was found
// elsewhere.
func Search(ctx context.Context, fsys vfs.FS, q audit.Query) (r Result, err error) {
	all, err := List(fsys)
	if err != nil {
		return r, err
	}
	oldest := "" // what is of that day or later may be in a file; clocks may differ, and lines may wait for long
	if !q.Since.IsZero() {
		oldest = Day(q.Since.Add(-24 * time.Hour))
	}
	for _, n := range all {
		if n.Day < oldest {
			continue
		}
		lineErr := sidelog.Lines(ctx, fsys, n.Path(), 0, audit.MaxLine, func(b []byte) bool {
			r.line(b, q)
			return true
		})
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		err = errors.Join(err, vfs.IgnoreMissing(lineErr)) // if it is missing, it was removed meanwhile
	}
	r.keep(q.Limit)
	return r, err
}

// line looks at one line.
func (r *Result) line(b []byte, q audit.Query) {
	e, err := audit.ParseLine(b)
	switch {
	case err != nil:
		r.Damaged++
	case q.Matches(&e):
		if r.Events = append(r.Events, e); q.Limit > 0 && len(r.Events) >= 2*q.Limit {
			r.keep(q.Limit)
		}
	}
}

// keep orders the events, and keeps the newest.
func (r *Result) keep(limit int) {
	slices.SortStableFunc(r.Events, func(a, b audit.Event) int { return a.Time.Compare(b.Time) })
	if n := len(r.Events); limit > 0 && n > limit {
		r.Events, r.More = append([]audit.Event{}, r.Events[n-limit:]...), true
	}
}
